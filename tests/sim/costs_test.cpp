// What an op costs: alpha and beta, rates, or what was measured.
#include <gtest/gtest.h>

#include "sim/hand_built.h"
#include "wirewise/base/error.h"

namespace wirewise {
namespace {

Seconds cost_of(const Op& op, int ranks, const MeasuredCosts& measured = {}) {
  return price(one_role({op}, ranks), kSharedCore, measured).step;
}

TEST(Costs, CollectivesFollowAlphaAndBeta) {
  for (int n : {2, 3, 8}) {
    const double factor = (n - 1.0) / n, bytes = 1200;
    const auto of = [&](OpKind kind) { return cost_of(collective(kind, Lane::kReduce, 1200), n); };
    EXPECT_DOUBLE_EQ(of(OpKind::kGather), kAlpha + factor * bytes / kBeta);
    EXPECT_DOUBLE_EQ(of(OpKind::kReduceScatter), kAlpha + factor * bytes / kBeta);
    EXPECT_DOUBLE_EQ(of(OpKind::kAllReduce), kAlpha + 2 * factor * bytes / kBeta);
    EXPECT_DOUBLE_EQ(of(OpKind::kTokenCount), kAlpha + 2 * factor * bytes / kBeta);
    EXPECT_DOUBLE_EQ(of(OpKind::kBarrier), kAlpha);
    // Clipping reads the gradients and all-reduces a few numbers.
    EXPECT_DOUBLE_EQ(of(OpKind::kClip), kAlpha + bytes / kRoundRates.memory);
  }
}

TEST(Costs, AllReduceIsReduceScatterAndGatherButForOneAlpha) {
  for (int n : {2, 5, 16}) {
    const auto of = [&](OpKind kind) { return cost_of(collective(kind, Lane::kReduce, 6400), n); };
    EXPECT_DOUBLE_EQ(of(OpKind::kAllReduce) + kAlpha, of(OpKind::kReduceScatter) + of(OpKind::kGather));
  }
}

TEST(Costs, OneRankCommunicatesForFree) {
  for (auto kind : {OpKind::kGather, OpKind::kReduceScatter, OpKind::kAllReduce, OpKind::kReport, OpKind::kBarrier}) {
    EXPECT_EQ(cost_of(collective(kind, Lane::kReduce, 1 << 20), 1), 0);
  }
}

TEST(Costs, TheSlowestLinkOfTheGroupDecides) {
  Wiring wiring = round_wiring(4);
  for (auto& link : wiring.links) {
    if (link.from == wiring.rank_device[2]) link.beta = kBeta / 4;
    if (link.from == wiring.rank_device[1]) link.alpha = 3 * kAlpha;
  }
  const auto schedule = one_role({collective(OpKind::kGather, Lane::kGather, 400)}, 4);
  const auto report = simulate(schedule, two_segment_model(), wiring, kRoundRates, {}, kSharedCore);
  EXPECT_DOUBLE_EQ(report.step, 3 * kAlpha + 300 / (kBeta / 4));
}

TEST(Costs, ComputeTakesTheLongerOfFlopsAndBytes) {
  Op op = compute(2);
  op.bytes = 1000000;  // 1 s of memory
  EXPECT_DOUBLE_EQ(cost_of(op, 1), 2);
  op.bytes = 5000000;
  EXPECT_DOUBLE_EQ(cost_of(op, 1), 5);
}

TEST(Costs, AStepStreamsGradientMasterMomentsAndWeights) {
  // AdamW over 1,000 float32 gradients, bfloat16 weights: 4 read, 3 x 4 read and written, 2 written.
  Op step;
  step.kind = OpKind::kStep;
  step.bytes = 4000;
  step.writes = {0, 1, 2, 3};
  Schedule schedule = one_role({step}, 1);
  const auto buffer = [](BufferRole role, DType dtype) {
    BufferInfo info;
    info.role = role;
    info.dtype = dtype;
    return info;
  };
  schedule.programs[0].buffers = {buffer(BufferRole::kParam, DType::kBFloat16), buffer(BufferRole::kMaster, DType::kFloat32),
                                  buffer(BufferRole::kExpAvg, DType::kFloat32), buffer(BufferRole::kExpAvgSq, DType::kFloat32)};
  EXPECT_DOUBLE_EQ(price(schedule, kSharedCore).step, 1000 * (4 + 3 * 8 + 2) / kRoundRates.memory);
  // Where all ranks share whole parameters, the rank's shard is a part of them and no further traffic.
  schedule.programs[0].buffers.push_back(buffer(BufferRole::kFullParam, DType::kBFloat16));
  schedule.programs[0].buffers[4].aliased = true;
  schedule.programs[0].ops[0].writes = {0, 1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(price(schedule, kSharedCore).step, 1000 * (4 + 3 * 8 + 2) / kRoundRates.memory);
  // float32 weights are their own master: read and written.
  schedule.programs[0].buffers[0].dtype = DType::kFloat32;
  schedule.programs[0].ops[0].writes = {0, 2, 3};
  EXPECT_DOUBLE_EQ(price(schedule, kSharedCore).step, 1000 * (4 + 3 * 8) / kRoundRates.memory);
}

TEST(Costs, MeasuredOpsReplaceDerivedOnes) {
  MeasuredCosts measured;
  measured.compute[{OpKind::kForward, UnitKind::kBlock, 0}] = 0.25;
  measured.by_bytes[OpKind::kGather] = {2, 0.001};
  EXPECT_DOUBLE_EQ(cost_of(compute(7), 2, measured), 0.25);
  EXPECT_DOUBLE_EQ(cost_of(collective(OpKind::kGather, Lane::kGather, 500), 2, measured), 2.5);
  // What wasn't measured is derived: another segment, another kind.
  Op other = compute(7);
  other.segment = 1;
  EXPECT_DOUBLE_EQ(cost_of(other, 2, measured), 7);
  EXPECT_DOUBLE_EQ(cost_of(collective(OpKind::kReduceScatter, Lane::kReduce, 100), 2, measured), kAlpha + 0.5);
}

TEST(Costs, ARecomputeIsTheForwardOfItsSegmentsUnlessMeasured) {
  Op recompute = compute(4);
  recompute.kind = OpKind::kRecompute;
  recompute.segment = -1;
  EXPECT_DOUBLE_EQ(cost_of(recompute, 1), 4);  // 1 + 3 GFLOP
  MeasuredCosts measured;
  measured.compute[{OpKind::kForward, UnitKind::kBlock, 1}] = 10;
  EXPECT_DOUBLE_EQ(cost_of(recompute, 1, measured), 11);
  measured.compute[{OpKind::kRecompute, UnitKind::kBlock, -1}] = 5;
  EXPECT_DOUBLE_EQ(cost_of(recompute, 1, measured), 5);
}

TEST(Costs, UtilisationIsOneWhenAllThatRunsIsTheModelAtFullRate) {
  // Forward and backward of both segments: 4 + 8 GFLOP, at 1 GFLOP/s.
  Op backward = compute(8);
  backward.kind = OpKind::kBackward;
  for (int ranks : {1, 4}) {
    EXPECT_DOUBLE_EQ(price(one_role({compute(4), backward}, ranks), kSharedCore).mfu, 1);
    // Idle time and recompute earn nothing.
    EXPECT_DOUBLE_EQ(price(one_role({compute(4), compute(4), backward}, ranks), kSharedCore).mfu, 12.0 / 16);
  }
  // A forward pass alone is worth its forward.
  EXPECT_DOUBLE_EQ(price(one_role({compute(4)}, 2), kSharedCore).mfu, 1);
}

TEST(Costs, WiringsAndRatesThatCannotPriceAreRefused) {
  const auto schedule = one_role({gather(1)}, 4);
  const Model model = two_segment_model();
  const auto refused = [&](const Wiring& wiring, const DeviceRates& rates, const std::string& named) {
    try {
      (void)simulate(schedule, model, wiring, rates, {}, kSharedCore);
      ADD_FAILURE() << "accepted: " << named;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_NE(error.sentence().find(named), std::string::npos) << error.what();
    }
  };
  refused(round_wiring(2), kRoundRates, "2 ranks");
  refused(round_wiring(4), {0, 1, Provenance::kAssumed}, "FLOP/s");
  refused(round_wiring(4), {1, -1, Provenance::kAssumed}, "memory bandwidth");
  Wiring cut = round_wiring(4);
  std::erase_if(cut.links, [&](const Link& link) { return link.from == cut.rank_device[3]; });
  refused(cut, kRoundRates, "rank 3's device cpu3 has no link");
  Wiring dead = round_wiring(4);
  dead.links[0].beta = 0;
  refused(dead, kRoundRates, "link bandwidth");
  Wiring wrong = round_wiring(4);
  wrong.rank_device[1] = 99;
  refused(wrong, kRoundRates, "device 99");
}

}  // namespace
}  // namespace wirewise
