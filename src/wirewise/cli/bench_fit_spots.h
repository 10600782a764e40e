// What each rank of a job knows of its place, told to all of them.
#pragma once

#include <vector>

#include "wirewise/comm/communicator.h"
#include "wirewise/wiring/link_pairs.h"

namespace wirewise::bench {

/// Collective: the place of every rank, in rank order; the same on all.
[[nodiscard]] std::vector<RankSpot> introduce_ranks(Communicator& communicator);

}  // namespace wirewise::bench
