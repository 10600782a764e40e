// What rings, trees and switches that sum are made of: the NVSwitch that joins a group, its direct NVLinks, and an order of neighbours.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "wirewise/wiring/path.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise {

/// The NVLinks out of a device (its links are `out`) that lead to `to`, as the graph's index; -1: none.
[[nodiscard]] int nvlink_to(const Wiring& wiring, const std::vector<int>& out, int to);
/// The NVSwitch that all devices hang on, or -1.
[[nodiscard]] int common_nvswitch(const Wiring& wiring, const std::vector<std::vector<int>>& out, std::span<const int> devices);

/// NVLinks between each two of a group.
struct DirectLinks {
  std::vector<std::vector<int>> lanes;            // [i][j]: side by side from i to j
  BytesPerSecond lane = 0;                        // the slowest; infinite where there are none
  int slowest = -1;                               // its link
  Provenance provenance = Provenance::kMeasured;  // the slowest one's
};
[[nodiscard]] DirectLinks direct_links(const Wiring& wiring, const std::vector<std::vector<int>>& out, std::span<const int> devices);

/// The path from a to b. Throws bad input that names both where there is none.
[[nodiscard]] Path path_between(const Wiring& wiring, const Paths& paths, int a, int b);
/// The devices, each followed by the one that it reaches best, by bandwidth, then by fewest links.
[[nodiscard]] std::vector<int> nearest_order(const Wiring& wiring, const Paths& paths, std::span<const int> devices);

[[nodiscard]] std::map<int, std::vector<int>> by_host(const Wiring& wiring, std::span<const int> devices);
/// Devices that need no network among each other: those that an NVSwitch outside of hosts joins, else those of a host. By the host's index, or
/// behind all hosts' by the NVSwitch.
[[nodiscard]] std::map<int, std::vector<int>> by_unit(const Wiring& wiring, const std::vector<std::vector<int>>& out, std::span<const int> devices);

}  // namespace wirewise
