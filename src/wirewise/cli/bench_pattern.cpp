#include "wirewise/cli/bench_pattern.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace wirewise::bench {
namespace {

/// splitmix64's finaliser.
std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// A 16-bit float with `fraction` bits of fraction: rounded to nearest, ties to even.
std::uint16_t half_bits(double value, int fraction, int bias) noexcept {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  const int infinity = (2 * bias + 1) << fraction;
  if (magnitude == 0) return static_cast<std::uint16_t>(sign);
  if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | infinity);
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int unit = std::max(exponent - 1, 1 - bias);
  const int digits = static_cast<int>(std::nearbyint(std::ldexp(magnitude, fraction - unit)));
  return static_cast<std::uint16_t>(sign | std::min(infinity, digits + ((unit + bias - 1) << fraction)));
}

void put(std::byte* at, std::uint64_t bits, std::size_t bytes) noexcept { std::memcpy(at, &bits, bytes); }  // little-endian hosts only
static_assert(std::endian::native == std::endian::little);

void put_real(DType dtype, std::byte* at, double value) noexcept {
  switch (dtype) {
    case DType::kFloat64: std::memcpy(at, &value, sizeof value); return;
    case DType::kFloat32: {
      const auto narrow = static_cast<float>(value);
      std::memcpy(at, &narrow, sizeof narrow);
      return;
    }
    case DType::kFloat16: return put(at, half_bits(value, 10, 15), 2);
    case DType::kBFloat16: return put(at, half_bits(value, 7, 127), 2);
    default: return;
  }
}

/// A whole number; integers keep its low bits.
void put_whole(DType dtype, std::byte* at, std::int64_t value) noexcept {
  if (is_floating(dtype)) return put_real(dtype, at, static_cast<double>(value));
  if (dtype == DType::kBool) value = value != 0 ? 1 : 0;
  put(at, static_cast<std::uint64_t>(value), size_of(dtype));
}

/// What an integer of this type keeps of `value`.
std::int64_t wrapped(DType dtype, std::int64_t value) noexcept {
  switch (dtype) {
    case DType::kInt8: return static_cast<std::int8_t>(value);
    case DType::kUInt8: return static_cast<std::uint8_t>(value);
    case DType::kInt16: return static_cast<std::int16_t>(value);
    case DType::kInt32: return static_cast<std::int32_t>(value);
    default: return value;
  }
}

/// The closed forms for one element, whose random bits are `h`, over `n` ranks.
struct Element {
  std::uint64_t h;
  std::int64_t n;

  // Sums: factor of the element times weight of the rank. Weights differ, so a rank counted twice in another's place shows.
  static constexpr std::int64_t kWeights = 61;  // x 4 is at most 244: exact in bfloat16
  [[nodiscard]] std::int64_t factor() const { return 1 + static_cast<std::int64_t>(h % 4); }
  [[nodiscard]] std::int64_t summand(std::int64_t rank) const { return factor() * (1 + rank % kWeights); }
  [[nodiscard]] std::int64_t sum() const {
    const std::int64_t rest = n % kWeights;
    return factor() * (n / kWeights * (kWeights * (kWeights + 1) / 2) + rest * (rest + 1) / 2);
  }

  // Products: every 16th rank, from one that the element chooses, brings a 2, and so for -1.
  [[nodiscard]] std::int64_t twice() const { return static_cast<std::int64_t>(h % 16); }
  [[nodiscard]] std::int64_t negative() const { return static_cast<std::int64_t>(h / 16 % 16); }
  [[nodiscard]] std::int64_t multiplier(std::int64_t rank) const {
    return (rank % 16 == twice() ? 2 : 1) * (rank % 16 == negative() ? -1 : 1);
  }
  [[nodiscard]] std::int64_t ranks_at(std::int64_t place) const { return (n - place + 15) / 16; }

