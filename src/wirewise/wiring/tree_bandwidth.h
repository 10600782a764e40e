// Trees as NCCL runs an all-reduce over them: a chain of GPUs within each host, and between hosts two binary trees with half of the data
// each, in which a host that hands on in one is at the end of the other.
#pragma once

#include <array>
#include <vector>

namespace wirewise {

/// A place in a tree of hosts.
struct TreePlace {
  int up = -1;  // -1: the root
  std::vector<int> down;
};
/// Two trees over hosts 0 to hosts - 1. In the first a host hangs on the one whose number has its lowest set bit moved up (or cleared,
/// where that is no host); the second is its mirror image for an even number of hosts, else turned by one.
[[nodiscard]] std::array<std::vector<TreePlace>, 2> double_binary_tree(int hosts);

/// Halves of the data that the busiest host sends over its network (and as many receives): a half to its parent and to each child in
/// either tree.
[[nodiscard]] int busiest_halves(const std::array<std::vector<TreePlace>, 2>& trees);

}  // namespace wirewise
