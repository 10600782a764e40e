// Which of several endings is the cause, and what follows from it.
#include "wirewise/cli/rank_exit.h"

#include <gtest/gtest.h>

#include <csignal>

namespace wirewise {
namespace {

RankExit code(int rank, int value) { return {rank, 100 + rank, false, value, false, false, {}}; }
RankExit killed(int rank, int value) { return {rank, 100 + rank, true, value, false, false, {}}; }
RankExit after_order(RankExit exit) {
  exit.told_to_end = true;
  return exit;
}
RankExit after_stop(RankExit exit) {
  exit.stop_forwarded = true;
  return exit;
}

int cause_of(std::vector<RankExit> exits) {
  const RankExit* cause = first_cause(exits);
  return cause == nullptr ? -1 : cause->rank;
}

TEST(FirstCause, IsNoneWhenAllAreDone) { EXPECT_EQ(cause_of({code(0, 0), code(1, 0)}), -1); }

TEST(FirstCause, IsTheFirstOfItsKind) { EXPECT_EQ(cause_of({code(2, 3), code(0, 1), code(1, 1)}), 2); }

TEST(FirstCause, LosingAPeerExplainsLessThanTheLoss) {
  EXPECT_EQ(cause_of({code(0, 75), code(2, 75), killed(1, SIGSEGV)}), 1);
  EXPECT_EQ(cause_of({code(0, 75), code(1, 1)}), 1);
  EXPECT_EQ(cause_of({code(1, 75), code(0, 75)}), 1);
}

TEST(FirstCause, WhatTheLauncherEndedIsNoCause) {
  EXPECT_EQ(cause_of({code(1, 75), after_order(killed(0, SIGTERM)), after_order(killed(2, SIGKILL)), after_order(code(3, 1))}),
            1);
  EXPECT_EQ(cause_of({code(0, 75), after_order(killed(1, SIGSEGV))}), 1);  // its core took longer than its peers' patience
}

TEST(FirstCause, AStopIsWeakerThanAFailure) {
  EXPECT_EQ(cause_of({code(0, 143), code(1, 1)}), 1);
  EXPECT_EQ(cause_of({after_stop(killed(0, SIGTERM)), code(1, 0)}), 0);
}

TEST(ExitCode, FollowsTheContract) {
  EXPECT_EQ(exit_code(code(0, 2)), 2);
  EXPECT_EQ(exit_code(code(0, 143)), 143);
  EXPECT_EQ(exit_code(killed(0, SIGKILL)), 137);
}

TEST(WorthRestart, IsForLossesAndDeathsBySignalOnly) {
  EXPECT_TRUE(worth_restart(code(0, 75)));
  EXPECT_TRUE(worth_restart(killed(0, SIGKILL)));
  EXPECT_TRUE(worth_restart(killed(0, SIGSEGV)));
  EXPECT_TRUE(worth_restart(code(0, 139)));  // a shell's report of the same
  EXPECT_FALSE(worth_restart(code(0, 1)));
  EXPECT_FALSE(worth_restart(code(0, 2)));
  EXPECT_FALSE(worth_restart(code(0, 130)));
  EXPECT_FALSE(worth_restart(code(0, 143)));
  EXPECT_FALSE(worth_restart(after_stop(killed(0, SIGTERM))));
}

TEST(Describe, NamesRankHostPidAndSignal) {
  EXPECT_EQ(describe(code(1, 3), "node7"), "rank 1 (pid 101 on node7) exited with code 3.");
  EXPECT_EQ(describe(killed(1, SIGSEGV), "node7"), "rank 1 (pid 101 on node7) was killed by signal 11 (SIGSEGV), a crash.");
}

}  // namespace
}  // namespace wirewise
