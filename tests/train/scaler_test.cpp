#include "wirewise/train/loop_scaler.h"

#include <gtest/gtest.h>

namespace wirewise {
namespace {

TrainConfig half() {
  TrainConfig config;
  config.strategy.param_dtype = DType::kFloat16;
  config.loss_scale = 64;
  config.loss_scale_window = 3;
  config.max_skipped = 4;
  return config;
}

TEST(LossScaler, HalvesOnOverflowAndDoublesAfterAWindowOfCleanSteps) {
  LossScaler scaler(half());
  EXPECT_EQ(scaler.scale(), 64);
  scaler.overflow("x");
  EXPECT_EQ(scaler.scale(), 32);
  scaler.good();
  scaler.good();
  EXPECT_EQ(scaler.scale(), 32);
  scaler.good();
  EXPECT_EQ(scaler.scale(), 64);
}

TEST(LossScaler, StopsAfterTooManyOverflowsInARowAndNamesTheTensor) {
  LossScaler scaler(half());
  for (int i = 0; i < 3; ++i) scaler.overflow("x");
  scaler.good();  // the row is broken
  for (int i = 0; i < 3; ++i) scaler.overflow("x");
  try {
    scaler.overflow("lm_head.weight on rank 1");
    FAIL() << "the run would learn nothing for ever";
  } catch (const Error& error) {
    EXPECT_NE(error.sentence().find("lm_head.weight on rank 1"), std::string::npos);
    EXPECT_EQ(error.kind(), ErrorKind::kFailed);
  }
}

TEST(LossScaler, GoesOnFromACheckpointAsIfNeverStopped) {
  LossScaler first(half());
  first.overflow("x");
  first.good();
  first.good();
  TrainState state;
  first.save(state);
  LossScaler second(half());
  second.load(state);
  first.good();
  second.good();
  EXPECT_EQ(first.scale(), second.scale());
  EXPECT_EQ(second.scale(), 64);
}

TEST(LossScaler, EveryScaleReadsBackToTheBit) {
  for (const double scale : {std::ldexp(1.0, -14), std::ldexp(1.0, -9), 0.1, 1e-9, 65536.0, 12345.678901234567}) {
    TrainConfig config = half();
    config.loss_scale = scale;
    TrainState state;
    LossScaler(config).save(state);
    LossScaler second(half());
    second.load(state);
    EXPECT_EQ(second.scale(), scale);
  }
}

TEST(LossScaler, IsOffWithoutFloat16) {
  TrainConfig config;
  config.strategy.param_dtype = DType::kBFloat16;
  const LossScaler scaler(config);
  EXPECT_FALSE(scaler.enabled());
  EXPECT_EQ(scaler.scale(), 1);
}

}  // namespace
}  // namespace wirewise