  // Extremes: a base plus a number that goes round with the rank, so each rank holds the extreme somewhere.
  static constexpr std::int64_t kTurn = 64;
  [[nodiscard]] std::int64_t turn() const { return std::min(n, kTurn); }
  [[nodiscard]] std::int64_t base() const { return static_cast<std::int64_t>(h % 50); }
  [[nodiscard]] std::int64_t candidate(std::int64_t rank) const {
    return base() + (rank + static_cast<std::int64_t>(h / 64 % kTurn)) % turn();
  }

  // Bits: each rank flips one bit of a common word, the next rank the next bit.
  [[nodiscard]] std::uint64_t flipped(std::int64_t rank, int width) const {
    return h ^ (std::uint64_t{1} << ((h / 3 + static_cast<std::uint64_t>(rank)) % static_cast<std::uint64_t>(width)));
  }
  /// `ranks` neighbouring bits, from the one that rank 0 flips, round the word.
  [[nodiscard]] std::uint64_t neighbours(std::int64_t ranks, int width) const {
    const std::uint64_t all = width == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1;
    if (ranks >= width) return all;
    const std::uint64_t low = (std::uint64_t{1} << ranks) - 1;
    const auto shift = static_cast<int>(h / 3 % static_cast<std::uint64_t>(width));
    return shift == 0 ? low : ((low << shift) | (low >> (width - shift))) & all;
  }

  // Truth values: one rank alone is true, or none, or all.
  [[nodiscard]] std::int64_t chosen() const { return static_cast<std::int64_t>(h % static_cast<std::uint64_t>(n + 2)); }
  [[nodiscard]] bool truth(std::int64_t rank) const { return chosen() == rank || chosen() == n + 1; }
};

Element element(std::size_t i, int ranks) noexcept { return {mix(i), ranks}; }

void put_bool_result(std::byte* at, const Element& e, Reduction redop) noexcept {
  const bool all = e.chosen() == e.n + 1 || (e.n == 1 && e.chosen() == 0);
  const bool any = e.chosen() != e.n;
  const bool odd = e.chosen() < e.n || (e.chosen() == e.n + 1 && e.n % 2 == 1);
  const bool conjunction = redop == Reduction::kProduct || redop == Reduction::kMin || redop == Reduction::kBitAnd;
  put(at, redop == Reduction::kBitXor ? odd : conjunction ? all : any, 1);
}

void put_product(DType dtype, std::byte* at, const Element& e) noexcept {
  const std::int64_t exponent = e.ranks_at(e.twice());
  const bool negative = e.ranks_at(e.negative()) % 2 == 1;
  if (is_floating(dtype)) return put_real(dtype, at, std::ldexp(negative ? -1.0 : 1.0, static_cast<int>(exponent)));
  const std::uint64_t magnitude = exponent < 64 ? std::uint64_t{1} << exponent : 0;
  put(at, negative ? 0 - magnitude : magnitude, size_of(dtype));
}

void put_average(DType dtype, std::byte* at, const Element& e) noexcept {
  if (!is_floating(dtype)) return put_whole(dtype, at, wrapped(dtype, e.sum()) / e.n);
  const double average = static_cast<double>(e.sum()) / static_cast<double>(e.n);
  // 16-bit types are divided in float32.
  put_real(dtype, at, dtype == DType::kFloat64 ? average : static_cast<double>(static_cast<float>(average)));
}

void put_bits(DType dtype, std::byte* at, const Element& e, Reduction redop) noexcept {
  const int width = static_cast<int>(8 * size_of(dtype));
  std::uint64_t bits = e.flipped(0, width);
  if (redop == Reduction::kBitXor) {
    // A whole turn flips every bit once.
    const std::uint64_t turns = e.n / width % 2 == 1 ? ~std::uint64_t{0} : 0;
    bits = (e.n % 2 == 1 ? e.h : 0) ^ turns ^ e.neighbours(e.n % width, width);
  } else if (e.n > 1) {
    const std::uint64_t touched = e.neighbours(e.n, width);
    bits = redop == Reduction::kBitOr ? e.h | touched : e.h & ~touched;
  }
  put(at, bits, size_of(dtype));
}

}  // namespace

