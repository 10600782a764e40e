// Passes keep what a program does and change where its communication stands.
#include "wirewise/schedule/passes.h"

#include <gtest/gtest.h>

#include <map>

#include "schedule/fixtures.h"
#include "wirewise/schedule/builder.h"

namespace wirewise::test {
namespace {

Bytes gathered_peak(const Program& program) { return memory_walk(program).category_peak[static_cast<int>(Category::kGathered)]; }

void expect_sound(Program program, const Strategy& strategy) {
  Schedule schedule;
  schedule.strategy = strategy;
  schedule.ranks = strategy.dp_shard;
  schedule.micro_batches = strategy.accumulation;
  schedule.programs.push_back(std::move(program));
  EXPECT_NO_THROW(check(schedule));
}

/// The compute ops of a program, in order: what passes must leave as it is.
std::vector<std::tuple<OpKind, int, int, int>> computation(const Program& program) {
  std::vector<std::tuple<OpKind, int, int, int>> result;
  for (const auto& op : program.ops) {
    if (op.lane == Lane::kCompute && op.kind != OpKind::kFree) result.emplace_back(op.kind, op.unit, op.segment, op.micro_batch);
  }
  return result;
}

TEST(Prefetch, IssuesEachGatherDepthUnitsAhead) {
  Strategy strategy = strategy_of(3, 2);
  strategy.accumulation = 2;
  const Model model = small_gpt(6, 2, false, strategy);
  const Program plain = plain_train_program(model, strategy, {});
  for (int depth : {1, 2, 3}) {
    const Program program = prefetch(plain, depth);
    expect_sound(program, strategy);
    EXPECT_EQ(computation(program), computation(plain));
    const auto visits = visits_of(program);
    int at_depth = 0;
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      const Op& op = program.ops[i];
      if (op.kind != OpKind::kGather) continue;
      // The first visit behind the gather that computes on its unit, and the visits between.
      int between = -1;
      for (const auto& visit : visits) {
        if (visit.first < i) continue;
        ++between;
        if (visit.unit == op.unit && visit.micro_batch == op.micro_batch) break;
      }
      EXPECT_LE(between, depth);
      if (between == depth) ++at_depth;
    }
    // All but the first few gathers of the step, which have no room above.
    EXPECT_EQ(count_ops(program, OpKind::kGather) - at_depth, depth);
  }
}

TEST(Prefetch, CostsTheMemoryOfDepthUnits) {
  Strategy strategy = strategy_of(3, 2);
  const Model model = small_gpt(8, 2, false, strategy);
  const Program plain = plain_train_program(model, strategy, {});
  const Bytes block = model.groups[2].padded * 2;
  ASSERT_EQ(gathered_peak(plain), block);
  for (int depth : {1, 2, 3, 5}) EXPECT_EQ(gathered_peak(prefetch(plain, depth)), block * static_cast<Bytes>(depth + 1)) << depth;
}

TEST(Prefetch, KeepsParametersThatWouldBeGatheredRightBehindTheirFree) {
  const Strategy strategy = strategy_of(3, 2);
  const Model model = small_gpt(4, 2, false, strategy);
  const Program plain = plain_train_program(model, strategy, {});
  // Around the turn from forward to backward: with depth 1 none, from then on blocks from the last downwards.
  const auto gathers = [&](int depth) { return count_ops(prefetch(plain, depth), OpKind::kGather); };
  EXPECT_EQ(gathers(1), count_ops(plain, OpKind::kGather));
  EXPECT_EQ(gathers(2), count_ops(plain, OpKind::kGather) - 1);
  EXPECT_EQ(gathers(100), static_cast<int>(model.units.size()));
}

TEST(Bucket, JoinsConsecutiveReductionsUntilFull) {
  std::string what;
  for (int i = 0; i < 100; ++i) {
    Random random(7000 + static_cast<std::uint64_t>(i));
    SCOPED_TRACE("seed " + std::to_string(7000 + i));
    const int ranks = 1 << pick(random, 0, 2);
    Strategy strategy = random_strategy(random, ranks);
    const Model model = random_model(random, pick(random, 1, 6), ranks, pick(random, 0, 1) == 1, strategy.param_dtype);
    const Program plain = plain_train_program(model, strategy, {});
    const Bytes limit = static_cast<Bytes>(pick(random, 1, 8000));
    const Program program = bucket(plain, limit);
    expect_sound(program, strategy);
    EXPECT_EQ(computation(program), computation(plain));

    // Same groups in the same order, bytes too.
    const auto reduced = [](const Program& p) {
      std::vector<std::pair<int, int>> groups;
      for (const auto& op : p.ops) {
        for (int group : op.lane == Lane::kReduce ? op.param_groups : std::vector<int>{})
          groups.emplace_back(op.micro_batch, group);
      }
      return groups;
    };
    EXPECT_EQ(reduced(program), reduced(plain));
    for (std::size_t k = 0; k < program.ops.size(); ++k) {
      const Op& op = program.ops[k];
      if (op.lane != Lane::kReduce) continue;
      Bytes sum = 0, of_last_unit = 0;
      for (BufferId id : op.reads) {
        sum += buffer(program, id).bytes;
        const auto& group = model.groups[static_cast<std::size_t>(buffer(program, id).param_group)];
        if (group.users.front() == op.unit) of_last_unit += buffer(program, id).bytes;
      }
      EXPECT_EQ(op.bytes, sum);
      EXPECT_LT(sum - of_last_unit, limit) << "joined one more than needed";
      const bool more_in_micro_batch =
          std::any_of(program.ops.begin() + static_cast<std::ptrdiff_t>(k) + 1, program.ops.end(),
                      [&](const Op& later) { return later.lane == Lane::kReduce && later.micro_batch == op.micro_batch; });
      EXPECT_TRUE(!more_in_micro_batch || sum >= limit) << "closed too early";
    }
  }
}

TEST(Bucket, OneCallAMicroBatchWhenHuge) {
  Strategy strategy = strategy_of(2, 2);
  strategy.accumulation = 3;
  strategy.accumulation_policy = AccumulationPolicy::kReduceEach;
  strategy.bucket = Bytes{1} << 40;
  const Model model = small_gpt(4, 2, true, strategy);
  const Program program = build_train_schedule(model, strategy, 2, {}).programs[0];
  EXPECT_EQ(count_ops(program, OpKind::kReduceScatter), 3);
}

TEST(Overlap, GivesEachReductionOneUnitsTime) {
  for (int zero : {0, 2, 3}) {
    Strategy strategy = strategy_of(zero, 2);
    strategy.accumulation = 2;
    strategy.accumulation_policy = AccumulationPolicy::kReduceEach;
    const Model model = small_gpt(4, 2, false, strategy);
    const Program plain = plain_train_program(model, strategy, {});
    const Program program = overlap(plain);
    expect_sound(program, strategy);
    EXPECT_EQ(computation(program), computation(plain));
    const auto visits = visits_of(program);
    int immediate = 0;
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      const Op& op = program.ops[i];
      if (op.lane != Lane::kReduce) continue;
      const auto free = static_cast<std::size_t>(
          std::find_if(program.ops.begin() + static_cast<std::ptrdiff_t>(i), program.ops.end(),
                       [&](const Op& later) { return later.kind == OpKind::kFree && later.frees == op.reads; }) -
          program.ops.begin());
      const auto hidden_by =
          std::count_if(visits.begin(), visits.end(), [&](const Visit& v) { return v.first > i && v.last < free; });
      EXPECT_LE(hidden_by, 1);
      if (hidden_by == 0) ++immediate;
    }
    EXPECT_EQ(immediate, 1);  // the step's last has no unit behind it
  }
}

TEST(Passes, NameAtMostOneOpOfEachOtherLane) {
  // A lane's order implies the rest. That none of the edges left is to spare, the checker's tests show.
  std::string what;
  for_random_schedules(
      100, 12000,
      [&](const Schedule& schedule, const Model&, Random&) {
        SCOPED_TRACE(what);
        for (const auto& op : schedule.programs[0].ops) {
          std::map<Lane, int> lanes{{op.lane, 1}};
          for (OpId earlier : op.after) EXPECT_EQ(++lanes[schedule.programs[0].ops[static_cast<std::size_t>(earlier)].lane], 1);
        }
      },
      [&](const std::string& text) { what = text; });
}

}  // namespace
}  // namespace wirewise::test
