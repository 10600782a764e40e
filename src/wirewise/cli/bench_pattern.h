// Data whose result is known in advance: every element of every input is a closed form of (rank, position), chosen so that the result of
// each operation is one too, exact in every type. So each element can be checked without a second implementation of the operation.
//
// Values repeat after a prime number of elements, so a block in the wrong place is seen, and filling and checking run at the speed of
// copying. Inputs of reductions are whole numbers, small enough that every order of combining them gives the same bits.
#pragma once

#include <cstddef>
#include <vector>

#include "wirewise/base/dtype.h"
#include "wirewise/comm/communicator.h"

namespace wirewise::bench {

inline constexpr std::size_t kPeriod = 4093;
/// The bytes of elements 0 to kPeriod - 1; element i is that at i mod kPeriod.
using Period = std::vector<std::byte>;

/// Whether the reduction exists for the type: averages for numbers, bitwise ones for integers and bool.
[[nodiscard]] constexpr bool is_defined(DType dtype, Reduction redop) noexcept {
  const bool bitwise = redop == Reduction::kBitAnd || redop == Reduction::kBitOr || redop == Reduction::kBitXor;
  return bitwise ? !is_floating(dtype) : redop != Reduction::kAverage || dtype != DType::kBool;
}

/// What `source` sends to `destination` (0 where all get the same).
[[nodiscard]] Period moved_data(DType dtype, int source, int destination);
[[nodiscard]] Period reduction_input(DType dtype, Reduction redop, int ranks, int rank);
/// What those inputs of all ranks reduce to.
[[nodiscard]] Period reduction_result(DType dtype, Reduction redop, int ranks);

/// Writes elements [first, first + count) to `out`.
void fill(std::byte* out, const Period& period, std::size_t first, std::size_t count);
/// How many of `count` elements at `data` differ from elements [first, first + count).
[[nodiscard]] std::size_t count_wrong(const std::byte* data, const Period& period, std::size_t first, std::size_t count);

}  // namespace wirewise::bench
