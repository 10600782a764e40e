#include "wirewise/base/philox.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace wirewise {
namespace {

constexpr std::uint32_t kMultiplier0 = 0xD2511F53;
constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9;  // the golden ratio's fraction
constexpr std::uint32_t kWeyl1 = 0xBB67AE85;  // the square root of three's

constexpr std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
constexpr std::uint32_t high(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32U); }

PhiloxBlock block_of(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) noexcept {
  return philox4x32_10({low(index), high(index), low(stream), high(stream)}, {low(seed), high(seed)});
}

/// Four normal numbers from one block: two pairs of Box-Muller. The radius takes (0, 1], so its logarithm is finite.
std::array<double, 4> normals(const PhiloxBlock& bits) {
  constexpr double kUnit = 0x1p-32;
  std::array<double, 4> result{};
  for (std::size_t pair = 0; pair < 4; pair += 2) {
    const double radius = std::sqrt(-2.0 * std::log((bits[pair] + 1.0) * kUnit));
    const double angle = 2.0 * std::numbers::pi * (bits[pair + 1] * kUnit);
    result[pair] = radius * std::cos(angle);
    result[pair + 1] = radius * std::sin(angle);
  }
  return result;
}

}  // namespace

PhiloxBlock philox4x32_10(PhiloxBlock counter, PhiloxKey key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{kMultiplier0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kMultiplier1} * counter[2];
    counter = {high(product1) ^ counter[1] ^ key[0], low(product1), high(product0) ^ counter[3] ^ key[1], low(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

std::uint64_t stream_of(std::string_view name) noexcept { return XXH64(name.data(), name.size(), 0); }

std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) noexcept {
  const PhiloxBlock block = block_of(seed, stream, index);
  return (std::uint64_t{block[1]} << 32U) | block[0];
}

double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) noexcept {
  return static_cast<double>(random_bits(seed, stream, index) >> 11U) * 0x1p-53;
}

void fill_normal(float* out, std::uint64_t first, std::size_t count, std::uint64_t seed, std::string_view name, double std) {
  const std::uint64_t stream = stream_of(name);
  const std::uint64_t end = first + count;
  for (std::uint64_t block = first / 4; block * 4 < end; ++block) {
    const auto values = normals(block_of(seed, stream, block));
    const std::uint64_t begin = std::max(first, block * 4);
    const std::uint64_t stop = std::min(end, block * 4 + 4);
    for (std::uint64_t element = begin; element < stop; ++element) {
      out[element - first] = static_cast<float>(std * values[element - block * 4]);
    }
  }
}

}  // namespace wirewise