Period moved_data(DType dtype, int source, int destination) {
  const std::size_t bytes = size_of(dtype);
  Period period(kPeriod * bytes);
  const std::uint64_t key = mix((static_cast<std::uint64_t>(source) << 32) + static_cast<std::uint64_t>(destination));
  for (std::size_t i = 0; i < kPeriod; ++i) {
    const std::uint64_t bits = mix(key + i);
    put(&period[i * bytes], dtype == DType::kBool ? bits & 1 : bits, bytes);
  }
  return period;
}

Period reduction_input(DType dtype, Reduction redop, int ranks, int rank) {
  const std::size_t bytes = size_of(dtype);
  Period period(kPeriod * bytes);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    const Element e = element(i, ranks);
    std::byte* const at = &period[i * bytes];
    if (dtype == DType::kBool) {
      put(at, e.truth(rank), 1);
      continue;
    }
    switch (redop) {
      case Reduction::kSum:
      case Reduction::kAverage: put_whole(dtype, at, e.summand(rank)); break;
      case Reduction::kProduct: put_whole(dtype, at, e.multiplier(rank)); break;
      case Reduction::kMin:
      case Reduction::kMax: put_whole(dtype, at, e.candidate(rank)); break;
      case Reduction::kBitAnd:
      case Reduction::kBitOr:
      case Reduction::kBitXor: put(at, e.flipped(rank, static_cast<int>(8 * bytes)), bytes); break;
    }
  }
  return period;
}

Period reduction_result(DType dtype, Reduction redop, int ranks) {
  const std::size_t bytes = size_of(dtype);
  Period period(kPeriod * bytes);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    const Element e = element(i, ranks);
    std::byte* const at = &period[i * bytes];
    if (dtype == DType::kBool) {
      put_bool_result(at, e, redop);
      continue;
    }
    switch (redop) {
      case Reduction::kSum: put_whole(dtype, at, e.sum()); break;
      case Reduction::kAverage: put_average(dtype, at, e); break;
      case Reduction::kProduct: put_product(dtype, at, e); break;
      case Reduction::kMin: put_whole(dtype, at, e.base()); break;
      case Reduction::kMax: put_whole(dtype, at, e.base() + e.turn() - 1); break;
      case Reduction::kBitAnd:
      case Reduction::kBitOr:
      case Reduction::kBitXor: put_bits(dtype, at, e, redop); break;
    }
  }
  return period;
}

void fill(std::byte* out, const Period& period, std::size_t first, std::size_t count) {
  const std::size_t bytes = period.size() / kPeriod;
  for (std::size_t done = 0; done < count;) {
    const std::size_t at = (first + done) % kPeriod;
    const std::size_t length = std::min(count - done, kPeriod - at);
    std::memcpy(out + done * bytes, &period[at * bytes], length * bytes);
    done += length;
  }
}

std::size_t count_wrong(const std::byte* data, const Period& period, std::size_t first, std::size_t count) {
  const std::size_t bytes = period.size() / kPeriod;
  std::size_t wrong = 0;
  for (std::size_t done = 0; done < count;) {
    const std::size_t at = (first + done) % kPeriod;
    const std::size_t length = std::min(count - done, kPeriod - at);
    const std::byte* const expected = &period[at * bytes];
    const std::byte* const found = data + done * bytes;
    if (std::memcmp(found, expected, length * bytes) != 0) {
      for (std::size_t i = 0; i < length; ++i) wrong += std::memcmp(found + i * bytes, expected + i * bytes, bytes) != 0 ? 1 : 0;
    }
    done += length;
  }
  return wrong;
}

}  // namespace wirewise::bench
