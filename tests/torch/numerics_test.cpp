// Numbers that other systems get wrong without a word: uneven token counts, tied weights on uneven rows, overflow on one rank.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <thread>

#include "wirewise/base/philox.h"
#include "wirewise/torch/executor.h"
#include "wirewise/torch/memory.h"

namespace wirewise {
namespace {

struct Scenario {
  ModelConfig config{Family::kGpt2, 1, 16, 2, 2, 32, 10, 128, true, 1e-5, 10000};
  int ranks = 1;
  int zero = 0;
  int accumulation = 1;
  DType dtype = DType::kFloat32;
  std::int64_t samples = 1;
  std::int64_t sequence = 128;
  double loss_scale = 1;
  int steps = 1;
};

using Weights = std::map<std::string, std::vector<float>>;

struct Outcome {
  Weights before, after;
  std::vector<StepResult> results;  // of the last step, by rank
};

/// Steps of SGD (lr 0.1); `batches(step, rank)` gives each rank's micro-batches.
template <typename Batches>
Outcome train(const Scenario& setup, Batches&& batches) {
  memory::install();
  Strategy strategy;
  strategy.zero = setup.zero;
  strategy.accumulation = setup.accumulation;
  strategy.param_dtype = setup.dtype;
  resolve(strategy, setup.ranks);
  BatchShape shape{setup.samples, setup.sequence, setup.dtype, setup.accumulation > 1 && setup.dtype != DType::kFloat32};
  const Model model = build_model(setup.config, shape, setup.ranks);
  const Schedule schedule = build_train_schedule(model, strategy, setup.ranks, {true, false});
  std::vector<Lanes> lanes = make_thread_lanes(setup.ranks, std::chrono::seconds(60));
  Outcome outcome;
  outcome.results.resize(static_cast<std::size_t>(setup.ranks));
  std::vector<std::unique_ptr<ModelState>> states(static_cast<std::size_t>(setup.ranks));
  const auto collect = [&] {
    Weights weights;
    for (const auto& state : states) {
      for (const OwnedRange& range : state->owned()) {
        auto& values = weights[range.tensor->name];
        values.resize(range.tensor->numel());
        const float* data = state->groups[static_cast<std::size_t>(range.group)].master.const_data_ptr<float>() + range.local;
        std::copy(data, data + range.length, values.begin() + static_cast<std::ptrdiff_t>(range.begin));
      }
    }
    return weights;
  };
  const auto on_ranks = [&](auto&& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < setup.ranks; ++rank) threads.emplace_back([&, rank] { body(static_cast<std::size_t>(rank)); });
    for (auto& thread : threads) thread.join();
  };
  on_ranks([&](std::size_t rank) {
    states[rank] = std::make_unique<ModelState>(model, strategy, schedule.programs[0], lanes[rank]);
    states[rank]->initialize(5);
  });
  outcome.before = collect();
  on_ranks([&](std::size_t rank) {
    at::set_num_threads(1);
    const SegmentTable segments = make_segment_table(model);
    OptimizerOptions optimizer;
    optimizer.adamw = false;
    optimizer.weight_decay = 0;
    Executor executor(model, schedule.programs[0], segments, *states[rank], lanes[rank], optimizer);
    for (int step = 0; step < setup.steps; ++step) {
      StepOptions options;
      options.step = step + 1;
      options.lr = 0.1;
      options.loss_scale = setup.loss_scale;
      options.check_overflow = setup.dtype == DType::kFloat16;
      outcome.results[rank] = executor.train(batches(step, static_cast<int>(rank)), options);
    }
  });
  outcome.after = collect();
  return outcome;
}

double distance(const Weights& a, const Weights& b) {
  double sum = 0;
  for (const auto& [name, values] : a) {
    for (std::size_t i = 0; i < values.size(); ++i) sum += std::pow(values[i] - b.at(name)[i], 2);
  }
  return std::sqrt(sum);
}

/// Rows of 128 tokens of which the first `length` targets count.
MicroBatch padded(const std::vector<int>& lengths, std::int32_t vocab) {
  std::vector<std::int32_t> tokens, targets;
  for (const int length : lengths) {
    for (int i = 0; i < 128; ++i) {
      const auto at = static_cast<std::uint64_t>(length * 1000 + i);
      tokens.push_back(static_cast<std::int32_t>(random_bits(9, 1, at) % static_cast<std::uint64_t>(vocab)));
      targets.push_back(i < length ? static_cast<std::int32_t>(random_bits(9, 2, at) % static_cast<std::uint64_t>(vocab)) : -100);
    }
  }
  return token_micro_batch(static_cast<std::int64_t>(lengths.size()), 128, tokens, targets);
}

TEST(Numerics, UnevenLengthsGiveOneGradientHoweverTheyAreSplit) {
  Scenario whole;
  whole.samples = 4;
  const Outcome reference = train(whole, [](int, int) { return std::vector{padded({5, 128, 17, 3}, 10)}; });
  EXPECT_EQ(reference.results[0].tokens, 5 + 128 + 17 + 3);
  const double moved = distance(reference.before, reference.after);
  ASSERT_GT(moved, 1e-3);
  for (const int ranks : {1, 2}) {
    for (const int accumulation : {1, 2, 4}) {
      for (const int zero : {0, 3}) {
        const int samples = 4 / (ranks * accumulation);
        if (samples == 0) continue;
        Scenario split;
        split.ranks = ranks;
        split.zero = zero;
        split.accumulation = accumulation;
        split.samples = samples;
        const Outcome outcome = train(split, [&](int, int rank) {
          const std::vector<int> lengths{5, 128, 17, 3};
          std::vector<MicroBatch> mine;
          for (int micro = 0; micro < accumulation; ++micro) {
            const auto first = lengths.begin() + (micro * ranks + rank) * samples;
            mine.push_back(padded({first, first + samples}, 10));
          }
          return mine;
        });
        EXPECT_LT(distance(reference.after, outcome.after), 1e-5 * moved) << ranks << " ranks, accumulation " << accumulation << ", zero " << zero;
        EXPECT_NEAR(outcome.results[0].loss, reference.results[0].loss, 1e-6);
      }
    }
  }
}

TEST(Numerics, TiedEmbeddingMovesInEveryRowOnEveryRank) {
  // A vocabulary of 10 on 4 ranks: shares by rows would be 3, 3, 3, 1.
  const auto batches = [](int step, int) {
    std::vector<std::int32_t> tokens, targets;
    for (int i = 0; i < 30; ++i) {
      tokens.push_back((i + step) % 10);
      targets.push_back((i * 3 + step) % 10);
    }
    return std::vector{token_micro_batch(1, 30, tokens, targets)};
  };
  Scenario one;
  one.sequence = 30;
  one.steps = 3;
  const Outcome alone = train(one, batches);
  for (const int zero : {0, 1, 2, 3}) {
    Scenario four = one;
    four.ranks = 4;
    four.zero = zero;
    const Outcome outcome = train(four, batches);
    const auto& before = outcome.before.at("transformer.wte.weight");
    const auto& after = outcome.after.at("transformer.wte.weight");
    for (std::size_t row = 0; row < 10; ++row) {
      double moved = 0;
      for (std::size_t i = 0; i < 16; ++i) moved += std::abs(before[row * 16 + i] - after[row * 16 + i]);
      EXPECT_GT(moved, 1e-4) << "row " << row << ", zero " << zero;
    }
    EXPECT_LT(distance(alone.after, outcome.after), 1e-5 * distance(alone.before, alone.after));
  }
}

TEST(Numerics, OverflowSkipsTheStepOnEveryRankAndNamesWhereItBegan) {
  for (const int zero : {0, 1, 2, 3}) {
    Scenario setup;
    setup.ranks = 2;
    setup.zero = zero;
    setup.dtype = DType::kFloat16;
    setup.sequence = 16;
    setup.loss_scale = 1e9;
    const Outcome outcome = train(setup, [](int, int) {
      const std::vector<std::int32_t> tokens(16, 3), targets(16, 4);
      return std::vector{token_micro_batch(1, 16, tokens, targets)};
    });
    for (const StepResult& result : outcome.results) {
      EXPECT_TRUE(result.skipped);
      EXPECT_EQ(result.overflow, outcome.results[0].overflow);
      EXPECT_NE(result.overflow.find(" on rank 0"), std::string::npos) << result.overflow;
      EXPECT_NE(result.overflow.find("transformer."), std::string::npos) << result.overflow;
    }
    EXPECT_EQ(outcome.before, outcome.after) << "zero " << zero;
  }
}

TEST(Numerics, LossScaleLeavesTheStepAlone) {
  const auto batches = [](int, int rank) {
    std::vector<std::int32_t> tokens, targets;
    for (int i = 0; i < 16; ++i) {
      tokens.push_back((i * 7 + rank) % 10);
      targets.push_back((i * 3 + rank) % 10);
    }
    return std::vector{token_micro_batch(1, 16, tokens, targets)};
  };
  Scenario setup;
  setup.ranks = 2;
  setup.zero = 3;
  setup.sequence = 16;
  const Outcome plain = train(setup, batches);
  setup.loss_scale = 1024;
  const Outcome scaled = train(setup, batches);
  EXPECT_EQ(plain.after, scaled.after) << "a power of two changes no bit in float32";
  EXPECT_EQ(plain.results[0].grad_norm, scaled.results[0].grad_norm);
}

}  // namespace
}  // namespace wirewise
