// Seeded faults: each breaks a sound schedule in one place, and the checker must say so.
#include <gtest/gtest.h>

#include "schedule/fixtures.h"
#include "wirewise/base/error.h"
#include "wirewise/schedule/order.h"

namespace wirewise::test {
namespace {

void expect_found(const Schedule& schedule, const std::string& words) {
  const auto said = verdict(schedule);
  EXPECT_NE(said.find(words), std::string::npos) << (said.empty() ? "found nothing" : said);
}

Schedule sample(int zero, int accumulation = 1, AccumulationPolicy policy = AccumulationPolicy::kLocalSum) {
  Strategy strategy = strategy_of(zero, 2);
  strategy.prefetch = 1;
  strategy.accumulation = accumulation;
  strategy.accumulation_policy = policy;
  return build_train_schedule(small_gpt(2, 2, true, strategy), strategy, 2, {});
}

/// First op of a kind.
std::size_t find_op(const Schedule& schedule, OpKind kind, std::size_t from = 0) {
  const auto& ops = schedule.programs[0].ops;
  for (std::size_t i = from; i < ops.size(); ++i) {
    if (ops[i].kind == kind) return i;
  }
  ADD_FAILURE() << "no " << name_of(kind);
  return 0;
}

/// Removes an op and derives edges anew, as a builder that forgot it would.
Schedule without(Schedule schedule, std::size_t op) {
  auto& ops = schedule.programs[0].ops;
  ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(op));
  derive_after(schedule.programs[0]);
  return schedule;
}

TEST(Check, FindsEveryMissingEdge) {
  std::string what;
  int dropped = 0;
  for_random_schedules(
      150, 30000,
      [&](const Schedule& schedule, const Model&, Random&) {
        SCOPED_TRACE(what);
        const auto& ops = schedule.programs[0].ops;
        for (std::size_t i = 0; i < ops.size(); ++i) {
          for (std::size_t k = 0; k < ops[i].after.size(); ++k) {
            Schedule broken = schedule;
            auto& after = broken.programs[0].ops[i].after;
            after.erase(after.begin() + static_cast<std::ptrdiff_t>(k));
            ++dropped;
            ASSERT_NE(verdict(broken), "") << name_of(ops[i].kind) << " " << i << " without its edge to " << ops[i].after[k];
          }
        }
      },
      [&](const std::string& text) { what = text; });
  EXPECT_GT(dropped, 1000);
}

TEST(Check, FindsEveryMissingOp) {
  std::string what;
  for_random_schedules(
      150, 40000,
      [&](const Schedule& schedule, const Model&, Random&) {
        SCOPED_TRACE(what);
        const auto& ops = schedule.programs[0].ops;
        for (std::size_t i = 0; i < ops.size(); ++i) {
          if (ops[i].kind == OpKind::kClip) continue;  // a step without clipping is a step
          ASSERT_NE(verdict(without(schedule, i)), "") << name_of(ops[i].kind) << " " << i;
        }
      },
      [&](const std::string& text) { what = text; });
}

TEST(Check, FindsEveryDoubledOp) {
  std::string what;
  for_random_schedules(
      100, 45000,
      [&](const Schedule& schedule, const Model&, Random&) {
        SCOPED_TRACE(what);
        const auto& ops = schedule.programs[0].ops;
        for (std::size_t i = 0; i < ops.size(); ++i) {
          if (ops[i].kind == OpKind::kClip || ops[i].kind == OpKind::kBarrier) continue;
          const bool in_place = ops[i].kind == OpKind::kGather && ops[i].allocates.empty();
          if (in_place) continue;  // gathering whole parameters twice is slow, not wrong
          Schedule broken = schedule;
          auto& twice = broken.programs[0].ops;
          twice.insert(twice.begin() + static_cast<std::ptrdiff_t>(i), ops[i]);
          derive_after(broken.programs[0]);
          ASSERT_NE(verdict(broken), "") << name_of(ops[i].kind) << " " << i;
        }
      },
      [&](const std::string& text) { what = text; });
}

TEST(Check, FindsUseBeforeGatherAndAfterFree) {
  Schedule schedule = sample(3);
  expect_found(without(schedule, find_op(schedule, OpKind::kGather)), "isn't allocated");
  // A free that stands before its last reader.
  auto& ops = schedule.programs[0].ops;
  const auto free = find_op(schedule, OpKind::kFree);
  const auto reader = find_op(schedule, OpKind::kForward);
  ASSERT_LT(reader, free);
  std::rotate(ops.begin() + static_cast<std::ptrdiff_t>(reader), ops.begin() + static_cast<std::ptrdiff_t>(free),
              ops.begin() + static_cast<std::ptrdiff_t>(free) + 1);
  derive_after(schedule.programs[0]);
  EXPECT_NE(verdict(schedule), "");
}

TEST(Check, FindsLeaksAndDoubleFrees) {
  Schedule schedule = sample(2);
  auto& ops = schedule.programs[0].ops;
  const auto backward = find_op(schedule, OpKind::kBackward);
  ASSERT_FALSE(ops[backward].frees.empty());
  Schedule leaking = schedule;
  leaking.programs[0].ops[backward].frees.pop_back();
  expect_found(leaking, "nothing frees");
  Schedule twice = schedule;
  twice.programs[0].ops[backward].frees.push_back(ops[backward].frees.front());
  expect_found(twice, "twice");
  Schedule doubled = schedule;
  auto& allocates = doubled.programs[0].ops[backward].allocates;
  allocates.push_back(allocates.front());
  expect_found(doubled, "is live since");
  Schedule lasting = schedule;
  lasting.programs[0].ops[backward].frees.push_back(0);
  expect_found(lasting, "across steps");
}

TEST(Check, FindsPendingCollectivesWhoseBuffersAreTouched) {
  // Without its edge to the reduction, a free takes the gradient while peers may read it.
  Schedule schedule = sample(2);
  auto& ops = schedule.programs[0].ops;
  for (auto& op : ops) {
    if (op.kind == OpKind::kFree && has_role(schedule.programs[0], op.frees, BufferRole::kGrad)) {
      op.after.clear();
      break;
    }
  }
  expect_found(schedule, "may still use it");
}

TEST(Check, FindsGradientsThatNobodyReduces) {
  Schedule schedule = sample(2, 2, AccumulationPolicy::kReduceEach);
  auto& ops = schedule.programs[0].ops;
  std::size_t last = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind == OpKind::kReduceScatter) last = i;
  }
  expect_found(without(schedule, last), "before anything reads");
  Schedule zero1 = sample(1, 2, AccumulationPolicy::kReduceEach);
  // The first micro-batch's reductions of ZeRO-1: the second micro-batch overwrites the same gradient.
  auto& first = zero1.programs[0].ops[find_op(zero1, OpKind::kReduceScatter)];
  first.reads.clear();
  expect_found(zero1, "overwrites");
}

