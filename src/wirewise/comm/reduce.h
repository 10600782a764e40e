// Reductions over the ranks' buffers, element by element, in the canonical order: a range of n ranks is split at the largest power
// of two below n. 16-bit floats are combined in float32 and rounded once (to nearest, ties to even; NaN stays NaN), all other types
// in their own type; integers wrap around. So the bits depend on the values and the number of ranks alone.
#pragma once

#include <cstddef>
#include <span>

#include "wirewise/base/dtype.h"
#include "wirewise/comm/communicator.h"

namespace wirewise::comm {

/// What one call combines and how it stores the result.
struct ReduceKind {
  DType in = DType::kFloat32;
  DType out = DType::kFloat32;  // `in`, or float32 where `in` is a 16-bit float
  Reduction op = Reduction::kSum;
  bool accumulate = false;  // out += result, for float32 out
};

/// Throws BadInput, naming what can't be done, unless `kind` is one that reduce() knows.
void check_reduce_kind(const ReduceKind& kind, const char* operation);

/// Combines element i of all sources into element i of every target. A target may be one of the sources, not a part of one at
/// another offset. Nothing needs to be aligned. `stream`: targets that are no sources are written past the caches.
void reduce(const ReduceKind& kind, std::span<const std::byte* const> sources, std::span<std::byte* const> targets,
            std::size_t count, bool stream = false);

/// out += in, or out = in: how a rank takes over a result of type kind.out that a peer computed.
void take_over(const ReduceKind& kind, std::byte* out, const std::byte* result, std::size_t count);

}  // namespace wirewise::comm
