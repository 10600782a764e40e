// Training a user's modules: equal bits under every strategy, libtorch's own autograd and optimizer as the oracle, memory to the byte where
// it is known, and errors that name the unit and the rank.
#include "wirewise/torch/trainer.h"

#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <map>
#include <random>

#include "torch/custom_chain.h"
#include "wirewise/base/error.h"
#include "wirewise/torch/memory.h"

namespace wirewise::test {
namespace {

using Weights = std::map<std::string, at::Tensor>;

struct Trained {
  std::string hash;
  std::vector<double> losses;
  Weights weights;
};

struct Case {
  int ranks = 1;
  int steps = 5;
  std::int64_t samples = 8;   // of all ranks
  TrainerOptions options;
  std::function<std::vector<Unit>()> chain = [] { return tied_chain(); };
};

Weights weights_of(Trainer& trainer) {
  Weights weights;
  trainer.for_each_parameter([&](const std::string& name, const at::Tensor& value) { weights[name] = value.clone(); });
  return weights;
}

Trained train(const Case& c) {
  Trained run;
  on_ranks(c.ranks, [&](int rank, const Lanes& lanes) {
    Trainer trainer(lanes, c.chain(), token_loss, c.options);
    std::vector<double> losses;
    for (int step = 0; step < c.steps; ++step) {
      const Batch mine = share(token_batch(c.samples, step), rank, c.ranks);
      losses.push_back(trainer.step(mine.inputs, mine.targets).loss);
    }
    Weights weights = weights_of(trainer);
    std::string hash = trainer.weights_sha256();
    if (rank == 0) run = {std::move(hash), std::move(losses), std::move(weights)};
  });
  return run;
}

TrainerOptions options_of(const std::string& strategy, DType dtype = DType::kFloat32) {
  TrainerOptions options;
  apply_name(options.strategy, strategy);
  options.strategy.param_dtype = dtype;
  options.lr = 1e-2;
  options.clip = 0.5;
  return options;
}

void expect_close(const Weights& a, const Weights& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, value] : a) {
    const double difference = (value - b.at(name)).abs().max().item<double>();
    EXPECT_LE(difference, tolerance) << name;
  }
}

TEST(Trainer, AllStrategiesGiveTheSameBits) {
  for (const int ranks : {2, 4}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      std::string hash;
      for (const char* strategy : {"ddp", "zero1", "zero2", "zero3"}) {
        for (const int prefetch : {0, 2}) {
          for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
            Case c{.ranks = ranks, .steps = 4, .options = options_of(strategy, dtype)};
            c.options.strategy.prefetch = prefetch;
            c.options.strategy.recompute = recompute;
            // One host: ZeRO-3 shares its parameters unless told not to.
            c.options.strategy.alias = prefetch == 0 ? Alias::kAuto : Alias::kOff;
            const Trained run = train(c);
            if (hash.empty()) hash = run.hash;
            EXPECT_EQ(run.hash, hash) << strategy << ", " << ranks << " ranks, " << name_of(dtype) << ", prefetch " << prefetch << ", recompute "
                                      << static_cast<int>(recompute);
          }
        }
      }
    }
  }
}

TEST(Trainer, OneRankEqualsPlainLibtorch) {
  Case c{.ranks = 1, .steps = 10, .options = options_of("ddp")};
  c.options.clip = 0;
  c.options.optimizer.weight_decay = 0;
  const Trained run = train(c);

  std::vector<Unit> units = tied_chain();
  std::vector<at::Tensor> variables;
  const std::vector<CustomParameter> parameters = parameters_of(units);
  for (const CustomParameter& parameter : parameters) variables.push_back(parameter.variable);
  torch::optim::AdamW optimizer(variables, torch::optim::AdamWOptions(1e-2).weight_decay(0));
  for (int step = 0; step < c.steps; ++step) {
    const Batch batch = token_batch(c.samples, step);
    at::Tensor x = batch.inputs;
    for (const Unit& link : units) x = link.forward(x);
    at::Tensor loss = token_loss(x, batch.targets);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    EXPECT_NEAR(run.losses[static_cast<std::size_t>(step)], loss.item<double>(), 1e-6) << "step " << step;
  }
  Weights expected;
  for (const CustomParameter& parameter : parameters) expected[parameter.name] = parameter.variable.detach();
  expect_close(run.weights, expected, 1e-6);
}

