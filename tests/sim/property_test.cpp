// What holds for every schedule: random ones, and those that the builder makes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "sim/hand_built.h"
#include "wirewise/base/error.h"

namespace wirewise {
namespace {

constexpr double kRounding = 1e-9;  // sums of many doubles in another order, relative to the step

Schedule random_schedule(std::mt19937_64& random) {
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  std::vector<Op> ops;
  const int count = draw(1, 40);
  for (OpId id = 0; id < count; ++id) {
    Op op;
    switch (draw(0, 3)) {
      case 0:
        op = collective(OpKind::kGather, Lane::kGather, static_cast<Bytes>(draw(0, 900)));
        break;
      case 1:
        op = collective(OpKind::kReduceScatter, Lane::kReduce, static_cast<Bytes>(draw(0, 900)));
        break;
      default:
        op = compute(draw(0, 50) / 10.0);
    }
    for (OpId earlier = 0; earlier < id; ++earlier) {
      if (draw(0, 9) == 0) op.after.push_back(earlier);
    }
    ops.push_back(op);
  }
  return one_role(std::move(ops), draw(2, 4));
}

std::vector<Seconds> durations(const SimReport& report) {
  std::vector<Seconds> seconds;
  for (const auto& op : report.ops) seconds.push_back(op.end - op.start);
  return seconds;
}

/// The longest path over lanes and dependencies: no machine that obeys the rule is faster.
Seconds critical_path(const Program& program, const std::vector<Seconds>& cost) {
  std::vector<Seconds> end(program.ops.size());
  std::map<Lane, Seconds> lane_end;
  Seconds longest = 0;
  for (std::size_t id = 0; id < program.ops.size(); ++id) {
    Seconds start = lane_end[program.ops[id].lane];
    for (OpId earlier : program.ops[id].after) start = std::max(start, end[static_cast<std::size_t>(earlier)]);
    end[id] = lane_end[program.ops[id].lane] = start + cost[id];
    longest = std::max(longest, end[id]);
  }
  return longest;
}

void check_laws(const Schedule& schedule, const SimReport& shared, const SimReport& lanes) {
  const Program& program = schedule.programs.front();
  const auto cost = durations(lanes);
  const Seconds total = std::accumulate(cost.begin(), cost.end(), 0.0), noise = kRounding * std::max(total, 1.0);

  // On one core the step is the work, whatever the order; lanes of their own reach the critical path.
  ASSERT_NEAR(shared.step, total, noise);
  ASSERT_NEAR(lanes.step, critical_path(program, cost), noise);
  ASSERT_LE(critical_path(program, cost), shared.step + noise);

  for (const auto* report : {&shared, &lanes}) {
    Seconds busy = 0, exposed = 0;
    for (const auto& [kind, seconds] : report->by_kind) busy += seconds;
    ASSERT_NEAR(busy, total, noise);
    ASSERT_EQ(report->ops.size(), program.ops.size());
    for (const auto& priced : report->ops) {
      const Op& op = program.ops[static_cast<std::size_t>(priced.op)];
      for (OpId earlier : op.after) ASSERT_LE(report->ops[static_cast<std::size_t>(earlier)].end, priced.start + noise);
      ASSERT_LE(priced.exposed, priced.end - priced.start + noise);
      exposed += priced.exposed;
    }
    ASSERT_LE(report->exposed_communication, exposed + noise);
    ASSERT_LE(report->exposed_communication, report->step + noise);
  }
  // One core: ops take turns.
  auto turns = shared.ops;
  std::sort(turns.begin(), turns.end(),
            [](const auto& a, const auto& b) { return std::pair(a.start, a.end) < std::pair(b.start, b.end); });
  for (std::size_t i = 1; i < turns.size(); ++i) ASSERT_LE(turns[i - 1].end, turns[i].start + noise);
}

TEST(Simulate, LawsHoldForRandomSchedules) {
  constexpr std::uint64_t kSeed = 4242;
  for (std::uint64_t seed = kSeed; seed < kSeed + 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const Schedule schedule = random_schedule(random);
    check_laws(schedule, price(schedule, kSharedCore), price(schedule, kOwnLanes));
    if (HasFatalFailure()) return;
  }
}

struct Built {
  Model model;
  Schedule schedule;
};
Built small_gpt(int zero, int ranks, int prefetch, int accumulation, Alias alias = Alias::kOff) {
  ModelConfig config = preset("gpt2");
  config.layers = 4;
  BatchShape batch;
  batch.sequence = 256;
  batch.separate_gradient = accumulation > 1;
  Strategy strategy;
  strategy.zero = zero;
  strategy.prefetch = prefetch;
  strategy.accumulation = accumulation;
  strategy.alias = alias;
  resolve(strategy, ranks);
  Model model = build_model(config, batch, ranks);
  Schedule schedule = build_train_schedule(model, strategy, ranks, {});
  return {std::move(model), std::move(schedule)};
}

TEST(Simulate, LawsHoldForEveryStageThatIsBuilt) {
  const DeviceRates rates{100e9, 10e9, Provenance::kAssumed};
  for (int zero = 0; zero <= 3; ++zero) {
    for (int ranks : {1, 2, 4}) {
      for (int prefetch : {0, 2}) {
        SCOPED_TRACE("zero" + std::to_string(zero) + ", " + std::to_string(ranks) + " ranks, prefetch " +
                     std::to_string(prefetch));
        const auto built = small_gpt(zero, ranks, prefetch, 2);
        const auto run = [&](const SimOptions& options) {
          return simulate(built.schedule, built.model, one_host(ranks), rates, {}, options);
        };
        const auto shared = run(kSharedCore), lanes = run(kOwnLanes);
        check_laws(built.schedule, shared, lanes);
        EXPECT_GT(shared.mfu, 0);
        EXPECT_LT(shared.mfu, 1);
        EXPECT_LE(shared.mfu, lanes.mfu);
        if (ranks == 1) {
          EXPECT_EQ(lanes.exposed_communication, 0);
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Simulate, SharedParametersSaveTheGathersAndCostTwoBarriers) {
  const DeviceRates rates{100e9, 10e9, Provenance::kAssumed};
  for (int ranks : {2, 4}) {
    const auto run = [&](Alias alias) {
      const auto built = small_gpt(3, ranks, 0, 2, alias);
      auto report = simulate(built.schedule, built.model, one_host(ranks), rates, {}, kSharedCore);
      if (alias == Alias::kOn) check_laws(built.schedule, report, simulate(built.schedule, built.model, one_host(ranks), rates, {}, kOwnLanes));
      return report;
    };
    const auto gathering = run(Alias::kOff), shared = run(Alias::kOn);
    EXPECT_EQ(shared.by_kind.count(OpKind::kGather), 0U);
    EXPECT_NEAR(shared.by_kind.at(OpKind::kBarrier), 2 * one_host(ranks).links.front().alpha, 1e-9);
    EXPECT_NEAR(gathering.step - shared.step, gathering.by_kind.at(OpKind::kGather) - shared.by_kind.at(OpKind::kBarrier), 1e-9);
  }
}

TEST(Simulate, PrefetchHidesGathersWhereLanesRunSideBySide) {
  const DeviceRates rates{100e9, 10e9, Provenance::kAssumed};
  const auto exposed = [&](int prefetch) {
    const auto built = small_gpt(3, 2, prefetch, 1);
    return simulate(built.schedule, built.model, one_host(2), rates, {}, kOwnLanes).exposed_communication;
  };
  EXPECT_LT(exposed(1), exposed(0));
}

}  // namespace
}  // namespace wirewise
