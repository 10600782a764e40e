// Where the ranks of a host run under `wirewise launch --bind`: on which CPUs, and near which memory.
//
// Each rank gets CPUs of one NUMA node: that of its GPU where each rank has one, else nodes in turn by how many CPUs they have. Its memory is
// taken from that node as long as there is some. Both threads of a core go to one rank. Nodes without CPUs (the memory of GPUs, or persistent memory) hold no rank.
#pragma once

#include <filesystem>
#include <map>
#include <vector>

namespace wirewise {

struct CpuNode {
  int number = 0;
  std::vector<int> cpus;  // that this process may use
  bool memory = true;     // has memory that this process may use
};

struct HostCpus {
  std::vector<int> allowed;     // CPUs, ascending
  std::vector<CpuNode> nodes;   // those with CPUs, by number
  std::map<int, int> core_of;   // of a CPU: the lowest one on its core; itself where that isn't known
  std::vector<int> gpu_nodes;   // the NUMA node of each GPU, as CUDA numbers them by PCI address; -1 not known
};
/// What the kernel shows under `root` ("/" but in tests) of the machine; `allowed`: the CPUs of this process. `visible`: CUDA_VISIBLE_DEVICES, if set.
[[nodiscard]] HostCpus host_cpus(const std::filesystem::path& root, std::vector<int> allowed, const char* visible);

struct RankBinding {
  std::vector<int> cpus;
  int memory_node = -1;  // preferred; -1: as the system does it
};
/// Of each local rank. There must be a CPU for each.
[[nodiscard]] std::vector<RankBinding> bind_ranks(const HostCpus& host, int ranks);

/// Prefers memory of a node for the calling thread and what it starts. 0, or errno. Safe between fork and exec.
[[nodiscard]] int prefer_memory(int node) noexcept;
/// Whether this process may set such preferences: containers may be denied it.
[[nodiscard]] bool may_prefer_memory() noexcept;

}  // namespace wirewise