TEST(Trainer, TiedRowsThatDoNotDivideByRanksAllMove) {
  Case c{.ranks = 4, .steps = 1, .options = options_of("zero3")};
  c.options.optimizer.weight_decay = 0;
  c.options.optimizer.adamw = false;
  const Trained many = train(c);
  c.ranks = 1;
  const Trained one = train(c);
  expect_close(many.weights, one.weights, 1e-6);
  std::vector<Unit> units = tied_chain();
  const at::Tensor before = parameters_of(units).front().variable.detach();
  const at::Tensor moved = (many.weights.at("embedding.weight") - before).abs().amax(1);
  for (std::int64_t row = 0; row < kVocab; ++row) EXPECT_GT(moved[row].item<double>(), 0) << "row " << row;
}

TEST(Trainer, AccumulationEqualsTheLargeBatch) {
  Case c{.ranks = 2, .samples = 16, .options = options_of("zero2")};
  c.options.optimizer.adamw = false;
  c.options.lr = 0.1;
  const Trained whole = train(c);
  for (const AccumulationPolicy policy : {AccumulationPolicy::kLocalSum, AccumulationPolicy::kReduceEach}) {
    c.options.strategy.accumulation = 3;   // 8 samples a rank: micro-batches of 3, 3 and 2
    c.options.strategy.accumulation_policy = policy;
    const Trained split = train(c);
    expect_close(split.weights, whole.weights, 2e-6);
    for (std::size_t i = 0; i < whole.losses.size(); ++i) EXPECT_NEAR(split.losses[i], whole.losses[i], 1e-5);
  }
}

TEST(Trainer, RanksWithUnequalSharesEqualOneRank) {
  Case c{.ranks = 3, .samples = 7, .options = options_of("zero3")};   // 3, 2 and 2 samples
  c.options.optimizer.adamw = false;
  const Trained many = train(c);
  c.ranks = 1;
  expect_close(many.weights, train(c).weights, 2e-6);
}

