// Who belongs to which part when a communicator is split: ranks of one colour, in order of their keys, then of their ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wirewise/comm/communicator.h"

namespace wirewise::comm {

/// The ranks of a colour's part, in its order; none where the colour is negative. `choices`: by rank, its colour and its key.
[[nodiscard]] std::vector<int> split_members(int colour, std::span<const std::int64_t> choices);

/// Tells all ranks this one's choice, and gives the ranks of its part. Collective.
[[nodiscard]] std::vector<int> choose_part(Communicator& communicator, int colour, int key, const CallOptions& call);

}  // namespace wirewise::comm
