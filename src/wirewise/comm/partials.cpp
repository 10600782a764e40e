#include "wirewise/comm/partials.h"

#include <algorithm>
#include <bit>

#include "wirewise/comm/reduce_kernels.h"

namespace wirewise::comm {
namespace {

/// Where the canonical tree splits a range.
int middle_of(TreeNode node) noexcept {
  const auto ranks = static_cast<unsigned>(node.end - node.begin);
  return node.begin + static_cast<int>(std::bit_floor(ranks - 1));
}

void find_nodes(const HostMap& hosts, int host, TreeNode node, std::vector<TreeNode>& found) {
  bool all = true;
  for (int r = node.begin; r < node.end; ++r) all = all && hosts.host_of(r) == host;
  if (all) {
    found.push_back(node);
  } else if (node.end - node.begin > 1) {
    const int middle = middle_of(node);
    find_nodes(hosts, host, {node.begin, middle}, found);
    find_nodes(hosts, host, {middle, node.end}, found);
  }
}

/// One block of the elements: what all levels of the recursion share.
struct Block {
  ReduceKernels::Combine combine;
  std::span<const Partial> partials;
  std::size_t element;  // bytes of one in a partial
  std::size_t first;
  std::size_t count;
};

/// The sum over `node`: where it lies, which is `scratch` unless it is a partial itself.
const std::byte* sum(const Block& block, TreeNode node, std::byte* scratch) {
  for (const Partial& partial : block.partials) {
    if (partial.node.begin == node.begin && partial.node.end == node.end) return partial.data + block.first * block.element;
  }
  const int middle = middle_of(node);
  alignas(64) std::byte left[kReduceBlock * 8];
  alignas(64) std::byte right[kReduceBlock * 8];
  const std::byte* const sources[2] = {sum(block, {node.begin, middle}, left), sum(block, {middle, node.end}, right)};
  block.combine(scratch, sources, 2, 0, block.count);
  return scratch;
}

}  // namespace

std::vector<TreeNode> nodes_of(const HostMap& hosts, int host) {
  std::vector<TreeNode> found;
  find_nodes(hosts, host, {0, hosts.ranks()}, found);
  return found;
}

DType partial_type(DType in) noexcept {
  if (in == DType::kFloat16 || in == DType::kBFloat16) return DType::kFloat32;
  return in == DType::kBool ? DType::kUInt8 : in;
}

ReduceKind partial_kind(const ReduceKind& kind) noexcept {
  // bool has no wider form to ask for: its sums are bytes already.
  const DType out = kind.in == DType::kBool ? DType::kBool : partial_type(kind.in);
  return {kind.in, out, kind.op == Reduction::kAverage ? Reduction::kSum : kind.op, false};
}

void combine_partials(const ReduceKind& kind, int ranks, std::span<const Partial> partials, std::byte* out, std::size_t count) {
  const ReduceKernels& kernels = reduce_kernels();
  const DType held = partial_type(kind.in);
  const auto index = [](DType dtype) { return static_cast<std::size_t>(dtype); };
  const Reduction op = kind.op == Reduction::kAverage ? Reduction::kSum : kind.op;
  const auto finish = kind.out != kind.in ? kernels.finish_float32[index(kind.in)] : kernels.finish[index(kind.in)];
  const int divisor = kind.op == Reduction::kAverage ? ranks : 0;
  alignas(64) std::byte scratch[kReduceBlock * 8];
  Block block{kernels.combine[index(held)][static_cast<std::size_t>(op)], partials, size_of(held), 0, 0};
  for (; block.first < count; block.first += kReduceBlock) {
    block.count = std::min(kReduceBlock, count - block.first);
    const std::byte* const total = sum(block, {0, ranks}, scratch);
    finish(out + block.first * size_of(kind.out), total, block.count, divisor, kind.accumulate);
  }
}

}  // namespace wirewise::comm
