#include "wirewise/cli/rank_binding.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>

#include "wirewise/base/text.h"
#include "wirewise/plan/rank_places.h"
#include "wirewise/wiring/sysfs.h"

namespace wirewise {
namespace {

namespace fs = std::filesystem;

constexpr int kPreferred = 1;  // MPOL_PREFERRED of linux/mempolicy.h
constexpr int kMostNodes = 1024;
constexpr int kBits = 8 * sizeof(unsigned long);
constexpr int kWords = kMostNodes / kBits;

/// The GPUs' NUMA nodes, by PCI address. NVIDIA's and AMD's.
std::vector<int> nodes_of_gpus(const fs::path& root) {
  std::vector<int> nodes;
  for (const std::string& address : sysfs::names_in(root / "sys/bus/pci/devices")) {
    const fs::path device = root / "sys/bus/pci/devices" / address;
    const std::string vendor = sysfs::line_of(device / "vendor");
    const std::string type = sysfs::line_of(device / "class");
    const bool display = type.starts_with("0x0300") || type.starts_with("0x0302") || (vendor == "0x1002" && type.starts_with("0x1200"));
    if (!display || (vendor != "0x10de" && vendor != "0x1002")) continue;
    nodes.push_back(static_cast<int>(sysfs::number_of(device / "numa_node").value_or(-1)));
  }
  return nodes;
}

/// Those of CUDA_VISIBLE_DEVICES, where it lists numbers; empty where it can't be followed.
std::vector<int> visible_ones(const std::vector<int>& nodes, const char* visible) {
  if (visible == nullptr) return nodes;
  std::vector<int> chosen;
  for (const std::string& word : split(visible, ',')) {
    const auto number = parse_integer(word);
    if (!number || *number < 0 || *number >= static_cast<long long>(nodes.size())) return {};
    chosen.push_back(nodes[static_cast<std::size_t>(*number)]);
  }
  return chosen;
}

/// How many ranks each node holds, by its CPUs; the largest remainders get what is left.
std::vector<int> by_cpus(const std::vector<CpuNode>& nodes, int ranks) {
  double all = 0;
  for (const CpuNode& node : nodes) all += static_cast<double>(node.cpus.size());
  std::vector<int> counts;
  std::vector<std::pair<double, std::size_t>> left;
  int given = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const double due = ranks * static_cast<double>(nodes[i].cpus.size()) / all;
    counts.push_back(static_cast<int>(due));
    given += counts.back();
    left.emplace_back(counts.back() - due, i);
  }
  std::sort(left.begin(), left.end());
  for (std::size_t i = 0; given < ranks; ++i, ++given) ++counts[left[i].second];
  return counts;
}

/// Equal shares of a list, in whole cores where there is one for each rank; those left over go to nobody.
std::vector<RankBinding> shares(const HostCpus& host, const std::vector<int>& cpus, int ranks, int memory_node) {
  std::vector<std::vector<int>> parts;  // CPUs of a core, in the order of the list
  std::map<int, std::size_t> place;
  for (const int cpu : cpus) {
    const auto core = host.core_of.find(cpu);
    const auto [at, fresh] = place.try_emplace(core == host.core_of.end() ? cpu : core->second, parts.size());
    if (fresh) parts.emplace_back();
    parts[at->second].push_back(cpu);
  }
  if (parts.size() < static_cast<std::size_t>(ranks)) {
    parts.clear();
    for (const int cpu : cpus) parts.push_back({cpu});
  }
  std::vector<RankBinding> bindings;
  const auto share = parts.size() / static_cast<std::size_t>(ranks);
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
    std::vector<int> own;
    for (std::size_t part = share * rank; part < share * (rank + 1); ++part) own.insert(own.end(), parts[part].begin(), parts[part].end());
    bindings.push_back({std::move(own), memory_node});
  }
  return bindings;
}

/// The node, by its place in the list, that each rank is to lie on; empty where ranks lie on no single ones.
std::vector<std::size_t> node_of_ranks(const HostCpus& host, int ranks) {
  const auto fits = [&](const std::vector<std::size_t>& of_rank) {
    std::vector<std::size_t> count(host.nodes.size(), 0);
    for (const std::size_t node : of_rank) ++count[node];
    for (std::size_t i = 0; i < count.size(); ++i) {
      if (count[i] > host.nodes[i].cpus.size()) return false;
    }
    return true;
  };
  std::vector<std::size_t> of_rank;
  if (host.gpu_nodes.size() >= static_cast<std::size_t>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) {
      const auto found = std::find_if(host.nodes.begin(), host.nodes.end(), [&](const CpuNode& node) { return node.number == host.gpu_nodes[static_cast<std::size_t>(rank)]; });
      if (found == host.nodes.end()) break;
      of_rank.push_back(static_cast<std::size_t>(found - host.nodes.begin()));
    }
    if (of_rank.size() == static_cast<std::size_t>(ranks) && fits(of_rank)) return of_rank;
    of_rank.clear();
  }
  if (host.nodes.empty() || host.nodes.size() > static_cast<std::size_t>(ranks)) return {};
  const std::vector<int> counts = by_cpus(host.nodes, ranks);
  for (std::size_t i = 0; i < counts.size(); ++i) of_rank.insert(of_rank.end(), static_cast<std::size_t>(counts[i]), i);
  return fits(of_rank) ? of_rank : std::vector<std::size_t>{};
}

}  // namespace

