// The table of inner loops of reduce(): one instance a type and operation, and one table an instruction set.
#pragma once

#include <array>
#include <cstddef>

#include "wirewise/base/dtype.h"
#include "wirewise/comm/communicator.h"

namespace wirewise::comm {

inline constexpr std::size_t kReduceBlock = 2048;  // elements of one pass: the block's accumulators stay in the first-level cache

struct ReduceKernels {
  /// Combines `count` <= kReduceBlock elements from `first` on of `ranks` sources into `accumulators` (float32 for 16-bit floats, else the type).
  using Combine = void (*)(void* accumulators, const std::byte* const* sources, int ranks, std::size_t first, std::size_t count);
  /// Stores accumulators: divides by `divisor` unless it is 0, rounds, and adds to `out` where `accumulate`.
  using Finish = void (*)(std::byte* out, const void* accumulators, std::size_t count, int divisor, bool accumulate);

  static constexpr std::size_t kTypes = 10;
  static constexpr std::size_t kOps = 8;
  std::array<std::array<Combine, kOps>, kTypes> combine{};
  std::array<Finish, kTypes> finish{};          // to the type itself
  std::array<Finish, kTypes> finish_float32{};  // 16-bit floats unrounded
};

/// The best that this processor runs.
[[nodiscard]] const ReduceKernels& reduce_kernels() noexcept;
[[nodiscard]] const ReduceKernels& portable_kernels() noexcept;
#if defined(__x86_64__)
[[nodiscard]] const ReduceKernels& avx2_kernels() noexcept;
[[nodiscard]] const ReduceKernels& avx512_kernels() noexcept;
#endif

}  // namespace wirewise::comm