TEST(Check, FindsAddsThatShouldWriteAndWritesThatShouldAdd) {
  Schedule schedule = sample(2, 2);
  auto& ops = schedule.programs[0].ops;
  for (auto& op : ops) {
    if (op.kind == OpKind::kBackward && op.micro_batch == 1) {
      op.writes.insert(op.writes.end(), op.adds.begin(), op.adds.end());
      op.adds.clear();
      break;
    }
  }
  expect_found(schedule, "overwrites");
  schedule = sample(2);
  for (auto& op : schedule.programs[0].ops) {
    if (op.kind == OpKind::kReduceScatter) {
      std::swap(op.adds, op.writes);
      break;
    }
  }
  expect_found(schedule, "nothing has written");
}

TEST(Check, FindsSlicesThatNobodyGathers) {
  for (int zero : {1, 2}) {
    Schedule schedule = sample(zero);
    expect_found(without(schedule, find_op(schedule, OpKind::kGather)), "slice only");
  }
}

TEST(Check, FindsTokensCountedLateAndStepsWithoutReport) {
  Schedule schedule = sample(0);
  auto& ops = schedule.programs[0].ops;
  std::rotate(ops.begin(), ops.begin() + 1, ops.begin() + static_cast<std::ptrdiff_t>(find_op(schedule, OpKind::kBackward)) + 1);
  derive_after(schedule.programs[0]);
  expect_found(schedule, "before the step's tokens are counted");
  schedule = sample(0);
  expect_found(without(schedule, schedule.programs[0].ops.size() - 1), "reports no loss");
}

TEST(Check, FindsEdgesThatPointForwards) {
  Schedule schedule = sample(3);
  schedule.programs[0].ops[3].after.push_back(3);
  expect_found(schedule, "no earlier op");
  schedule.programs[0].ops[3].after.back() = 9;
  expect_found(schedule, "no earlier op");
  schedule.programs[0].ops[3].after.back() = -1;
  expect_found(schedule, "no earlier op");
}

TEST(Check, FindsBuffersThatDoNotExist) {
  Schedule schedule = sample(3);
  schedule.programs[0].ops[2].reads.push_back(100000);
  expect_found(schedule, "doesn't exist");
}

