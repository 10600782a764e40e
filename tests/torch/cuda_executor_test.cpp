// Training as on a device, on a device made of host memory: collectives staged through pinned memory with copies that come late, every
// kernel by libtorch's operators, one shard or gathered buffer of the device's own allocator. Losses must be the CPU's.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <exception>
#include <optional>
#include <thread>

#include "comm/host_device.h"
#include "wirewise/base/philox.h"
#include "wirewise/comm/staged_communicator.h"
#include "wirewise/torch/executor.h"
#include "wirewise/torch/kernels_aten.h"
#include "wirewise/torch/memory.h"

namespace wirewise {
namespace {

constexpr std::int64_t kSamples = 2;
constexpr std::int64_t kSequence = 16;
constexpr int kSteps = 8;
constexpr int kRanks = 2;

MicroBatch batch_at(int step, int rank, int micro) {
  std::vector<std::int32_t> tokens, targets;
  for (std::int64_t i = 0; i < kSamples * kSequence; ++i) {
    const auto at = static_cast<std::uint64_t>(((step * kRanks + rank) * 4 + micro) * 1000 + i);
    tokens.push_back(static_cast<std::int32_t>(random_bits(3, 1, at) % 61));
    targets.push_back(i == 5 ? -1 : (tokens.back() * 7 + 1) % 61);
  }
  return token_micro_batch(kSamples, kSequence, tokens, targets);
}

struct Outcome {
  std::vector<double> losses, norms;
  double validation = 0;
};

Outcome train(Family family, Strategy strategy, bool on_device) {
  memory::install();
  resolve(strategy, kRanks);
  const ModelConfig config{family, 2, 32, 4, family == Family::kLlama ? 2 : 4, 72, 61, 16, true, 1e-5, 10000};
  BatchShape shape{kSamples, kSequence, strategy.param_dtype, false};
  shape.separate_gradient = strategy.accumulation > 1 && strategy.param_dtype != DType::kFloat32;
  const Model model = build_model(config, shape, kRanks);
  const Schedule schedule = build_train_schedule(model, strategy, kRanks, {true, true});
  const Schedule forward = build_forward_schedule(model, strategy, kRanks);
  auto host = make_thread_lanes(kRanks, std::chrono::seconds(60));
  Outcome outcome;
  std::vector<std::string> errors(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      std::optional<kernels::AtenEverywhere> switched;
      Lanes lanes = std::move(host[static_cast<std::size_t>(rank)]);
      const auto device = std::make_shared<testing::HostDevice>();
      if (on_device) {
        switched.emplace();
        for (auto* lane : {&lanes.gather, &lanes.reduce}) *lane = make_staged_communicator((*lane)->split(0, rank), device);
        lanes.accelerator = device;
      }
      try {
        const SegmentTable segments = make_segment_table(model);
        ModelState state(model, strategy, schedule.programs[0], lanes);
        state.initialize(11);
        Executor executor(model, schedule.programs[0], segments, state, lanes, {});
        for (int step = 0; step < kSteps; ++step) {
          std::vector<MicroBatch> batches;
          for (int micro = 0; micro < strategy.accumulation; ++micro) batches.push_back(batch_at(step, rank, micro));
          StepOptions options;
          options.step = step + 1;
          options.lr = 3e-3;
          options.clip = 0.5;
          const StepResult result = executor.train(batches, options);
          if (rank == 0) {
            outcome.losses.push_back(result.loss);
            outcome.norms.push_back(result.grad_norm);
          }
        }
        Executor validate(model, forward.programs[0], segments, state, lanes, {});
        const double loss = validate.evaluate(batch_at(99, rank, 0));
        if (rank == 0) outcome.validation = loss;
        MicroBatch prompt = batch_at(99, rank, 0);
        prompt.targets.reset();
        EXPECT_EQ(validate.logits(prompt).size(-1), 61);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
        for (const auto& lane : {lanes.gather, lanes.reduce, lanes.control}) lane->abort(error.what());
      }
      if (on_device && errors[static_cast<std::size_t>(rank)].empty()) {
        EXPECT_GT(device->pins, 0);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  return outcome;
}

TEST(TrainingOnADevice, HasTheLossesOfTheCpu) {
  for (const Family family : {Family::kGpt2, Family::kLlama}) {
    for (const char* name : {"ddp", "zero2", "zero3"}) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        Strategy strategy;
        apply_name(strategy, name);
        strategy.param_dtype = dtype;
        strategy.accumulation = family == Family::kGpt2 ? 2 : 1;
        strategy.prefetch = 2;
        const Outcome cpu = train(family, strategy, false);
        const Outcome device = train(family, strategy, true);
        ASSERT_EQ(cpu.losses.size(), device.losses.size());
        const double tolerance = dtype == DType::kFloat32 ? 2e-5 : 2e-2;
        for (std::size_t step = 0; step < cpu.losses.size(); ++step) {
          EXPECT_NEAR(device.losses[step], cpu.losses[step], tolerance) << name << " step " << step;
          EXPECT_NEAR(device.norms[step], cpu.norms[step], 5 * tolerance * cpu.norms[step]) << name << " step " << step;
        }
        EXPECT_NEAR(device.validation, cpu.validation, tolerance);
        EXPECT_LT(cpu.losses.back(), cpu.losses.front()) << "it learns";
      }
    }
  }
}

}  // namespace
}  // namespace wirewise
