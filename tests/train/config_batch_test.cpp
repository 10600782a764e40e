// micro_batch x accumulation x data ranks = global_batch, as tables: what is derived, and what a refusal offers instead.
#include <gtest/gtest.h>

#include <random>

#include "train/temporary_folder.h"
#include "wirewise/base/error.h"
#include "wirewise/train/config.h"

namespace wirewise::testing {
namespace {

TrainConfig batch(std::int64_t micro, std::int64_t accumulation, std::int64_t global) {
  TrainConfig config;
  config.micro_batch = micro;
  config.accumulation = accumulation;
  config.global_batch = global;
  return config;
}

struct Derived {
  std::int64_t micro, accumulation, global;  // given; 0: not
  int ranks;
  std::int64_t micro_out, accumulation_out, global_out;
};

TEST(Batch, AnyTwoGiveTheThird) {
  const Derived table[] = {
      {2, 18, 0, 7, 2, 18, 252},   {2, 0, 252, 7, 2, 18, 252}, {0, 18, 252, 7, 2, 18, 252}, {2, 18, 252, 7, 2, 18, 252},
      {4, 8, 256, 8, 4, 8, 256},   {8, 0, 256, 8, 8, 4, 256},  {2, 0, 8, 4, 2, 1, 8},       {0, 0, 0, 3, 1, 1, 3},
      {0, 0, 12, 3, 1, 4, 12},     {5, 0, 0, 2, 5, 1, 10},     {0, 5, 0, 2, 1, 5, 10},      {1, 0, 1, 1, 1, 1, 1},
  };
  for (const auto& row : table) {
    TrainConfig config = batch(row.micro, row.accumulation, row.global);
    for (int again = 0; again < 2; ++again) {
      resolve_batch(config, row.ranks);
      EXPECT_EQ(config.micro_batch, row.micro_out);
      EXPECT_EQ(config.accumulation, row.accumulation_out);
      EXPECT_EQ(config.global_batch, row.global_out);
      EXPECT_EQ(config.strategy.accumulation, row.accumulation_out);
    }
  }
}

struct Refused {
  std::int64_t micro, accumulation, global;
  int ranks;
  std::string message;
};

TEST(Batch, WhatDoesNotComeOutNamesTheLegalValues) {
  const Refused table[] = {
      {2, 0, 256, 7,
       "train.global_batch 256 is not a multiple of micro_batch 2 x 7 data ranks = 14. Legal: train.global_batch 252 or 266, or data ranks "
       "1, 2, 4, 8, 16, 32, 64 or 128."},
      {4, 8, 256, 1,
       "train.global_batch 256 differs from micro_batch 4 x accumulation 8 x 1 data rank = 32. Leave one of the three out, or set "
       "train.global_batch 32, train.accumulation 64, train.micro_batch 32, or data ranks 8."},
      {8, 1, 256, 8,
       "train.global_batch 256 differs from micro_batch 8 x accumulation 1 x 8 data ranks = 64. Leave one of the three out, or set "
       "train.global_batch 64, train.accumulation 4, train.micro_batch 32, or data ranks 32."},
      {2, 1, 8, 1,
       "train.global_batch 8 differs from micro_batch 2 x accumulation 1 x 1 data rank = 2. Leave one of the three out, or set "
       "train.global_batch 2, train.accumulation 4, train.micro_batch 8, or data ranks 4."},
      {16, 0, 8, 2, "train.micro_batch 16 is larger than train.global_batch 8. Legal: train.micro_batch 1, 2 or 4."},
      {0, 3, 8, 2,
       "train.global_batch 8 is not a multiple of accumulation 3 x 2 data ranks = 6. Legal: train.global_batch 6 or 12, or "
       "train.accumulation 1, 2 or 4."},
      {1, 0, 3, 4, "train.global_batch 3 is not a multiple of micro_batch 1 x 4 data ranks = 4. Legal: train.global_batch 4, or data ranks 1 or 3."},
      {1 << 20, 1 << 20, 0, 2, "above 2147483648 samples a step"},
  };
  for (const auto& row : table) {
    TrainConfig config = batch(row.micro, row.accumulation, row.global);
    const std::string message = message_of([&] { resolve_batch(config, row.ranks); });
    EXPECT_NE(message.find(row.message), std::string::npos) << message << "\nexpected: " << row.message;
  }
}

TEST(Batch, EveryAcceptedCombinationMultipliesOutAndEveryRefusalHolds) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 3000; ++round) {
    const auto draw = [&] { return random() % 3 == 0 ? std::int64_t{0} : static_cast<std::int64_t>(1 + random() % 12); };
    TrainConfig config = batch(draw(), draw(), random() % 3 == 0 ? 0 : static_cast<std::int64_t>(1 + random() % 200));
    const TrainConfig given = config;
    const int ranks = static_cast<int>(1 + random() % 9);
    bool accepted = true;
    try {
      resolve_batch(config, ranks);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_FALSE(error.remedy().empty());
      accepted = false;
    }
    const std::int64_t micro = given.micro_batch > 0 ? given.micro_batch : 1;
    const std::int64_t accumulation = given.accumulation > 0 ? given.accumulation : 1;
    const bool all = given.micro_batch > 0 && given.accumulation > 0;
    const bool possible = given.global_batch == 0 || (all ? micro * accumulation * ranks == given.global_batch
                                                          : given.global_batch % (micro * accumulation * ranks) == 0);
    EXPECT_EQ(accepted, possible);
    if (accepted) {
      EXPECT_EQ(config.micro_batch * config.accumulation * ranks, config.global_batch);
    }
  }
}

}  // namespace
}  // namespace wirewise::testing
