// A segment on tensors: forward and backward between two boundaries, with weights and gradients as views of flat group buffers.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "wirewise/model/model.h"

namespace wirewise {

/// What passes between segments: the hidden state first; then whatever a family adds.
using Boundary = std::vector<at::Tensor>;
/// What a segment keeps from forward for backward, besides its input.
using Saved = std::vector<at::Tensor>;

/// One weight, and in backward the place of its gradient.
struct Weight {
  at::Tensor value;   // in the compute dtype
  at::Tensor grad;    // same shape; undefined in forward
  bool add = false;   // add to what grad holds instead of overwriting
};

/// What a step hands to segments besides boundaries.
struct StepContext {
  at::Tensor tokens;            // int64 [micro_batch, sequence]
  at::Tensor targets;           // int64 [micro_batch, sequence]; negative: not counted. Undefined: no loss wanted (sampling)
  double gradient_scale = 1;    // loss scale / global target tokens of the step
  double loss_sum = 0;          // the last segment adds its micro-batch's summed loss …
  at::Tensor loss_on_device;    // … here where reading it would make the thread wait for a device: a float64 scalar
  std::int64_t step = 0;        // of training, from 1; 0 elsewhere. With the micro-batch the key of random numbers
  int micro_batch = 0;
  at::Tensor logits;            // sampling: the last segment leaves [micro_batch, vocab] of the last position
};

class Segment {
 public:
  virtual ~Segment() = default;
  /// Names of its weights in the order in which forward and backward expect them; each belongs to one of the unit's groups.
  [[nodiscard]] virtual const std::vector<std::string>& weight_names() const = 0;
  /// `saved` null: keep nothing. The output never shares storage with the input.
  virtual Boundary forward(const Boundary& in, std::vector<Weight>& weights, Saved* saved, StepContext& step) = 0;
  /// Gradient of `in` from the gradient of the output (empty for the last segment, whose output is the loss). Fills the weights' grads. The first
  /// segment returns an empty boundary. `saved` is consumed.
  virtual Boundary backward(const Boundary& in, const Boundary& grad_out, std::vector<Weight>& weights, Saved& saved, StepContext& step) = 0;
};

/// The segments of unit `unit` of a GPT-2 or Llama model, in order.
[[nodiscard]] std::vector<std::unique_ptr<Segment>> make_segments(const Model& model, int unit);

}  // namespace wirewise
