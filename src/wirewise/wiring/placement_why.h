// Why ranks lie where they lie, in words.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "wirewise/wiring/placement.h"
#include "wirewise/wiring/placement_model.h"

namespace wirewise {

/// A line a phase, the slowest first: how near its groups lie to each other, and what limits it; then the hosts that are used.
[[nodiscard]] std::vector<std::string> reasons(const PlacementModel& model, const RankTraffic& traffic, std::span<const int> slot_of, const CommunicationTime& time);

}  // namespace wirewise
