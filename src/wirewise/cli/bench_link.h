// How fast the link between hosts is, and how many bytes an operation must at least send over it: what collectives across hosts are held
// against.
#pragma once

#include "wirewise/base/dtype.h"
#include "wirewise/base/units.h"
#include "wirewise/cli/bench_operation.h"
#include "wirewise/comm/communicator.h"

namespace wirewise::bench {

/// Of one host, all of its ranks together.
struct LinkLimit {
  int hosts = 1;
  BytesPerSecond one_way = 0;      // the first host sends, the second receives, others are silent
  BytesPerSecond all_at_once = 0;  // every host sends to the next and receives from the one before it
};

/// Collective. Plain messages between ranks of equal places. Rates are zero for one host, and where hosts don't hold equally many ranks, in
/// one run each.
[[nodiscard]] LinkLimit measure_link(Communicator& communicator);

/// Bytes that the busiest host must send or receive, by the hierarchical algorithms: each host combines its own ranks' data first, with
/// float32 partial sums for 16-bit floats. 0 where nothing crosses.
[[nodiscard]] double least_link_bytes(Op op, DType dtype, Bytes size, int ranks, int hosts) noexcept;

/// The least time that the link allows; 0 where it is unknown or nothing crosses it.
[[nodiscard]] Seconds least_time(const LinkLimit& limit, Op op, DType dtype, Bytes size, int ranks) noexcept;

}  // namespace wirewise::bench
