// Laying ranks into the tree of slots: ranks that talk much become blocks, and blocks go whole into the smallest subtree with room.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "wirewise/wiring/placement.h"
#include "wirewise/wiring/placement_tree.h"

namespace wirewise {

/// Ranks as a tree: those of a group of the first phase are a block, blocks that a group of the next phase joins a larger one, and so on.
struct RankBlocks {
  struct Block {
    std::vector<int> parts;  // blocks, in the order of the groups
    int rank = -1;           // of a block of one
    int size = 1;
  };
  std::vector<Block> blocks;  // the first `ranks` are single ranks
  int whole = -1;             // the block of all
};
/// `phases`: indices of the traffic's phases, innermost first.
[[nodiscard]] RankBlocks rank_blocks(const RankTraffic& traffic, std::span<const int> phases);
/// The ranks of a block, in order.
[[nodiscard]] std::vector<int> ranks_of(const RankBlocks& blocks, int block);

enum class Fit : std::uint8_t { kTightest, kFirst, kLoosest };

/// A slot for each rank. `per_host`: the most ranks on a host; 0: as many as it has slots.
[[nodiscard]] std::vector<int> map_blocks(const PlacementTree& tree, const RankBlocks& blocks, Fit fit, int per_host);

}  // namespace wirewise