HostCpus host_cpus(const fs::path& root, std::vector<int> allowed, const char* visible) {
  HostCpus host;
  host.allowed = std::move(allowed);
  const fs::path folder = root / "sys/devices/system/node";
  const std::string with_memory = sysfs::line_of(folder / "has_memory");
  std::string usable;  // nodes whose memory this process may use
  for (const std::string& line : split(sysfs::text_of(root / "proc/self/status"), '\n')) {
    if (line.starts_with("Mems_allowed_list:")) usable = line.substr(line.find_first_not_of(" \t", line.find(':') + 1));
  }
  const auto holds = [](const std::string& list, int number) {
    const std::vector<int> numbers = parse_cpu_list(list);
    return list.empty() || std::find(numbers.begin(), numbers.end(), number) != numbers.end();
  };
  for (const std::string& name : sysfs::names_in(folder)) {
    const auto number = name.starts_with("node") ? parse_integer(std::string_view(name).substr(4)) : std::nullopt;
    if (!number || *number < 0 || *number >= kMostNodes) continue;
    CpuNode node;
    node.number = static_cast<int>(*number);
    for (const int cpu : parse_cpu_list(sysfs::line_of(folder / name / "cpulist"))) {
      if (std::binary_search(host.allowed.begin(), host.allowed.end(), cpu)) node.cpus.push_back(cpu);
    }
    node.memory = holds(with_memory, node.number) && holds(usable, node.number);
    if (!node.cpus.empty()) host.nodes.push_back(std::move(node));
  }
  for (const int cpu : host.allowed) {
    const std::vector<int> core = parse_cpu_list(sysfs::line_of(root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology/thread_siblings_list"));
    if (!core.empty()) host.core_of[cpu] = core.front();
  }
  std::sort(host.nodes.begin(), host.nodes.end(), [](const CpuNode& a, const CpuNode& b) { return a.number < b.number; });
  host.gpu_nodes = visible_ones(nodes_of_gpus(root), visible);
  return host;
}

std::vector<RankBinding> bind_ranks(const HostCpus& host, int ranks) {
  const std::vector<std::size_t> of_rank = node_of_ranks(host, ranks);
  if (of_rank.empty()) {
    // Fewer ranks than nodes: each gets several, whole where that works out. Or nothing is known of nodes.
    std::vector<int> cpus;
    for (const CpuNode& node : host.nodes) cpus.insert(cpus.end(), node.cpus.begin(), node.cpus.end());
    return shares(host, cpus.size() == host.allowed.size() ? cpus : host.allowed, ranks, -1);
  }
  std::vector<RankBinding> bindings(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < host.nodes.size(); ++i) {
    const CpuNode& node = host.nodes[i];
    const auto count = static_cast<int>(std::count(of_rank.begin(), of_rank.end(), i));
    if (count == 0) continue;
    std::vector<RankBinding> own = shares(host, node.cpus, count, node.memory ? node.number : -1);
    std::size_t next = 0;
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
      if (of_rank[rank] == i) bindings[rank] = std::move(own[next++]);
    }
  }
  return bindings;
}

int prefer_memory(int node) noexcept {
  unsigned long mask[kWords] = {};
  mask[node / kBits] = 1UL << (node % kBits);
  return syscall(SYS_set_mempolicy, kPreferred, mask, static_cast<unsigned long>(kMostNodes)) == 0 ? 0 : errno;
}

bool may_prefer_memory() noexcept {
  unsigned long mask[kWords] = {};
  int mode = 0;
  // Sets what is set already.
  if (syscall(SYS_get_mempolicy, &mode, mask, static_cast<unsigned long>(kMostNodes), nullptr, 0UL) != 0) return false;
  return syscall(SYS_set_mempolicy, mode, mask, static_cast<unsigned long>(kMostNodes)) == 0;
}

}  // namespace wirewise
