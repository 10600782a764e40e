// Making a placement better by exchanging ranks, and proving the best one where there are few devices.
#pragma once

#include <vector>

#include "wirewise/wiring/placement_cost.h"
#include "wirewise/wiring/placement_map.h"

namespace wirewise {

inline constexpr std::size_t kMostExact = 8;  // slots of which all placements are weighed

/// The best placement there is, by branch and bound: a rank after the other, those of heavy groups first; what a group costs once all of it
/// is placed only grows with the others. Slots that can't be told apart are tried once. `per_host` as of map_blocks().
[[nodiscard]] std::vector<int> best_placement(const PlacementModel& model, const RankTraffic& traffic, std::vector<int> start, int per_host);

/// Exchanges blocks of equal size, ranks, and ranks with free slots while that helps, until about `budget` ranks have been looked at.
[[nodiscard]] std::vector<int> refined(const PlacementModel& model, const RankTraffic& traffic, const RankBlocks& blocks, std::vector<int> slot_of,
                                       bool keep_hosts, double budget);

}  // namespace wirewise
