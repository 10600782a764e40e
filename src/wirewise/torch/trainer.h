// Trains a user's own torch::nn modules under any data-parallel strategy: the door for programs in C++.
//
//   const wirewise::World world = wirewise::join_world();
//   wirewise::Trainer trainer(world, {wirewise::unit("hidden", hidden), wirewise::unit("out", out)}, loss, options);
//   for (...) trainer.step(inputs, targets);
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/torch/custom_model.h"
#include "wirewise/torch/executor.h"
#include "wirewise/torch/rendezvous.h"

namespace wirewise {

/// The ranks that a launcher started (torchrun's variables, as `wirewise launch` sets them); without a launcher a world of one rank.
[[nodiscard]] World join_world(std::chrono::milliseconds timeout = std::chrono::minutes(5));

struct TrainerOptions {
  /// apply_name(options.strategy, "zero3") sets the stage. `accumulation`: micro-batches into which step() splits a batch.
  /// param_dtype is what forward and backward see; master weights and moments are float32 in any case.
  Strategy strategy{.param_dtype = DType::kFloat32};
  double lr = 1e-3;
  /// As torch::optim::AdamW, but weight decay leaves parameters of one dimension (biases, norms) alone. adamw false: SGD.
  OptimizerOptions optimizer{.beta2 = 0.999, .weight_decay = 0.01};
  double clip = 0;                                      // largest global gradient norm; 0: no clipping
  LossReduction reduction = LossReduction::kMean;       // what the loss function returns
  std::uint64_t seed = 0;                               // of dropout
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // how long ranks wait for each other
};

/// One micro-batch: the first dimension is the sample.
struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
};

/// Tensor bytes of this rank, predicted from the schedule and measured by the allocator.
struct TrainerMemory {
  MemoryReport predicted;
  Bytes measured_peak = 0;   // of the steps after the first, over the same tensors
};

class Trainer {
 public:
  /// Takes the model over: rank 0's values become every rank's, each rank keeps its share, and the modules' own parameters are freed. From
  /// then on parameters can be read only by their unit's forward; for_each_parameter reads the weights. All ranks pass modules of the same shapes.
  /// Throws bad input for what can't be trained (see parameters_of), kMismatch when ranks pass different models or options. Collective.
  Trainer(const World& world, std::vector<Unit> units, LossFunction loss, TrainerOptions options = {});
  /// The same over communicators that exist already, such as those of ranks that are threads (make_thread_lanes).
  Trainer(Lanes lanes, std::vector<Unit> units, LossFunction loss, TrainerOptions options = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// One optimizer step on this rank's samples, split into strategy.accumulation micro-batches along the first dimension. Ranks may pass different
  /// numbers of samples. Floating inputs are cast to param_dtype. The result's loss is over all ranks. Collective.
  StepResult step(const at::Tensor& inputs, const at::Tensor& targets);
  /// The same with strategy.accumulation micro-batches of the caller's making.
  StepResult step(std::span<const Batch> micro_batches);

  /// Mean loss over all ranks' samples, without gradients, with the modules in eval mode. Collective.
  double evaluate(const at::Tensor& inputs, const at::Tensor& targets);
  /// The last unit's output for this rank's samples, without gradients, in eval mode. Collective.
  at::Tensor forward(const at::Tensor& inputs);

  void set_lr(double lr);
  [[nodiscard]] std::int64_t steps() const noexcept;   // optimizer steps done

  /// Calls `visit` on every rank with each whole float32 weight, in name order, one in memory at a time. Collective.
  void for_each_parameter(const std::function<void(const std::string& name, const at::Tensor& value)>& visit);
  /// SHA-256 of all float32 weights in name order: equal runs have equal hashes. Collective.
  [[nodiscard]] std::string weights_sha256() const;

  /// Known after two steps. The measurement is of this process, so it means little where ranks are threads.
  [[nodiscard]] TrainerMemory memory() const;
  [[nodiscard]] const Model& model() const noexcept;
  /// The training step that runs; its bytes of activations are those that the first step measured.
  [[nodiscard]] const Schedule& schedule() const noexcept;
  [[nodiscard]] const Timeline& timeline() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace wirewise