TEST(Trainer, SumAndMeanLossesTrainAlike) {
  Case c{.ranks = 2, .options = options_of("zero3")};
  const Trained mean = train(c);
  Trained sum;
  c.options.reduction = LossReduction::kSum;
  on_ranks(2, [&](int rank, const Lanes& lanes) {
    Trainer trainer(lanes, tied_chain(), [](const at::Tensor& output, const at::Tensor& targets) {
      return torch::nn::functional::cross_entropy(output.reshape({-1, kVocab}), targets.reshape(-1),
                                                  torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
    }, c.options);
    for (int step = 0; step < c.steps; ++step) {
      const Batch mine = share(token_batch(c.samples, step), rank, 2);
      trainer.step(mine.inputs, mine.targets);
    }
    Weights weights = weights_of(trainer);
    if (rank == 0) sum.weights = std::move(weights);
  });
  expect_close(sum.weights, mean.weights, 1e-4);
}

TEST(Trainer, FullyMaskedMicroBatchCountsNothing) {
  TrainerOptions options = options_of("zero3");
  std::string whole, masked;
  for (const bool with_masked : {false, true}) {
    on_ranks(2, [&](int rank, const Lanes& lanes) {
      options.strategy.accumulation = with_masked ? 2 : 1;
      Trainer trainer(lanes, tied_chain(), token_loss, options);
      for (int step = 0; step < 2; ++step) {
        const Batch mine = share(token_batch(8, step), rank, 2);
        std::vector<Batch> batches(with_masked ? 2 : 1, mine);
        if (with_masked) batches.back().targets = torch::full_like(mine.targets, -100);
        EXPECT_TRUE(std::isfinite(trainer.step(batches).loss));
      }
      const std::string hash = trainer.weights_sha256();
      if (rank == 0) (with_masked ? masked : whole) = hash;
    });
  }
  EXPECT_EQ(masked, whole);
}

TEST(Trainer, RankZerosValuesBecomeEveryRanks) {
  std::vector<std::string> hashes(3);
  on_ranks(3, [&](int rank, const Lanes& lanes) {
    std::vector<Unit> units = tied_chain();
    if (rank != 0) fill(*units[1].module, static_cast<std::uint64_t>(100 + rank));
    TrainerOptions options = options_of("ddp");
    const Trainer trainer(lanes, std::move(units), token_loss, options);
    hashes[static_cast<std::size_t>(rank)] = trainer.weights_sha256();
  });
  Case untouched{.ranks = 1, .steps = 0, .options = options_of("ddp")};
  for (const std::string& hash : hashes) EXPECT_EQ(hash, train(untouched).hash);
}

TEST(Trainer, RecomputeDrawsTheSameDropout) {
  Case c{.options = options_of("ddp")};
  c.chain = [] { return tied_chain(0.3); };
  const Trained kept = train(c);
  c.options.strategy.recompute = Recompute::kFull;
  const Trained again = train(c);
  EXPECT_EQ(again.hash, kept.hash);
  c.options.seed = 1;
  EXPECT_NE(train(c).hash, kept.hash) << "the seed must matter";
}

TEST(Trainer, DrawsLeaveTheCallersGeneratorAlone) {
  Trainer trainer(World{}, tied_chain(0.3), token_loss, options_of("ddp"));
  torch::manual_seed(5);
  const at::Tensor expected = torch::rand({3});
  torch::manual_seed(5);
  const Batch batch = token_batch(4, 0);
  trainer.step(batch.inputs, batch.targets);
  EXPECT_TRUE(torch::equal(torch::rand({3}), expected));
}

TEST(Trainer, Float16FindsALossScaleThatFits) {
  Case c{.ranks = 2, .steps = 40, .options = options_of("zero3", DType::kFloat16)};
  const Trained run = train(c);
  EXPECT_LT(run.losses.back(), run.losses.front());
  c.options = options_of("ddp", DType::kFloat16);
  EXPECT_EQ(train(c).hash, run.hash);
}

struct PartlyUsedImpl : torch::nn::Module {
  PartlyUsedImpl()
      : used(register_module("used", torch::nn::Linear(kWidth, kWidth))), unused(register_module("unused", torch::nn::Linear(kWidth, kWidth))) {
    fill(*this, 9);
  }
  torch::Tensor forward(const torch::Tensor& x) { return used(x); }
  torch::nn::Linear used, unused;
};
TORCH_MODULE(PartlyUsed);

TEST(Trainer, UnusedParameterStaysWhereItIs) {
  Case c{.ranks = 2, .options = options_of("zero3")};
  c.options.optimizer.weight_decay = 0;
  c.chain = [] {
    std::vector<Unit> units = tied_chain();
    units.insert(units.begin() + 2, unit("partly", PartlyUsed()));
    return units;
  };
  const Trained run = train(c);
  const PartlyUsed fresh;
  EXPECT_TRUE(torch::equal(run.weights.at("partly.unused.weight"), fresh->unused->weight.detach()));
  EXPECT_FALSE(torch::equal(run.weights.at("partly.used.weight"), fresh->used->weight.detach()));
}

TEST(Trainer, EvaluateIsTheMeanLossAndForwardTheOutput) {
  for (const Alias alias : {Alias::kOn, Alias::kOff}) on_ranks(2, [&](int rank, const Lanes& lanes) {
    TrainerOptions options = options_of("zero3");
    options.strategy.alias = alias;
    Trainer trainer(lanes, tied_chain(0.5), token_loss, options);
    EXPECT_EQ(std::any_of(trainer.schedule().programs[0].ops.begin(), trainer.schedule().programs[0].ops.end(),
                          [](const Op& op) { return op.kind == OpKind::kGather; }),
              alias == Alias::kOff);
    const Batch batch = token_batch(6, 0);
    const Batch mine = share(batch, rank, 2);
    std::vector<Unit> reference = tied_chain(0.5);
    at::Tensor x = batch.inputs;
    {
      const torch::NoGradGuard no_grad;
      for (const Unit& link : reference) {
        if (link.module) link.module->eval();
        x = link.forward(x);
      }
    }
    EXPECT_NEAR(trainer.evaluate(mine.inputs, mine.targets), token_loss(x, batch.targets).item<double>(), 1e-5);
    const at::Tensor output = trainer.forward(mine.inputs);
    EXPECT_TRUE(torch::allclose(output, x.tensor_split(2)[static_cast<std::size_t>(rank)], 1e-5, 1e-6));
  });
}

TEST(Trainer, ModulesHoldNoMemoryBetweenSteps) {
  std::vector<Unit> units = tied_chain();
  const std::vector<CustomParameter> parameters = parameters_of(units);
  Trainer trainer(World{}, units, token_loss, options_of("zero3"));
  const Batch batch = token_batch(4, 0);
  for (int step = 0; step < 2; ++step) {
    for (const CustomParameter& parameter : parameters) {
      EXPECT_EQ(parameter.variable.storage().nbytes(), 0U) << parameter.name;
      EXPECT_THROW((void)parameter.variable.sum(), c10::Error) << parameter.name;
    }
    trainer.step(batch.inputs, batch.targets);
  }
}

TEST(Trainer, PredictedMemoryIsMeasuredMemory) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
    TrainerOptions options = options_of("ddp");
    options.strategy.recompute = recompute;
    const std::int64_t width = 96;
    std::vector<Unit> units{unit("in", torch::nn::Linear(32, width))};
    for (int i = 0; i < 4; ++i) units.push_back(unit("block" + std::to_string(i), Block(width)));
    units.push_back(unit("out", torch::nn::Linear(width, 1)));
    Trainer trainer(World{}, std::move(units), [](const at::Tensor& y, const at::Tensor& t) { return torch::mse_loss(y, t); }, options);
    const at::Tensor inputs = torch::rand({512, 32}), targets = torch::rand({512, 1});
    for (int step = 0; step < 3; ++step) trainer.step(inputs, targets);
    const TrainerMemory memory = trainer.memory();
    const double ratio = static_cast<double>(memory.predicted.peak) / static_cast<double>(memory.measured_peak);
    EXPECT_NEAR(ratio, 1.0, 0.03) << memory.predicted.peak << " predicted, " << memory.measured_peak << " measured, at op "
                                  << describe(trainer.schedule().programs[0].ops[static_cast<std::size_t>(memory.predicted.peak_op)], trainer.model());
  }
}

