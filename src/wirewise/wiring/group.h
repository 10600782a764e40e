// What a group of devices gets from a wiring when all of them communicate at once: bus bandwidth of large collectives, which link limits
// it, what groups share, and how much crosses the middle.
//
// Bus bandwidth is nccl-tests' (doc/PERFORMANCE.md): what the slowest link carries, so that a ring on links of b gives b for any number of
// ranks. All figures are per direction and of large messages; what small ones get is in group_time.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/wiring/wiring.h"

namespace wirewise {

enum class GroupAlgorithm : std::uint8_t {
  kRing,      // rings over NVLinks, PCIe and NICs, as many as there are disjoint ones
  kInSwitch,  // NVSwitches that add up (NVLS); all-reduce, and only where they join the whole group
  kTree,      // a chain within each host, two binary trees between hosts; all-reduce only
};
[[nodiscard]] std::string_view name_of(GroupAlgorithm algorithm) noexcept;

enum class GroupCollective : std::uint8_t { kAllReduce, kAllGather, kReduceScatter };

struct GroupBandwidth {
  BytesPerSecond bus = 0;
  GroupAlgorithm algorithm = GroupAlgorithm::kRing;
  int rings = 0;        // side by side, one direction each; 0: not a ring
  int bottleneck = -1;  // the link that limits it; -1: a group of one
  std::string why;      // "4 rings over NVLink", "8 NICs a host"
  Provenance provenance = Provenance::kSpec;  // the bottleneck's
};

/// Rings over all of `devices` (GPUs or ranks' cores), whose order is chosen: hosts and leaves stay together. Throws bad input when two of
/// them can't reach each other.
[[nodiscard]] GroupBandwidth ring_bandwidth(const Wiring& wiring, std::span<const int> devices);

/// In-switch reduction, where one NVSwitch that can, of a host or of a rack, joins all of `devices` and they are more than 4 (as NCCL uses it); else nothing.
/// NVIDIA/nccl src/graph/tuning.cc: n GPUs of link bandwidth b get b (n-1)/n times a generation's efficiency as algorithm bandwidth.
[[nodiscard]] std::optional<GroupBandwidth> in_switch_bandwidth(const Wiring& wiring, std::span<const int> devices);

/// A tree, for an all-reduce. Where hosts are two, each is the root of one tree and sends the data once, not twice as in a ring. Throws as ring_bandwidth does.
[[nodiscard]] GroupBandwidth tree_bandwidth(const Wiring& wiring, std::span<const int> devices);

/// The best algorithm of a collective for large messages.
[[nodiscard]] GroupBandwidth group_bandwidth(const Wiring& wiring, std::span<const int> devices, GroupCollective collective);

/// A link that several groups use at once when each runs a ring.
struct SharedLink {
  int link = -1;
  std::vector<int> groups;  // their indices, at least two
};
/// Links to NICs, between switches and between sockets that more than one of `groups` needs, in the graph's order.
[[nodiscard]] std::vector<SharedLink> shared_links(const Wiring& wiring, std::span<const std::vector<int>> groups);

/// The least that flows from one half of `devices` to the other, over all paths: of all equal halves up to 8 devices, else of the halves in
/// the order of hosts and leaves. 0 for fewer than two.
[[nodiscard]] BytesPerSecond bisection(const Wiring& wiring, std::span<const int> devices);

}  // namespace wirewise
