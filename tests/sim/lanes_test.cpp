// The execution rule: what runs side by side, what waits, and what no compute hides.
#include <gtest/gtest.h>

#include "sim/hand_built.h"
#include "wirewise/base/error.h"

namespace wirewise {
namespace {

void expect_spans(const SimReport& report, const std::vector<std::pair<Seconds, Seconds>>& spans) {
  ASSERT_EQ(report.ops.size(), spans.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    EXPECT_DOUBLE_EQ(report.ops[i].start, spans[i].first) << "op " << i;
    EXPECT_DOUBLE_EQ(report.ops[i].end, spans[i].second) << "op " << i;
  }
}

TEST(Lanes, ASerialChainTakesTheSumOfItsOps) {
  const auto schedule = one_role({compute(1), compute(2), compute(4)}, 2);
  for (const auto& options : {kSharedCore, kOwnLanes}) {
    const auto report = price(schedule, options);
    expect_spans(report, {{0, 1}, {1, 3}, {3, 7}});
    EXPECT_DOUBLE_EQ(report.step, 7);
    EXPECT_DOUBLE_EQ(report.exposed_communication, 0);
  }
}

TEST(Lanes, IndependentLanesOverlapPerfectly) {
  const auto schedule = one_role({gather(2), compute(3)}, 2);
  const auto report = price(schedule, kOwnLanes);
  expect_spans(report, {{0, 2}, {0, 3}});
  EXPECT_DOUBLE_EQ(report.step, 3);
  EXPECT_DOUBLE_EQ(report.exposed_communication, 0);
}

TEST(Lanes, WhatOutlastsComputeIsExposed) {
  const auto report = price(one_role({gather(5), compute(3)}, 2), kOwnLanes);
  EXPECT_DOUBLE_EQ(report.step, 5);
  EXPECT_DOUBLE_EQ(report.exposed_communication, 2);
  EXPECT_DOUBLE_EQ(report.ops[0].exposed, 2);
}

TEST(Lanes, ADependencyAcrossLanesWaits) {
  // Gather, use, and the next gather under the first use.
  const auto schedule = one_role({gather(2), compute(3, {0}), gather(2), compute(3, {2})}, 2);
  const auto report = price(schedule, kOwnLanes);
  expect_spans(report, {{0, 2}, {2, 5}, {2, 4}, {5, 8}});
  EXPECT_DOUBLE_EQ(report.exposed_communication, 2);
}

TEST(Lanes, CommunicationInTwoLanesIsExposedOnce) {
  const Bytes bytes = 300;  // 0.5 + 300 / 2 / 100 = 2 s
  const auto schedule =
      one_role({collective(OpKind::kGather, Lane::kGather, bytes), collective(OpKind::kReduceScatter, Lane::kReduce, bytes)}, 2);
  const auto report = price(schedule, kOwnLanes);
  EXPECT_DOUBLE_EQ(report.step, 2);
  EXPECT_DOUBLE_EQ(report.exposed_communication, 2);
  EXPECT_DOUBLE_EQ(report.ops[0].exposed + report.ops[1].exposed, 4);
}

TEST(SharedCore, NothingOverlapsAndAllCommunicationIsExposed) {
  const auto report = price(one_role({gather(2), compute(3)}, 2), kSharedCore);
  EXPECT_DOUBLE_EQ(report.step, 5);
  EXPECT_DOUBLE_EQ(report.exposed_communication, 2);
}

TEST(SharedCore, ACollectiveTakesTheCoreWhereItIsFirstNeeded) {
  const auto report = price(one_role({gather(2), compute(3), compute(1, {0})}, 2), kSharedCore);
  expect_spans(report, {{3, 5}, {0, 3}, {5, 6}});
}

TEST(SharedCore, CollectivesIssuedBeforeInTheLaneCompleteFirst) {
  const auto report = price(one_role({gather(2), gather(1), compute(3), compute(1, {1}), compute(1, {0})}, 2), kSharedCore);
  expect_spans(report, {{3, 5}, {5, 6}, {0, 3}, {6, 7}, {7, 8}});
}

TEST(SharedCore, ALanesOrderHoldsForOpsThatAreNoCollectives) {
  Op free;
  free.kind = OpKind::kFree;
  free.lane = Lane::kGather;
  expect_spans(price(one_role({gather(2), compute(3), free, compute(1)}, 2), kSharedCore), {{3, 5}, {0, 3}, {5, 5}, {5, 6}});
}

TEST(SharedCore, WhatNobodyWaitsForStillBelongsToTheStep) {
  const auto report = price(one_role({gather(2), compute(3), gather(4)}, 2), kSharedCore);
  expect_spans(report, {{3, 5}, {0, 3}, {5, 9}});
  EXPECT_DOUBLE_EQ(report.step, 9);
}

/// Two ranks of one group in different roles: rank 0 computes `first` seconds before an all-reduce of 2 s, rank 1 `second`.
Schedule two_roles(Seconds first, Seconds second) {
  const Op reduce = collective(OpKind::kAllReduce, Lane::kReduce, 150, {0});  // 0.5 + 2 / 2 * 150 / 100
  Schedule schedule = one_role({compute(first), reduce, compute(1, {1})}, 2);
  schedule.programs[0].ranks = {0};
  schedule.programs.push_back(schedule.programs[0]);
  schedule.programs[1].role = "other";
  schedule.programs[1].ranks = {1};
  schedule.programs[1].ops[0] = compute(second);
  return schedule;
}

TEST(Lanes, ACollectiveStartsWhenTheLastRoleHasCome) {
  for (const auto& options : {kSharedCore, kOwnLanes}) {
    const auto second_late = price(two_roles(1, 4), options);
    expect_spans(second_late, {{0, 1}, {4, 6}, {6, 7}, {0, 4}, {4, 6}, {6, 7}});
    EXPECT_DOUBLE_EQ(second_late.step, 7);
    EXPECT_EQ(second_late.ops[3].program, 1);
    expect_spans(price(two_roles(4, 1), options), {{0, 4}, {4, 6}, {6, 7}, {0, 1}, {4, 6}, {6, 7}});
  }
}

TEST(Lanes, SumsAreThoseOfTheProgramThatEndsLast) {
  auto schedule = two_roles(1, 4);
  schedule.programs[1].ops.push_back(compute(10));
  const auto report = price(schedule, kOwnLanes);
  EXPECT_DOUBLE_EQ(report.step, 17);
  EXPECT_DOUBLE_EQ(report.by_kind.at(OpKind::kForward), 15);
}

TEST(Lanes, ARoleThatNeverComesIsNamed) {
  auto schedule = two_roles(1, 4);
  schedule.programs[1].ops.pop_back();
  schedule.programs[1].ops.pop_back();
  for (const auto& options : {kSharedCore, kOwnLanes}) {
    try {
      (void)price(schedule, options);
      FAIL() << "finished";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kFailed);
      EXPECT_NE(error.sentence().find("all_reduce"), std::string::npos) << error.what();
      EXPECT_NE(error.sentence().find("data-parallel"), std::string::npos) << error.what();
    }
  }
}

TEST(Lanes, ACycleIsAnErrorAndNotAHang) {
  for (const auto& options : {kSharedCore, kOwnLanes}) {
    EXPECT_THROW((void)price(one_role({gather(1, {1}), compute(1, {0})}, 2), options), Error);
    EXPECT_THROW((void)price(one_role({compute(1, {7})}, 2), options), Error);
  }
}

}  // namespace
}  // namespace wirewise
