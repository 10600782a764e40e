// The runtime: executes a rank's program on tensors, op by op in program order. Everything a step does is an op of the schedule; this file
// knows how each kind of op is done, and nothing of strategies.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "wirewise/torch/device_clock.h"
#include "wirewise/torch/lanes.h"
#include "wirewise/torch/optimizer.h"
#include "wirewise/torch/segment.h"
#include "wirewise/torch/state.h"
#include "wirewise/torch/timeline.h"

namespace wirewise {

/// One micro-batch of this rank.
struct MicroBatch {
  std::vector<at::Tensor> inputs;   // what the first segment gets; of token models: int64 ids [samples, sequence]
  at::Tensor targets;               // what the last segment compares with; of token models: int64 [samples, sequence], negative: not counted
  std::int64_t counted = 0;         // targets that count: losses and gradients are sums divided by their number over all ranks
};

/// A micro-batch of token ids, both row-major [samples, sequence]; without targets for sampling.
[[nodiscard]] MicroBatch token_micro_batch(std::int64_t samples, std::int64_t sequence, std::span<const std::int32_t> tokens,
                                           std::span<const std::int32_t> targets);

struct StepOptions {
  std::int64_t step = 1;        // optimizer steps done with this one, from 1
  double lr = 0;
  double clip = 0;              // largest global gradient norm; 0: no clipping
  double loss_scale = 1;        // fp16
  bool check_overflow = false;  // fp16: find the first gradient that is not finite, before it is reduced
  bool stop = false;            // this rank was asked to stop: all ranks hear of it with the step's result
};

struct StepResult {
  double loss = 0;              // mean over the step's target tokens of all ranks
  double grad_norm = 0;         // global, unscaled; 0 when the schedule has no clip op
  std::int64_t tokens = 0;      // target tokens of all ranks
  bool stop = false;            // some rank was asked to stop
  bool skipped = false;         // gradients were not finite: no weight changed, on any rank
  std::string overflow;         // "transformer.h.3.mlp.c_fc.weight on rank 1": where it began
};

/// All segments of a model, by unit.
using SegmentTable = std::vector<std::vector<std::unique_ptr<Segment>>>;
[[nodiscard]] SegmentTable make_segment_table(const Model& model);

class Executor {
 public:
  /// Executes `program` on `state`; all must outlive the executor. Ranks of one group must construct and run alike.
  Executor(const Model& model, const Program& program, const SegmentTable& segments, ModelState& state, const Lanes& lanes,
           const OptimizerOptions& optimizer);

  /// One training step over the micro-batches of this rank.
  StepResult train(std::span<const MicroBatch> batches, const StepOptions& options);

  /// Mean loss of one batch over all ranks, by a forward program.
  double evaluate(const MicroBatch& batch);
  /// Logits [samples, vocab] after the last token, by a forward program.
  at::Tensor logits(const MicroBatch& batch);

  [[nodiscard]] const Timeline& timeline() const noexcept { return timeline_; }

 private:
  struct Pending {
    Work work;
    std::vector<BufferId> reads;
    std::vector<at::Tensor> held;   // staging that peers read
    OpId op = -1;
    bool output_done = false;
  };

  void run(std::span<const MicroBatch> batches);
  void execute(OpId id, const Op& op);
  void allocate(BufferId id);
  void await_output(OpId id);
  void await_release(BufferId id);
  void await_all();

  void forward(const Op& op);
  void backward(const Op& op);
  void recompute(const Op& op);
  void gather(OpId id, const Op& op);
  void reduce(OpId id, const Op& op);
  void clip(const Op& op);
  void step(const Op& op);
  void token_count();
  void report();
  void note_overflow(const Op& op);
  void name_overflow();

  [[nodiscard]] std::vector<Weight> weights_of(int unit, int segment) const;
  void attach_gradients(std::vector<Weight>& weights, int unit, int segment, const Op& op);
  [[nodiscard]] Boundary input_of(const Op& op, int unit, int segment) const;
  [[nodiscard]] const BufferInfo& info(BufferId id) const { return program_.buffers[static_cast<std::size_t>(id)]; }
  [[nodiscard]] at::Tensor& tensor(BufferId id) { return tensors_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] CallOptions call_options(const Op& op) const;
  [[nodiscard]] double loss_sum() const;
  [[nodiscard]] at::TensorOptions options_of(DType dtype) const;

  const Model& model_;
  const Program& program_;
  const SegmentTable& segments_;
  ModelState& state_;
  Lanes lanes_;
  OptimizerOptions optimizer_;

  struct WeightPlace {
    int group = -1;
    const TensorShape* shape = nullptr;
  };
  std::vector<std::vector<std::vector<WeightPlace>>> places_;   // [unit][segment][weight]

  std::vector<at::Tensor> tensors_;                 // by buffer
  std::vector<Saved> saved_;                        // by buffer
  std::vector<BufferId> weights_buffer_;            // by group: the buffer that holds whole weights (kParam, or kFullParam where it is gathered or aliased)
  std::vector<BufferId> param_buffer_, reduced_buffer_;  // by group
  std::vector<Pending> pending_;
  Timeline timeline_;
  std::optional<DeviceClock> clock_;                // of a device
  OpId awaited_ = -1;                               // the op that the one at hand waits for first

  // Of the step in progress
  StepContext context_;
  StepOptions options_;
  StepResult result_;
  std::span<const MicroBatch> batches_;
  double factor_ = 1;                               // what gradients are multiplied by in the step
  std::int64_t local_tokens_ = 0;
  std::string local_overflow_;
};

}  // namespace wirewise
