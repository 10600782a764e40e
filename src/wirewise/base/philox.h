// Counter-based random numbers: any element of any stream is computed from its position alone, so how a tensor is sharded, which
// rank draws it, and in what order, changes no bit. Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
// easy as 1, 2, 3" (SC'11).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace wirewise {

using PhiloxBlock = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

/// The generator itself: 128 random bits of a counter under a key.
[[nodiscard]] PhiloxBlock philox4x32_10(PhiloxBlock counter, PhiloxKey key) noexcept;

/// The number of a named stream, such as a tensor's name: a 64-bit hash (XXH64, seed 0).
[[nodiscard]] std::uint64_t stream_of(std::string_view name) noexcept;

/// 64 random bits at `index` of a stream.
[[nodiscard]] std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) noexcept;

/// A number in [0, 1) with 53 random bits at `index` of a stream.
[[nodiscard]] double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) noexcept;

/// Elements [first, first + count) of the named tensor's normal distribution of mean 0 and deviation `std`, by Box-Muller in
/// double, rounded once to float. Elements 4k to 4k+3 share one counter; any slicing gives the same bits.
void fill_normal(float* out, std::uint64_t first, std::size_t count, std::uint64_t seed, std::string_view name, double std);

}  // namespace wirewise
