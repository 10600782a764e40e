// What a matrix of nvidia-smi topo leaves open, or lacks, by the pairs that it states.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "wirewise/wiring/host_builder.h"

namespace wirewise {

/// Devices of whose place nothing is known: one without a place is far from all others only where it is said to be so of each group of those
/// that have one.
[[nodiscard]] std::vector<std::size_t> loose_devices(const HostPairs& pairs);

/// GPUs without NVLinks beside others that all reach each other by as many: they may have lost their own.
struct LostNvlinks {
  std::vector<std::size_t> gpus;
  std::size_t others = 0;
  int links = 0;  // between each two of the others
};
/// Nothing where fewer than three have NVLinks, or not more than lack them, or nothing is said of a GPU that lacks them and one that has.
[[nodiscard]] std::optional<LostNvlinks> lost_nvlinks(const HostPairs& pairs);

}  // namespace wirewise
