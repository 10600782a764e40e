#include "wirewise/wiring/placement_map.h"

#include <numeric>

namespace wirewise {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

class Mapper {
 public:
  Mapper(const PlacementTree& tree, const RankBlocks& blocks, Fit fit, int per_host, std::size_t ranks)
      : tree_(tree), blocks_(blocks), fit_(fit), room_(tree.nodes.size()), slot_of_(ranks, -1) {
    for (std::size_t i = tree.nodes.size(); i-- > 0;) {
      const auto& node = tree.nodes[i];
      room_[i] = node.slot != -1 ? 1 : room_[i];
      if (node.host != -1 && per_host > 0) room_[i] = room_[i] < per_host ? 0 : per_host;
      if (node.parent != -1) room_[at(node.parent)] += room_[i];
    }
  }

  std::vector<int> map() {
    place(blocks_.whole, 0);
    return std::move(slot_of_);
  }

 private:
  /// The child to hold `size` slots; -1: none can.
  [[nodiscard]] int child_for(int node, int size) const {
    int best = -1;
    for (const int child : tree_.nodes[at(node)].children) {
      const int room = room_[at(child)];
      if (room < size) continue;
      if (fit_ == Fit::kFirst) return child;
      if (best == -1 || (fit_ == Fit::kTightest ? room < room_[at(best)] : room > room_[at(best)])) best = child;
    }
    return best;
  }

  void place(int block, int node) {
    const auto& of = blocks_.blocks[at(block)];
    for (int child = child_for(node, of.size); child != -1; child = child_for(node, of.size)) node = child;
    if (of.rank != -1) {
      // A host's room may be less than its slots': any free one below will do.
      slot_of_[at(of.rank)] = tree_.nodes[at(node)].slot;
      for (int up = node; up != -1; up = tree_.nodes[at(up)].parent) --room_[at(up)];
      return;
    }
    for (const int part : of.parts) place(part, node);
  }

  const PlacementTree& tree_;
  const RankBlocks& blocks_;
  Fit fit_;
  std::vector<int> room_;
  std::vector<int> slot_of_;
};

}  // namespace

RankBlocks rank_blocks(const RankTraffic& traffic, std::span<const int> phases) {
  RankBlocks made;
  const auto ranks = at(traffic.ranks);
  made.blocks.resize(ranks);
  std::vector<int> block_of(ranks), parent;  // the block that a rank is in so far; joins of blocks
  for (std::size_t r = 0; r < ranks; ++r) {
    made.blocks[r].rank = static_cast<int>(r);
    block_of[r] = static_cast<int>(r);
  }
  const auto find = [&](int b) {
    while (parent[at(b)] != b) b = parent[at(b)] = parent[at(parent[at(b)])];
    return b;
  };
  for (const int index : phases) {
    const std::size_t before = made.blocks.size();
    parent.resize(before);
    std::iota(parent.begin(), parent.end(), 0);
    std::vector<int> order;  // blocks as the groups name them
    std::vector<bool> named(before, false);
    for (const auto& group : traffic.phases[at(index)].groups) {
      for (const int rank : group) {
        const int block = block_of[at(rank)];
        if (!named[at(block)]) order.push_back(block);
        named[at(block)] = true;
        const int a = find(block_of[at(group.front())]), b = find(block);
        if (a != b) parent[at(b)] = a;
      }
    }
    std::vector<int> joined(before, -1);  // of a root: the new block
    std::vector<int> size(before, 0);
    for (const int block : order) ++size[at(find(block))];
    for (const int block : order) {
      const int root = find(block);
      if (size[at(root)] < 2) continue;
      if (joined[at(root)] == -1) {
        joined[at(root)] = static_cast<int>(made.blocks.size());
        made.blocks.emplace_back().size = 0;
      }
      made.blocks[at(joined[at(root)])].parts.push_back(block);
      made.blocks[at(joined[at(root)])].size += made.blocks[at(block)].size;
    }
    for (int& block : block_of) {
      if (const int into = joined[at(find(block))]; into != -1) block = into;
    }
  }
  RankBlocks::Block whole;
  whole.size = 0;
  std::vector<bool> seen(made.blocks.size(), false);
  for (const int block : block_of) {
    if (seen[at(block)]) continue;
    seen[at(block)] = true;
    whole.parts.push_back(block);
    whole.size += made.blocks[at(block)].size;
  }
  made.whole = whole.parts.size() == 1 ? whole.parts.front() : static_cast<int>(made.blocks.size());
  if (whole.parts.size() != 1) made.blocks.push_back(std::move(whole));
  return made;
}

std::vector<int> ranks_of(const RankBlocks& blocks, int block) {
  std::vector<int> ranks, open{block};
  while (!open.empty()) {
    const auto& of = blocks.blocks[at(open.back())];
    open.pop_back();
    if (of.rank != -1) ranks.push_back(of.rank);
    open.insert(open.end(), of.parts.rbegin(), of.parts.rend());
  }
  return ranks;
}

std::vector<int> map_blocks(const PlacementTree& tree, const RankBlocks& blocks, Fit fit, int per_host) {
  std::size_t ranks = 0;
  while (ranks < blocks.blocks.size() && blocks.blocks[ranks].rank != -1) ++ranks;
  return Mapper(tree, blocks, fit, per_host, ranks).map();
}

}  // namespace wirewise
