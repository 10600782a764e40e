// Ranks onto devices, so that the heaviest traffic takes the shortest wire.
//
// What a step's communication costs on a placement is placement_cost.h's; here is what is placed, and where it came to lie.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/wiring/wiring.h"

namespace wirewise {

enum class TrafficPattern : std::uint8_t {
  kRing,      // all-reduce, all-gather, reduce-scatter: round the group, in whichever order suits the wiring
  kAllToAll,  // each to each other, in equal parts
  kChain,     // each to the next one of the group, and back
};
[[nodiscard]] std::string_view name_of(TrafficPattern pattern) noexcept;

/// Groups that communicate at the same time.
struct TrafficPhase {
  std::string name;  // "tp"
  TrafficPattern pattern = TrafficPattern::kRing;
  double bytes = 0;  // that a rank sends in a step: round the ring, to all others together, or to its next
  std::vector<std::vector<int>> groups;  // of ranks; no rank stands in two groups of a phase
};

/// A step's communication, phase after phase.
struct RankTraffic {
  int ranks = 0;
  std::vector<TrafficPhase> phases;
};

struct PhaseTime {
  std::string name;
  Seconds seconds = 0;
  int bottleneck = -1;  // a link; -1: the phase sends nothing
  std::string where;    // "uplinks of leaf3", "nic0 of node2"
};

struct CommunicationTime {
  Seconds seconds = 0;  // of a step
  std::vector<PhaseTime> phases;
};

struct PlacementOptions {
  std::vector<int> devices;  // that may be used, in the order which counts as linear; empty: all GPUs, or all ranks' cores where there are none
  int nodes = 0;             // hosts to use, equally many ranks on each; 0: as it comes out best
  std::uint32_t seed = 1;    // of the random order that is compared with
};

struct Placement {
  std::vector<int> device;  // of each rank
  CommunicationTime time;
  CommunicationTime linear;  // ranks in the order of the devices; with `nodes` on the first hosts that have room
  CommunicationTime random;  // the median of several random orders, on as many hosts
  bool exact = false;        // no placement is faster in this model
  std::vector<std::string> why;
};

/// Throws bad input for more ranks than devices, groups that don't fit the ranks, `nodes` that can't hold them, and devices that no links
/// join. Up to 8 devices every placement is weighed; beyond, blocks of ranks are laid into islands, hosts, leaves and racks, and swapped
/// while that helps. The same input gives the same placement.
[[nodiscard]] Placement place(const Wiring& wiring, const RankTraffic& traffic, const PlacementOptions& options = {});

/// What `traffic` costs with rank r on device[r].
[[nodiscard]] CommunicationTime communication_time(const Wiring& wiring, const RankTraffic& traffic, std::span<const int> device);

}  // namespace wirewise