TEST(Trainer, ReadingAnotherUnitsParameterNamesTheUnit) {
  const torch::nn::Linear first(3, 3), second(3, 3);
  const std::vector<Unit> units{unit("first", first),
                                unit("second", second, [first](auto& self, const at::Tensor& x) { return self.forward(x).matmul(first->weight); })};
  Trainer trainer(World{}, units, [](const at::Tensor& y, const at::Tensor& t) { return torch::mse_loss(y, t); }, {});
  try {
    trainer.step(torch::rand({2, 3}), torch::rand({2, 3}));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("unit second failed in forward"), std::string::npos) << error.what();
  }
}

TEST(Trainer, RefusesBatchesWithoutSamples) {
  Trainer trainer(World{}, tied_chain(), token_loss, options_of("ddp"));
  const Batch batch = token_batch(4, 0);
  EXPECT_THROW(trainer.step(batch.inputs.narrow(0, 0, 0), batch.targets.narrow(0, 0, 0)), Error);
  EXPECT_THROW(trainer.step(batch.inputs, batch.targets.narrow(0, 0, 2)), Error);
  EXPECT_THROW(trainer.step({}, batch.targets), Error);
  EXPECT_THROW(trainer.step(std::vector<Batch>{batch, batch}), Error);
  EXPECT_NO_THROW(trainer.step(batch.inputs, batch.targets)) << "a refused batch must leave the trainer usable";
}

TEST(Trainer, GradientThatIsNotFiniteStopsAndNamesTheParameter) {
  torch::nn::Linear linear(2, 2);
  Trainer trainer(World{}, {unit("only", linear)}, [](const at::Tensor& y, const at::Tensor& t) { return torch::mse_loss(y, t); }, {});
  const std::string before = trainer.weights_sha256();
  try {
    trainer.step(torch::full({2, 2}, std::numeric_limits<float>::infinity()), torch::ones({2, 2}));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("only."), std::string::npos) << error.what();
  }
  EXPECT_EQ(trainer.weights_sha256(), before);
}

TEST(Trainer, RanksWithOtherModelsOrOptionsAreNamed) {
  const auto errors = try_ranks(3, [](int rank, const Lanes& lanes) {
    std::vector<Unit> units{unit("in", torch::nn::Linear(4, rank == 2 ? 5 : 6))};
    const Trainer trainer(lanes, units, token_loss, {});
  });
  for (const auto& error : errors) EXPECT_NE(message_of(error).find("rank 2"), std::string::npos) << message_of(error);
  EXPECT_NE(message_of(errors[2]).find("in.weight [5, 4]"), std::string::npos) << message_of(errors[2]);
  EXPECT_NE(message_of(errors[2]).find("in.weight [6, 4]"), std::string::npos) << message_of(errors[2]);
}

TEST(Trainer, PeersHearWhichRankFailed) {
  const auto errors = try_ranks(2, [](int rank, const Lanes& lanes) {
    std::vector<Unit> units = tied_chain();
    if (rank == 1) units[1].forward = [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("the disk is full"); };
    Trainer trainer(lanes, std::move(units), token_loss, options_of("zero3"));
    const Batch mine = share(token_batch(4, 0), rank, 2);
    trainer.step(mine.inputs, mine.targets);
  });
  EXPECT_NE(message_of(errors[0]).find("rank 1 failed: the disk is full"), std::string::npos) << message_of(errors[0]);
  EXPECT_NE(message_of(errors[1]).find("the disk is full"), std::string::npos) << message_of(errors[1]);
}

}  // namespace
}  // namespace wirewise::test
