// What rings, trees and switches that sum are made of: the NVSwitch that joins a group, its direct NVLinks, and an order of neighbours.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "wirewise/wiring/path.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise {

/// The NVLinks out of a device (its links are `out`) that lead to `to`, as the graph's index; -1: none.
[[nodiscard]] int nvlink_to(const Wiring& wiring, const std::vector<int>& out, int to);
/// The NVSwitches that each of the devices hangs on, in the graph's order.
[[nodiscard]] std::vector<int> common_nvswitches(const Wiring& wiring, const std::vector<std::vector<int>>& out, std::span<const int> devices);
/// All NVLinks out of a device (its links are `out`) that lead to some of `nvswitches`.
struct SwitchLinks {
  BytesPerSecond bandwidth = 0;
  int lanes = 0;
  int slowest = -1;
};
[[nodiscard]] SwitchLinks links_to_switches(const Wiring& wiring, const std::vector<int>& out, std::span<const int> nvswitches);

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
/// Orders in which rings and chains may pass the devices: each followed by the one that it reaches best, by bandwidth, then by fewest links; and as
/// they hang on the tree of PCIe and sockets, in which a ring passes each link once.
[[nodiscard]] std::vector<std::vector<int>> orders_of(const Wiring& wiring, const Paths& paths, const std::vector<std::vector<int>>& out, std::span<const int> devices);
/// What each of the hops gets at least when all of them send at once, and the link that limits it.
struct SlowestHop {
  BytesPerSecond bandwidth = 0;
  int link = -1;
};
[[nodiscard]] SlowestHop slowest_of(const Wiring& wiring, const Paths& paths, std::span<const std::pair<int, int>> hops);

[[nodiscard]] std::map<int, std::vector<int>> by_host(const Wiring& wiring, std::span<const int> devices);
/// Devices that need no network among each other: those that an NVSwitch outside of hosts joins, else those of a host. By the host's index, or
/// behind all hosts' by the NVSwitch.
[[nodiscard]] std::map<int, std::vector<int>> by_unit(const Wiring& wiring, const std::vector<std::vector<int>>& out, std::span<const int> devices);

}  // namespace wirewise
