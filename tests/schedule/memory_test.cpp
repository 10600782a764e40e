// The memory walk against closed forms, against brute force, and against lanes that run at any speed.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "schedule/fixtures.h"
#include "wirewise/strategy/strategy.h"

namespace wirewise::test {
namespace {

Bytes of(const Bytes (&bytes)[kCategories], Category category) { return bytes[static_cast<int>(category)]; }

std::uint64_t padded(const Model& model) {
  std::uint64_t count = 0;
  for (const auto& group : model.groups) count += group.padded;
  return count;
}

TEST(MemoryWalk, ParametersAndOptimizerAreTheZeroPapersFormulas) {
  for (int ranks : {2, 4, 8}) {
    for (int zero : {0, 1, 2, 3}) {
      const Strategy strategy = strategy_of(zero, ranks);
      const Model model = small_gpt(3, ranks, true, strategy);
      const auto report = memory_walk(build_train_schedule(model, strategy, ranks, {}).programs[0]);
      const auto formula = zero_model_states(zero, static_cast<double>(padded(model)), ranks);
      EXPECT_EQ(static_cast<double>(of(report.category_peak, Category::kParams)), formula.parameters) << zero << " " << ranks;
      EXPECT_EQ(static_cast<double>(of(report.category_peak, Category::kOptimizer)), formula.optimizer) << zero << " " << ranks;
    }
  }
}

TEST(MemoryWalk, Float32ParametersAreTheirOwnMasters) {
  for (int zero : {0, 1, 2, 3}) {
    Strategy strategy = strategy_of(zero, 4);
    strategy.param_dtype = DType::kFloat32;
    const Model model = small_gpt(2, 4, false, strategy);
    const auto report = memory_walk(build_train_schedule(model, strategy, 4, {}).programs[0]);
    EXPECT_EQ(of(report.category_peak, Category::kParams), padded(model) * 4 / (zero == 3 ? 4 : 1));
    EXPECT_EQ(of(report.category_peak, Category::kOptimizer), padded(model) * 8 / (zero == 0 ? 1 : 4));
  }
}

/// Peak of gradients in the plain schedule of an untied GPT: reductions go head, blocks downwards, embedding; at each reduction
/// the reduced gradients so far are live beside whole gradients: this unit's alone, or under ZeRO-1 those of all units so far.
Bytes gradient_peak(const Model& model, int zero, int ranks) {
  const Bytes share = zero == 0 ? 1 : static_cast<Bytes>(ranks);
  Bytes reduced = 0, whole = 0, peak = 0;
  for (auto unit = model.units.rbegin(); unit != model.units.rend(); ++unit) {
    Bytes own = 0;
    for (int group : unit->groups) {
      own += model.groups[static_cast<std::size_t>(group)].padded * 2;
      reduced += model.groups[static_cast<std::size_t>(group)].padded * 4 / share;
    }
    whole = zero == 1 ? whole + own : own;
    peak = std::max(peak, reduced + whole);
  }
  return peak;
}

TEST(MemoryWalk, GradientPeakIsTheClosedFormOfEachStage) {
  for (int ranks : {2, 4}) {
    for (int zero : {0, 1, 2, 3}) {
      for (int layers : {1, 4}) {
        const Strategy strategy = strategy_of(zero, ranks);
        const Model model = small_gpt(layers, ranks, false, strategy);
        const auto report = memory_walk(build_train_schedule(model, strategy, ranks, {}).programs[0]);
        EXPECT_EQ(of(report.category_peak, Category::kGrads), gradient_peak(model, zero, ranks))
            << zero << " " << ranks << " " << layers;
      }
    }
  }
}

TEST(MemoryWalk, LocalSumHoldsAllWholeGradientsInEveryStage) {
  for (int zero : {0, 1, 2, 3}) {
    Strategy strategy = strategy_of(zero, 2);
    strategy.accumulation = 2;
    const Model model = small_gpt(3, 2, true, strategy);
    const auto report = memory_walk(build_train_schedule(model, strategy, 2, {}).programs[0]);
    // The first reduction of the last micro-batch stands while every whole float32 gradient is live.
    EXPECT_GT(of(report.category_peak, Category::kGrads), padded(model) * 4);
  }
}

TEST(MemoryWalk, Zero3GathersOneUnitAtATime) {
  const Strategy strategy = strategy_of(3, 4);
  const Model model = small_gpt(4, 4, false, strategy);
  Bytes largest = 0;
  for (const auto& unit : model.units) {
    Bytes bytes = 0;
    for (int group : unit.groups) bytes += model.groups[static_cast<std::size_t>(group)].padded * 2;
    largest = std::max(largest, bytes);
  }
  const auto report = memory_walk(build_train_schedule(model, strategy, 4, {}).programs[0]);
  EXPECT_EQ(of(report.category_peak, Category::kGathered), largest);
}

TEST(MemoryWalk, RecomputeKeepsUnitInputsAndOneUnitsActivations) {
  Strategy strategy = strategy_of(0, 1);
  const int layers = 5;
  const Model model = small_gpt(layers, 1, false, strategy);
  const auto activations = [&] {
    return of(memory_walk(build_train_schedule(model, strategy, 1, {}).programs[0]).category_peak, Category::kActivations);
  };
  const Bytes hidden = model.units[0].segments[0].cost.out;
  Bytes block = 0;
  for (const auto& segment : model.units[1].segments) block += segment.cost.saved;
  const Bytes head = model.units.back().segments[0].cost.saved;
  const Bytes embedding = model.units[0].segments[0].cost.saved;
  // Boundaries: the embedding's output and two a block. Without recompute all stand when the head has saved its own.
  EXPECT_EQ(activations(), embedding + (1 + 2 * layers) * hidden + layers * block + head);
  strategy.recompute = Recompute::kFull;
  // With it the largest of: the last block's forward (its input, inner boundary and output beside the inputs before), the head's,
  // and the last block recomputed.
  const Bytes inputs = layers * hidden;
  EXPECT_EQ(activations(), embedding + std::max({inputs + 2 * hidden, inputs + hidden + head, inputs + hidden + block}));
}

TEST(MemoryWalk, PeakEqualsBruteForce) {
  std::string what;
  for_random_schedules(
      150, 5000,
      [&](const Schedule& schedule, const Model&, Random&) {
        SCOPED_TRACE(what);
        const Program& program = schedule.programs[0];
        const auto ops = program.ops.size();
        // Each buffer's lives as op ranges, then every op sums whoever covers it.
        Bytes peak = 0;
        std::vector<std::vector<Bytes>> sums(ops, std::vector<Bytes>(kCategories, 0));
        for (BufferId id = 0; id < static_cast<BufferId>(program.buffers.size()); ++id) {
          const auto& info = buffer(program, id);
          bool live = info.persistent;
          for (std::size_t i = 0; i < ops; ++i) {
            const auto has = [&](const std::vector<BufferId>& ids) { return std::find(ids.begin(), ids.end(), id) != ids.end(); };
            live = live || has(program.ops[i].allocates);
            if (live) sums[i][static_cast<std::size_t>(info.category)] += own_bytes(info);
            live = live && !has(program.ops[i].frees);
          }
        }
        std::vector<Bytes> category(kCategories, 0);
        for (std::size_t i = 0; i < ops; ++i) {
          sums[i][static_cast<std::size_t>(Category::kTemporaries)] += program.ops[i].temporary;
          Bytes total = 0;
          for (std::size_t c = 0; c < kCategories; ++c) {
            total += sums[i][c];
            category[c] = std::max(category[c], sums[i][c]);
          }
          peak = std::max(peak, total);
        }
        const auto report = memory_walk(program);
        EXPECT_EQ(report.peak, peak);
        Bytes split = 0;
        for (std::size_t c = 0; c < kCategories; ++c) {
          EXPECT_EQ(report.category_peak[c], category[c]);
          EXPECT_EQ(report.at_peak[c], sums[static_cast<std::size_t>(report.peak_op)][c]);
          split += report.at_peak[c];
        }
        EXPECT_EQ(split, peak);
        ASSERT_EQ(report.live_after.size(), ops);
        Bytes persistent = 0;
        for (const auto& info : program.buffers) persistent += info.persistent ? own_bytes(info) : 0;
        EXPECT_EQ(report.live_after.back(), persistent);
      },
      [&](const std::string& text) { what = text; });
}

TEST(MemoryWalk, CountsPersistentBuffersOfAnEmptyProgram) {
  Program program;
  BufferInfo info;
  info.bytes = 100;
  info.persistent = true;
  info.category = Category::kParams;
  program.buffers = {info};
  const auto report = memory_walk(program);
  EXPECT_EQ(report.peak, 100U);
  EXPECT_EQ(report.peak_op, -1);
  EXPECT_EQ(of(report.at_peak, Category::kParams), 100U);
}

TEST(MemoryWalk, NamesTheFirstOpAtThePeak) {
  Program program;
  program.ops.resize(3);
  program.ops[1].temporary = program.ops[2].temporary = 7;
  const auto report = memory_walk(program);
  EXPECT_EQ(report.peak, 7U);
  EXPECT_EQ(report.peak_op, 1);
  EXPECT_EQ(report.live_after, (std::vector<Bytes>{0, 0, 0}));
}

/// Runs a program by the execution rule with ops of random length, and adds up what is live at each instant.
Bytes peak_on_lanes(const Program& program, Random& random) {
  std::vector<double> start(program.ops.size()), end(program.ops.size());
  std::map<Lane, double> lane_free;
  struct Change {
    double time;
    bool start;  // at one instant ends come first
    std::int64_t bytes;
  };
  std::vector<Change> changes;
  Bytes persistent = 0;
  for (const auto& info : program.buffers) persistent += info.persistent ? own_bytes(info) : 0;
  std::exponential_distribution<double> duration(1.0);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    double begin = lane_free[op.lane];
    for (OpId earlier : op.after) begin = std::max(begin, end[static_cast<std::size_t>(earlier)]);
    // Now and then a lane is very slow or very fast.
    const double scale = std::pow(10.0, pick(random, -2, 2));
    start[i] = begin;
    end[i] = lane_free[op.lane] = begin + scale * duration(random);
    std::int64_t allocated = 0, freed = 0;
    for (BufferId id : op.allocates) allocated += static_cast<std::int64_t>(buffer(program, id).bytes);
    for (BufferId id : op.frees) freed += static_cast<std::int64_t>(buffer(program, id).bytes);
    changes.push_back({start[i], true, allocated + static_cast<std::int64_t>(op.temporary)});
    changes.push_back({end[i], false, -freed - static_cast<std::int64_t>(op.temporary)});
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Change& a, const Change& b) { return a.time != b.time ? a.time < b.time : a.start < b.start; });
  std::int64_t live = static_cast<std::int64_t>(persistent), peak = live;
  for (const auto& change : changes) {
    live += change.bytes;
    peak = std::max(peak, live);
  }
  return static_cast<Bytes>(peak);
}

TEST(MemoryWalk, BoundsLanesThatRunAtAnySpeed) {
  std::string what;
  for_random_schedules(
      300, 9000,
      [&](const Schedule& schedule, const Model&, Random& random) {
        SCOPED_TRACE(what);
        const auto bound = memory_walk(schedule.programs[0]).peak;
        for (int run = 0; run < 10; ++run) ASSERT_LE(peak_on_lanes(schedule.programs[0], random), bound);
      },
      [&](const std::string& text) { what = text; });
}

}  // namespace
}  // namespace wirewise::test
