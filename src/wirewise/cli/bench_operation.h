// What `wirewise bench` can time: each operation's buffers, its factor from algorithm to bus bandwidth, and the least memory traffic that
// any algorithm on one host needs for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "wirewise/base/dtype.h"
#include "wirewise/base/units.h"
#include "wirewise/comm/communicator.h"

namespace wirewise::bench {

enum class Op : std::uint8_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce, kGather, kScatter, kAllToAll, kSendRecv, kBarrier };

[[nodiscard]] std::string_view name_of(Op op) noexcept;
/// "all_reduce,all_gather", or "all". Throws bad input with the nearest name.
[[nodiscard]] std::vector<Op> parse_ops(std::string_view text);

[[nodiscard]] std::string_view name_of(Reduction redop) noexcept;
/// sum, avg, prod, min, max, band, bor, bxor. Throws bad input with the nearest name.
[[nodiscard]] Reduction parse_reduction(std::string_view text);

[[nodiscard]] constexpr bool reduces(Op op) noexcept { return op == Op::kAllReduce || op == Op::kReduceScatter || op == Op::kReduce; }
[[nodiscard]] constexpr bool has_root(Op op) noexcept {
  return op == Op::kBroadcast || op == Op::kReduce || op == Op::kGather || op == Op::kScatter;
}
/// Whether the operation exists in this form: broadcast has one buffer a rank, all_to_all and send_recv always two.
[[nodiscard]] bool has_form(Op op, bool in_place) noexcept;

/// One call's buffers. Sizes are defined as nccl-tests does: `size` is the larger of a rank's input and output, so for all_gather,
/// reduce_scatter, gather, scatter and all_to_all the whole of all ranks' parts; `count` is the argument of the call, a part of it.
struct Shape {
  std::size_t count = 0;  // elements
  Bytes size = 0;
  Bytes in = 0;   // bytes of the input buffer of a rank (at the root, where others have none)
  Bytes out = 0;
};
/// The call whose size is the largest that is at most `wanted`, but for at least one element (none where `wanted` is 0).
[[nodiscard]] Shape shape_of(Op op, DType dtype, Bytes wanted, int ranks) noexcept;

/// busbw / algbw, by nccl-tests' definitions: the share of a link's bandwidth that the operation could at best use, whatever the ranks.
[[nodiscard]] double bus_factor(Op op, int ranks) noexcept;

/// Bytes that all ranks together must read from and write to memory when buffers are private to each rank, larger than the caches, and
/// written past them.
struct Traffic {
  double read = 0;
  double written = 0;
};
[[nodiscard]] Traffic least_traffic(Op op, Bytes size, int ranks, bool in_place) noexcept;

}  // namespace wirewise::bench