TEST(Check, FindsWrongSizes) {
  for (int zero : {0, 1, 3}) {
    Schedule schedule = sample(zero);
    const auto reduction = find_op(schedule, zero == 0 ? OpKind::kAllReduce : OpKind::kReduceScatter);
    schedule.programs[0].ops[reduction].bytes += 1;
    expect_found(schedule, "its buffers hold");
    schedule.programs[0].ops[reduction].bytes = 0;
    expect_found(schedule, "no bytes");
    schedule = sample(zero);
    const auto reduced = schedule.programs[0].ops[reduction].writes.front();
    schedule.programs[0].buffers[static_cast<std::size_t>(reduced)].bytes /= 2;
    expect_found(schedule, "elements in all");
  }
}

TEST(Check, FindsMicroBatchesThatAreMissing) {
  Schedule schedule = sample(0, 2);
  schedule.micro_batches = 3;
  expect_found(schedule, "micro-batches");
}

/// The same schedule with its two ranks in two roles.
Schedule two_roles(const Schedule& schedule) {
  Schedule result = schedule;
  result.programs.push_back(schedule.programs[0]);
  result.programs[0].ranks = {0};
  result.programs[1].ranks = {1};
  result.programs[1].role = "other";
  return result;
}

TEST(Check, AcceptsEqualRoles) {
  for (int zero : {0, 1, 2, 3}) EXPECT_EQ(verdict(two_roles(sample(zero))), "");
}

TEST(Check, FindsRolesThatSwapCollectives) {
  std::string what;
  for_random_schedules(
      60, 60000,
      [&](const Schedule& schedule, const Model&, Random&) {
        if (schedule.ranks != 2) return;
        SCOPED_TRACE(what);
        const Schedule roles = two_roles(schedule);
        const auto& ops = roles.programs[1].ops;
        for (std::size_t i = 0; i < ops.size(); ++i) {
          if (ops[i].lane == Lane::kCompute) continue;
          // The next collective of the lane changes places with it; contents swap, so each program stays sound on its own where
          // nothing between depends on them.
          for (std::size_t k = i + 1; k < ops.size(); ++k) {
            if (ops[k].lane != ops[i].lane) continue;
            Schedule broken = roles;
            std::swap(broken.programs[1].ops[i], broken.programs[1].ops[k]);
            derive_after(broken.programs[1]);
            ASSERT_NE(verdict(broken), "") << "ops " << i << " and " << k;
            break;
          }
        }
      },
      [&](const std::string& text) { what = text; });
  // Two steps' gathers under ZeRO-1 are independent: each program is sound, only together they aren't.
  Schedule broken = two_roles(sample(1));
  const auto first = find_op(broken, OpKind::kGather), second = find_op(broken, OpKind::kGather, first + 1);
  auto& ops = broken.programs[1].ops;
  // Step, step, gather, gather: the second program gathers in the other order.
  std::swap(ops[first], ops[second]);
  std::swap(ops[first], ops[second - 1]);
  derive_after(broken.programs[1]);
  expect_found(broken, " meets op");
}

TEST(Check, FindsRolesThatDisagreeOnSizesOrCount) {
  Schedule broken = two_roles(sample(0));
  broken.programs[1].ops[0].bytes = 16;
  expect_found(broken, "bytes, but op 0");
  broken = two_roles(sample(0));
  Op barrier;
  barrier.kind = OpKind::kBarrier;
  auto& ops = broken.programs[1].ops;
  ops.insert(ops.end() - 1, barrier);
  derive_after(broken.programs[1]);
  EXPECT_NE(verdict(broken), "");
}

TEST(Check, FindsCyclesThroughTwoRoles) {
  // Two barriers in two lanes; one role orders them one way, the other the other way. Each program alone is fine.
  Schedule schedule;
  schedule.strategy = strategy_of(0, 2);
  schedule.ranks = 2;
  Op gather_lane, reduce_lane;
  gather_lane.lane = Lane::kGather;
  reduce_lane.lane = Lane::kReduce;
  Program a, b;
  a.role = "a";
  a.ranks = {0};
  a.ops = {gather_lane, reduce_lane};
  b.role = "b";
  b.ranks = {1};
  b.ops = {reduce_lane, gather_lane};
  schedule.programs = {a, b};
  EXPECT_EQ(verdict(schedule), "");
  schedule.programs[0].ops[1].after = {0};
  EXPECT_EQ(verdict(schedule), "");
  schedule.programs[1].ops[1].after = {0};
  expect_found(schedule, "wait for each other");
}

TEST(Check, FindsRanksWithoutOrWithTwoPrograms) {
  Schedule schedule = sample(3);
  schedule.programs[0].ranks = {0};
  expect_found(schedule, "rank 1 runs no program");
  schedule.programs[0].ranks = {0, 1, 1};
  expect_found(schedule, "two programs");
  schedule.programs[0].ranks = {0, 1, 2};
  expect_found(schedule, "rank 2 of 2");
}

}  // namespace
}  // namespace wirewise::test
