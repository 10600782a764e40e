// How many rings over NVLinks visit each of some GPUs once, side by side.
#pragma once

#include <vector>

namespace wirewise {

/// lanes[i][j] links lead from GPU i to GPU j, each way a count of its own. Returns rings, each an order of all GPUs that starts with 0; no
/// two of them use the same link in the same direction. As many as a bounded search finds: all there are for the machines known (up to 16
/// GPUs); none where some GPU can't be passed.
[[nodiscard]] std::vector<std::vector<int>> nvlink_rings(const std::vector<std::vector<int>>& lanes);

/// The same for chains, which end at a GPU of their own and use each of their links both ways: no two of them use the same link.
[[nodiscard]] std::vector<std::vector<int>> nvlink_chains(const std::vector<std::vector<int>>& lanes);

}  // namespace wirewise
