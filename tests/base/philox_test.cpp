// The counter-based generator against its authors' known answers, and the distributions made of it.
#include "wirewise/base/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace wirewise {
namespace {

// The philox4x32-10 lines of kat_vectors in Random123, the authors' distribution.
TEST(Philox, GivesTheAuthorsKnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(FillNormal, AnySlicingGivesTheSameBits) {
  constexpr std::uint64_t kFirst = (std::uint64_t{1} << 33U) + 3;  // beyond 32 bits, and in the middle of a block
  constexpr std::size_t kCount = 1001;
  std::vector<float> whole(kCount);
  fill_normal(whole.data(), kFirst, kCount, 42, "transformer.h.3.attn.c_attn.weight", 0.02);
  const unsigned seed = 7;
  std::mt19937 random(seed);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<float> sliced(kCount, -1.0F);
    for (std::size_t at = 0; at < kCount;) {
      const std::size_t length = std::min<std::size_t>(random() % 37, kCount - at);
      fill_normal(sliced.data() + at, kFirst + at, length, 42, "transformer.h.3.attn.c_attn.weight", 0.02);
      at += length;
    }
    ASSERT_EQ(std::memcmp(whole.data(), sliced.data(), kCount * sizeof(float)), 0) << "trial " << trial << " seed " << seed;
  }
}

TEST(FillNormal, HasTheMomentsAndTailsOfANormalDistribution) {
  constexpr std::size_t kCount = 1000000;
  std::vector<float> values(kCount);
  fill_normal(values.data(), 0, kCount, 1, "w", 1.0);
  double sum = 0;
  double squares = 0;
  double fourths = 0;
  std::size_t beyond_two = 0;
  double neighbours = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const double x = values[i];
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
    beyond_two += std::abs(x) > 2 ? 1 : 0;
    if (i > 0) neighbours += x * values[i - 1];
  }
  const double n = kCount;
  // Five standard errors of each estimate; the draw is fixed, so this never flickers.
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(fourths / n, 3, 5 * std::sqrt(96 / n));
  EXPECT_NEAR(static_cast<double>(beyond_two) / n, 0.0455003, 5 * std::sqrt(0.0455 / n));
  EXPECT_NEAR(neighbours / n, 0, 5 / std::sqrt(n));
}

TEST(FillNormal, SeedNameAndElementEachChangeTheStream) {
  const auto draw = [](std::uint64_t seed, const char* name, std::uint64_t first) {
    float value = 0;
    fill_normal(&value, first, 1, seed, name, 1.0);
    return value;
  };
  const std::set<float> distinct{
      draw(1, "a", 0),          draw(2, "a", 0), draw(1, "b", 0), draw(1, "a", 1), draw(1, "a", std::uint64_t{1} << 34U),
      draw(1ULL << 32U, "a", 0)};
  EXPECT_EQ(distinct.size(), 6U);
}

TEST(Uniform, FillsTheUnitIntervalEvenly) {
  std::vector<int> histogram(16);
  constexpr int kCount = 160000;
  for (int i = 0; i < kCount; ++i) {
    const double value = uniform(3, stream_of("dropout"), static_cast<std::uint64_t>(i));
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    ++histogram[static_cast<std::size_t>(value * 16)];
  }
  double chi_squared = 0;
  for (const int count : histogram) chi_squared += (count - kCount / 16.0) * (count - kCount / 16.0) / (kCount / 16.0);
  EXPECT_LT(chi_squared, 37.7);  // 0.1 % of draws exceed this with 15 degrees of freedom
}

}  // namespace
}  // namespace wirewise
