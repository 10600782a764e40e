// Strategies are equal to the bit: for one dtype, number of ranks and accumulation policy the weights after 20 steps have one hash, whatever the
// ZeRO stage, prefetch, bucket or recompute. Ranks are threads here; tests/e2e has a smaller matrix with processes.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "wirewise/base/philox.h"
#include "wirewise/torch/executor.h"
#include "wirewise/torch/memory.h"

namespace wirewise {
namespace {

constexpr std::int64_t kSamples = 2;
constexpr std::int64_t kSequence = 16;
constexpr int kSteps = 20;

struct Case {
  Family family = Family::kGpt2;
  bool tied = true;
  int ranks = 2;
  Strategy strategy;
  bool adamw = true;
  std::int64_t samples = kSamples;
};

MicroBatch batch_at(std::uint64_t first_row, std::int64_t samples) {
  std::vector<std::int32_t> tokens, targets;
  for (std::int64_t i = 0; i < samples * kSequence; ++i) {
    const auto at = first_row * kSequence + static_cast<std::uint64_t>(i);
    tokens.push_back(static_cast<std::int32_t>(random_bits(3, 1, at) % 61));
    targets.push_back((tokens.back() * 7 + 1) % 61);  // can be learnt
  }
  return token_micro_batch(samples, kSequence, tokens, targets);
}

struct Outcome {
  std::string hash;
  std::vector<double> losses;
  std::vector<double> norms;   // of the last step, by rank
};

Outcome run(Case c) {
  memory::install();
  resolve(c.strategy, c.ranks);
  ModelConfig config{c.family, 2, 32, 4, c.family == Family::kLlama ? 2 : 4, 72, 61, 16, c.tied, 1e-5, 10000};
  BatchShape shape{c.samples, kSequence, c.strategy.param_dtype, false};
  shape.separate_gradient = c.strategy.accumulation > 1 && c.strategy.accumulation_policy == AccumulationPolicy::kLocalSum &&
                            c.strategy.param_dtype != DType::kFloat32;
  const Model model = build_model(config, shape, c.ranks);
  const Schedule schedule = build_train_schedule(model, c.strategy, c.ranks, {true, c.adamw});
  std::vector<Lanes> lanes = make_thread_lanes(c.ranks, std::chrono::seconds(60));
  Outcome outcome;
  outcome.norms.resize(static_cast<std::size_t>(c.ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < c.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      const Lanes& mine = lanes[static_cast<std::size_t>(rank)];
      const SegmentTable segments = make_segment_table(model);
      ModelState state(model, c.strategy, schedule.programs[0], mine);
      state.initialize(11);
      OptimizerOptions optimizer;
      optimizer.adamw = c.adamw;
      Executor executor(model, schedule.programs[0], segments, state, mine, optimizer);
      for (int step = 0; step < kSteps; ++step) {
        std::vector<MicroBatch> batches;
        for (int micro = 0; micro < c.strategy.accumulation; ++micro) {
          const int index = (step * c.strategy.accumulation + micro) * c.ranks + rank;
          batches.push_back(batch_at(static_cast<std::uint64_t>(index * c.samples), c.samples));
        }
        StepOptions options;
        options.step = step + 1;
        options.lr = 3e-3;
        options.clip = 0.5;
        const StepResult result = executor.train(batches, options);
        if (rank == 0) outcome.losses.push_back(result.loss);
        outcome.norms[static_cast<std::size_t>(rank)] = result.grad_norm;
      }
      const std::string hash = state.weights_sha256(mine);
      if (rank == 0) outcome.hash = hash;
    });
  }
  for (auto& thread : threads) thread.join();
  return outcome;
}

Strategy strategy(const std::string& name, DType dtype) {
  Strategy result;
  apply_name(result, name);
  result.param_dtype = dtype;
  return result;
}

std::vector<Strategy> variants(DType dtype) {
  std::vector<Strategy> all;
  for (const char* name : {"ddp", "zero1", "zero2", "zero3"}) {
    for (const int prefetch : {0, 2}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        for (const Bytes bucket : {Bytes{0}, Bytes{20000}, Bytes{1} << 30}) {
          // A third of the product visits each pair of values.
          if ((prefetch / 2 + static_cast<int>(recompute) + static_cast<int>(bucket % 7)) % 3 == 1 && bucket != 0) continue;
          Strategy s = strategy(name, dtype);
          s.prefetch = prefetch;
          s.recompute = recompute;
          s.bucket = bucket;
          all.push_back(s);
        }
      }
    }
  }
  for (const int prefetch : {0, 2}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      Strategy s = strategy("zero3", dtype);
      s.prefetch = prefetch;
      s.recompute = recompute;
      s.alias = Alias::kOn;
      all.push_back(s);
    }
  }
  Strategy keep = strategy("zero3", dtype);
  keep.keep_after_forward = true;
  all.push_back(keep);
  return all;
}

