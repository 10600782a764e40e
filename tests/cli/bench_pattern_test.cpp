// Data with a known result: closed forms equal the reductions, and what is wrong is counted.
#include <gtest/gtest.h>

#include <vector>

#include "comm/numbers.h"
#include "wirewise/cli/bench_operation.h"
#include "wirewise/cli/bench_pattern.h"

namespace wirewise::bench {
namespace {

TEST(BenchPattern, ClosedFormsEqualCombiningTheInputs) {
  for (const int ranks : {1, 2, 3, 5, 8, 16, 17, 33, 64, 70}) {
    for (const DType dtype : testing::kAllTypes) {
      for (const Reduction redop : testing::kAllReductions) {
        ASSERT_EQ(is_defined(dtype, redop), testing::exists(dtype, redop));
        if (!is_defined(dtype, redop)) continue;
        // int64 goes through doubles below, so its bit patterns would lose digits; int32 has the same code.
        if (dtype == DType::kInt64 && testing::is_bitwise(redop)) continue;
        std::vector<Period> inputs;
        for (int rank = 0; rank < ranks; ++rank) inputs.push_back(reduction_input(dtype, redop, ranks, rank));
        const Period result = reduction_result(dtype, redop, ranks);
        ASSERT_EQ(result.size(), kPeriod * size_of(dtype));
        for (std::size_t i = 0; i < kPeriod; i += 7) {
          std::vector<double> values;
          for (const Period& input : inputs) values.push_back(testing::read_number(dtype, input.data(), i));
          const double expected = testing::round_to(dtype, testing::reduced_number(dtype, redop, values));
          ASSERT_EQ(testing::read_number(dtype, result.data(), i), expected)
              << name_of(dtype) << ' ' << name_of(redop) << " of " << ranks << " ranks, element " << i;
        }
      }
    }
  }
}

TEST(BenchPattern, SixtyFourBitWordsCombineBitByBit) {
  for (const int ranks : {1, 2, 3, 63, 64, 65, 130}) {
    for (const Reduction redop : {Reduction::kBitAnd, Reduction::kBitOr, Reduction::kBitXor}) {
      std::vector<std::uint64_t> expected(kPeriod, redop == Reduction::kBitAnd ? ~std::uint64_t{0} : 0);
      for (int rank = 0; rank < ranks; ++rank) {
        const Period input = reduction_input(DType::kInt64, redop, ranks, rank);
        for (std::size_t i = 0; i < kPeriod; ++i) {
          const auto word = testing::read_as<std::uint64_t>(&input[8 * i]);
          if (redop == Reduction::kBitAnd) expected[i] &= word;
          if (redop == Reduction::kBitOr) expected[i] |= word;
          if (redop == Reduction::kBitXor) expected[i] ^= word;
        }
      }
      const Period result = reduction_result(DType::kInt64, redop, ranks);
      for (std::size_t i = 0; i < kPeriod; ++i) ASSERT_EQ(testing::read_as<std::uint64_t>(&result[8 * i]), expected[i]) << name_of(redop) << ranks << ' ' << i;
    }
  }
}

TEST(BenchPattern, ARankCountedTwiceInAnothersPlaceIsSeen) {
  for (const Reduction redop : {Reduction::kSum, Reduction::kProduct, Reduction::kMax, Reduction::kMin, Reduction::kBitXor}) {
    const int ranks = 4;
    std::size_t differing = 0;
    const Period result = reduction_result(DType::kInt32, redop, ranks);
    std::vector<Period> inputs;
    for (const int rank : {0, 1, 2, 2}) inputs.push_back(reduction_input(DType::kInt32, redop, ranks, rank));
    for (std::size_t i = 0; i < kPeriod; ++i) {
      std::vector<double> values;
      for (const Period& input : inputs) values.push_back(testing::read_number(DType::kInt32, input.data(), i));
      differing += testing::read_number(DType::kInt32, result.data(), i) != testing::reduced_number(DType::kInt32, redop, values) ? 1 : 0;
    }
    EXPECT_GT(differing, kPeriod / 50) << name_of(redop);
  }
}

TEST(BenchPattern, EveryBrokenElementIsCountedOnce) {
  for (const DType dtype : testing::kAllTypes) {
    const Period period = moved_data(dtype, 3, 1);
    const std::size_t count = 2 * kPeriod + 100;
    std::vector<std::byte> data(count * size_of(dtype));
    fill(data.data(), period, 17, count);
    EXPECT_EQ(count_wrong(data.data(), period, 17, count), 0U);
    for (const std::size_t i : {std::size_t{0}, std::size_t{5}, kPeriod, count - 1}) data[(i + 1) * size_of(dtype) - 1] ^= std::byte{1};
    EXPECT_EQ(count_wrong(data.data(), period, 17, count), 4U) << name_of(dtype);
    if (dtype != DType::kBool) {  // every second truth value is the same anyway
      EXPECT_GT(count_wrong(data.data(), period, 18, count), count / 2) << name_of(dtype);
      EXPECT_GT(count_wrong(data.data(), moved_data(dtype, 1, 3), 17, count), count / 2) << name_of(dtype);
    }
  }
}

}  // namespace
}  // namespace wirewise::bench
