// One buffer of whole parameters for all ranks of a host: what the pass takes out and puts in, what it costs, and what the checker
// finds when a barrier is missing.
#include <gtest/gtest.h>

#include "schedule/fixtures.h"
#include "wirewise/base/error.h"
#include "wirewise/schedule/builder.h"
#include "wirewise/schedule/order.h"
#include "wirewise/schedule/passes.h"

namespace wirewise::test {
namespace {

Strategy aliased(int ranks) {
  Strategy strategy = strategy_of(3, ranks);
  strategy.alias = Alias::kOn;
  return strategy;
}

Schedule sample(bool clip = true, int accumulation = 1) {
  Strategy strategy = aliased(2);
  strategy.accumulation = accumulation;
  return build_train_schedule(small_gpt(2, 2, true, strategy), strategy, 2, {.clip = clip});
}

std::vector<std::size_t> places(const Program& program, OpKind kind) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].kind == kind) found.push_back(i);
  }
  return found;
}

void expect_found(const Schedule& schedule, const std::string& words) {
  const auto said = verdict(schedule);
  EXPECT_NE(said.find(words), std::string::npos) << (said.empty() ? "found nothing" : said);
}

std::string step_text(std::size_t id) { return "op " + std::to_string(id) + " (step, group"; }

TEST(Alias, GathersNothingAndBarsTheStepsOnBothSides) {
  for (int accumulation : {1, 3}) {
    for (Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      for (int depth : {0, 2}) {
        Strategy strategy = aliased(4);
        strategy.accumulation = accumulation;
        strategy.recompute = recompute;
        strategy.prefetch = depth;
        const Model model = small_gpt(3, 4, true, strategy);
        const Program program = build_train_schedule(model, strategy, 4, {}).programs[0];
        EXPECT_EQ(count_ops(program, OpKind::kGather), 0);
        const auto barriers = places(program, OpKind::kBarrier), steps = places(program, OpKind::kStep);
        ASSERT_EQ(barriers.size(), 2U);
        EXPECT_EQ(barriers[0] + 1, steps.front());
        EXPECT_EQ(steps.back() + 1, barriers[1]);
        for (const auto& op : program.ops) {
          EXPECT_FALSE(op.kind == OpKind::kFree && has_role(program, op.frees, BufferRole::kFullParam));
        }
      }
    }
  }
}

TEST(Alias, LeavesTheComputationAsItIs) {
  Strategy strategy = strategy_of(3, 2);
  strategy.accumulation = 2;
  strategy.recompute = Recompute::kFull;
  const Model model = small_gpt(3, 2, true, strategy);
  const auto computation = [](const Program& program) {
    std::vector<std::tuple<OpKind, int, int, int, std::vector<int>>> result;
    for (const auto& op : program.ops) {
      const bool parameters = op.kind == OpKind::kGather || op.kind == OpKind::kBarrier || has_role(program, op.frees, BufferRole::kFullParam);
      if (!parameters) result.emplace_back(op.kind, op.unit, op.segment, op.micro_batch, op.param_groups);
    }
    return result;
  };
  const Program plain = plain_train_program(model, strategy, {});
  EXPECT_EQ(computation(alias(plain)), computation(plain));
}

TEST(Alias, AForwardPassNeedsNoPeer) {
  const Strategy strategy = aliased(4);
  const Program program = build_forward_schedule(small_gpt(2, 4, false, strategy), strategy, 4).programs[0];
  for (const auto& op : program.ops) EXPECT_FALSE(is_collective(op.kind)) << name_of(op.kind);
}

TEST(Alias, TheHostHoldsEachParameterOnce) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    for (int ranks : {2, 4, 8}) {
      Strategy strategy = aliased(ranks);
      strategy.param_dtype = dtype;
      const Model model = small_gpt(3, ranks, true, strategy);
      Bytes whole = 0;
      for (const auto& group : model.groups) whole += group.padded * size_of(dtype);
      const auto report = memory_walk(build_train_schedule(model, strategy, ranks, {}).programs[0]);
      EXPECT_EQ(report.category_peak[static_cast<int>(Category::kParams)] * static_cast<Bytes>(ranks), whole);
      EXPECT_EQ(report.category_peak[static_cast<int>(Category::kGathered)], 0U);
      strategy.alias = Alias::kOff;
      const auto gathering = memory_walk(build_train_schedule(model, strategy, ranks, {}).programs[0]);
      EXPECT_LT(report.peak, gathering.peak);
      for (Category category : {Category::kParams, Category::kGrads, Category::kOptimizer, Category::kActivations}) {
        EXPECT_EQ(report.category_peak[static_cast<int>(category)], gathering.category_peak[static_cast<int>(category)]);
      }
    }
  }
}