class Bits : public testing::TestWithParam<std::tuple<DType, int, Family>> {};

TEST_P(Bits, OneHashForEveryStrategy) {
  const auto [dtype, ranks, family] = GetParam();
  std::set<std::string> hashes;
  for (const Strategy& s : variants(dtype)) {
    const Outcome outcome = run({family, family == Family::kGpt2, ranks, s});
    hashes.insert(outcome.hash);
    EXPECT_EQ(hashes.size(), 1U) << name_of(s) << " prefetch " << s.prefetch << " recompute " << static_cast<int>(s.recompute) << " bucket "
                                 << s.bucket << " keep " << s.keep_after_forward << " aliased " << is_aliased(s);
    EXPECT_LT(outcome.losses.back(), outcome.losses.front());
    for (const double norm : outcome.norms) EXPECT_EQ(norm, outcome.norms.front()) << "every rank reports the one global norm";
  }
}

INSTANTIATE_TEST_SUITE_P(DtypesAndRanks, Bits,
                         testing::Combine(testing::Values(DType::kFloat32, DType::kBFloat16), testing::Values(2, 4),
                                          testing::Values(Family::kGpt2, Family::kLlama)));

TEST(Bits, OneHashForEveryStrategyAndEachAccumulationPolicy) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const AccumulationPolicy policy : {AccumulationPolicy::kLocalSum, AccumulationPolicy::kReduceEach}) {
      std::set<std::string> hashes;
      for (const char* name : {"ddp", "zero1", "zero2", "zero3"}) {
        Strategy s = strategy(name, dtype);
        s.accumulation = 3;
        s.accumulation_policy = policy;
        hashes.insert(run({Family::kGpt2, true, 3, s}).hash);
        if (s.zero != 3) continue;
        s.alias = Alias::kOn;
        hashes.insert(run({Family::kGpt2, true, 3, s}).hash);
        s.prefetch = 0;
        s.recompute = Recompute::kFull;
        hashes.insert(run({Family::kGpt2, true, 3, s}).hash);
      }
      EXPECT_EQ(hashes.size(), 1U) << name_of(dtype) << " policy " << static_cast<int>(policy);
    }
  }
}

TEST(Bits, OneRankWithTheSameGlobalBatchLosesTheSame) {
  const Outcome one = run({Family::kGpt2, true, 1, strategy("ddp", DType::kFloat32), true, 4 * kSamples});
  const Outcome four = run({Family::kGpt2, true, 4, strategy("zero3", DType::kFloat32)});
  for (std::size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(one.losses[i], four.losses[i], 1e-6) << "step " << i + 1;
}

TEST(Bits, AccumulationUnderSgdEqualsTheLargeBatch) {
  Strategy accumulated = strategy("zero2", DType::kFloat32);
  accumulated.accumulation = 4;
  const Outcome many = run({Family::kGpt2, true, 1, accumulated, false});
  const Outcome large = run({Family::kGpt2, true, 1, strategy("ddp", DType::kFloat32), false, 4 * kSamples});
  for (std::size_t i = 0; i < many.losses.size(); ++i) EXPECT_NEAR(many.losses[i], large.losses[i], 1e-6) << "step " << i + 1;
}

}  // namespace
}  // namespace wirewise
