// Sums in parts: a host reduces the ranks it has, as nodes of the canonical tree over all ranks, and whoever holds all nodes combines them
// along the rest of that tree. So the result has the bits of one reduction over all ranks, however they are spread over hosts.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "wirewise/comm/host_map.h"
#include "wirewise/comm/reduce.h"

namespace wirewise::comm {

/// Ranks [begin, end): a node of the canonical tree.
struct TreeNode {
  int begin = 0;
  int end = 0;
};

/// The largest nodes of the tree over all ranks that lie on `host`, ascending. One where ranks are laid out in equal runs of a power of two.
[[nodiscard]] std::vector<TreeNode> nodes_of(const HostMap& hosts, int host);

/// What a partial sum of `in` is held in: float32 for 16-bit floats, uint8 for bool, else the type itself.
[[nodiscard]] DType partial_type(DType in) noexcept;

/// How a host reduces to a partial: nothing divided, rounded or added yet.
[[nodiscard]] ReduceKind partial_kind(const ReduceKind& kind) noexcept;

struct Partial {
  TreeNode node;
  const std::byte* data = nullptr;  // count elements of partial_type
};

/// Combines partials that cover ranks 0 to `ranks` in ascending order, and stores the result as `kind` says. `out` may be one of them.
void combine_partials(const ReduceKind& kind, int ranks, std::span<const Partial> partials, std::byte* out, std::size_t count);

}  // namespace wirewise::comm
