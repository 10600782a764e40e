// What each rank of a placement is given: its host, GPU, NICs and CPUs, by the names that launchers and libraries know them by.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "wirewise/wiring/wiring.h"

namespace wirewise {

struct RankPlace {
  int rank = 0;
  std::string host;
  int node = 0;        // the host's number, in the order of the lowest ranks
  int local_rank = 0;  // among the ranks of the host, in their order
  std::string device;  // "GPU3"
  int gpu = -1;        // as CUDA_VISIBLE_DEVICES counts with CUDA_DEVICE_ORDER=PCI_BUS_ID; -1: no GPU
  std::vector<std::string> rdma_nics;   // nearest ones that speak InfiniBand or RoCE: "mlx5_0"
  std::vector<std::string> interfaces;  // nearest other ones: "eth0"
  std::string cpus;    // "0-7,64-71"; empty: not known
  int numa = -1;       // NUMA node; -1: not known
};

/// rank r sits on device[r]. Ranks of a NUMA node share its CPUs out among themselves; whole CPUs only, and both threads of a core to one rank.
[[nodiscard]] std::vector<RankPlace> rank_places(const Wiring& wiring, std::span<const int> device);

/// CPUs as Linux lists them: "0-2,5" is {0, 1, 2, 5}. Empty where the text is none.
[[nodiscard]] std::vector<int> parse_cpu_list(const std::string& text);
[[nodiscard]] std::string cpu_list(const std::vector<int>& cpus);

}  // namespace wirewise