TEST(Alias, TheCheckerNamesTheStepThatNoBarrierPrecedes) {
  for (bool clip : {true, false}) {
    for (int accumulation : {1, 2}) {
      Schedule schedule = sample(clip, accumulation);
      auto& ops = schedule.programs[0].ops;
      ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(places(schedule.programs[0], OpKind::kBarrier)[0]));
      derive_after(schedule.programs[0]);
      expect_found(schedule, step_text(places(schedule.programs[0], OpKind::kStep).front()));
      expect_found(schedule, "before a barrier says that no peer reads it any more");
    }
  }
}

TEST(Alias, TheCheckerNamesTheStepThatNoBarrierFollows) {
  Schedule schedule = sample();
  auto& ops = schedule.programs[0].ops;
  ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(places(schedule.programs[0], OpKind::kBarrier)[1]));
  derive_after(schedule.programs[0]);
  expect_found(schedule, step_text(places(schedule.programs[0], OpKind::kStep).front()));
  expect_found(schedule, "a peer may read it in the next step");
}

TEST(Alias, TheCheckerNamesTheReaderThatABarrierLetsRunOn) {
  // The first barrier above the last backward: a peer may still be in that backward when this rank steps.
  Schedule schedule = sample();
  auto& ops = schedule.programs[0].ops;
  const auto barrier = places(schedule.programs[0], OpKind::kBarrier)[0];
  std::size_t reader = 0;
  for (std::size_t i : places(schedule.programs[0], OpKind::kBackward)) {
    if (has_role(schedule.programs[0], ops[i].reads, BufferRole::kFullParam)) reader = i;
  }
  ASSERT_GT(reader, 0U);
  std::rotate(ops.begin() + static_cast<std::ptrdiff_t>(reader), ops.begin() + static_cast<std::ptrdiff_t>(barrier),
              ops.begin() + static_cast<std::ptrdiff_t>(barrier) + 1);
  derive_after(schedule.programs[0]);
  expect_found(schedule, "op " + std::to_string(reader + 1) + " (backward");
  expect_found(schedule, "of a peer may read it");
}

TEST(Alias, ABarrierOutsideTheComputeLaneBarsNothing) {
  Schedule schedule = sample();
  auto& program = schedule.programs[0];
  program.ops[places(program, OpKind::kBarrier)[0]].lane = Lane::kP2p;
  derive_after(program);
  expect_found(schedule, "before a barrier says");
}

TEST(Alias, RolesThatShareParametersAreHeldAgainstEachOther) {
  // One role steps between its barriers; the other reads before, between or behind them.
  Op barrier, step, read;
  step.kind = OpKind::kStep;
  step.writes = {0};
  read.kind = OpKind::kForward;
  read.reads = {0};
  BufferInfo parameters;
  parameters.name = "full param of all";
  parameters.persistent = parameters.aliased = true;
  parameters.param_group = 0;
  const auto roles = [&](std::vector<Op> reader) {
    Schedule schedule;
    schedule.strategy = aliased(2);
    schedule.ranks = 2;
    schedule.programs = {{"writer", {0}, {parameters}, {barrier, step, barrier}}, {"reader", {1}, {parameters}, std::move(reader)}};
    return schedule;
  };
  EXPECT_EQ(verdict(roles({read, barrier, barrier})), "");
  EXPECT_EQ(verdict(roles({barrier, barrier, read})), "");
  expect_found(roles({barrier, read, barrier}), "op 1 (step) of role writer writes the shared full param of all while op 1 (forward) of role reader");
}

TEST(Alias, OtherStagesRefuseIt) {
  for (int zero : {0, 1, 2}) {
    Strategy strategy = aliased(2);
    strategy.zero = zero;
    const Model model = small_gpt(1, 2, true, strategy);
    EXPECT_THROW((void)build_train_schedule(model, strategy, 2, {}), Error) << zero;
  }
}

}  // namespace
}  // namespace wirewise::test
