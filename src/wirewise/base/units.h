// Quantities with their units, and how people write and read them. Binary (KiB, MiB, GiB) and decimal (kB, MB, GB) never mix:
// memory is printed in binary units, bandwidth in decimal ones, and every print says which.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace wirewise {

using Bytes = std::uint64_t;
using Seconds = double;
using BytesPerSecond = double;
using Flops = double;  // floating-point operations, a multiply-add counts two

inline constexpr Bytes kKiB = 1024;
inline constexpr Bytes kMiB = 1024 * kKiB;
inline constexpr Bytes kGiB = 1024 * kMiB;

/// Reads a size as users write it: 8, 64K, 1M, 2G, 1T (binary; also 64KiB, 64KB and lower case). Throws bad input that
/// names the text when it is no size or does not fit in 64 bits.
[[nodiscard]] Bytes parse_size(std::string_view text);

/// "512 B", "1.50 KiB", "3.25 GiB".
[[nodiscard]] std::string format_bytes(Bytes bytes);

/// "12.3 us", "4.56 ms", "1.23 s", "2 m 05 s", "3 h 07 m".
[[nodiscard]] std::string format_seconds(Seconds seconds);

/// Smallest multiple of `multiple` that is at least `value`; `multiple` > 0.
[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) noexcept {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace wirewise
