// What the model families share: weights by name, norms on residual streams, the head with its loss.
#pragma once

#include <utility>

#include "wirewise/torch/kernels.h"
#include "wirewise/torch/segment.h"

namespace wirewise {

[[nodiscard]] std::vector<std::unique_ptr<Segment>> gpt2_segments(const ModelConfig& config, const UnitShape& unit);
[[nodiscard]] std::vector<std::unique_ptr<Segment>> llama_segments(const ModelConfig& config, const UnitShape& unit, DType buffer_dtype);

class NamedSegment : public Segment {
 public:
  explicit NamedSegment(std::vector<std::string> names) : names_(std::move(names)) {}
  [[nodiscard]] const std::vector<std::string>& weight_names() const override { return names_; }

 private:
  std::vector<std::string> names_;
};

/// [batch, sequence, width] -> [rows, width], a view.
[[nodiscard]] inline at::Tensor flat(const at::Tensor& x) { return x.view({-1, x.size(-1)}); }
/// [batch, heads, sequence, head_dim] -> [batch * sequence, heads * head_dim]; a view where the memory lies [batch, sequence, heads, head_dim].
[[nodiscard]] inline at::Tensor rows_of(const at::Tensor& heads) {
  return heads.transpose(1, 2).reshape({heads.size(0) * heads.size(2), heads.size(1) * heads.size(3)});
}

/// Gradient of x through a norm whose output's gradient is dnorm, plus the residual stream's; stores the norm's own weight gradients.
[[nodiscard]] at::Tensor layer_norm_gradient(const at::Tensor& dnorm, const at::Tensor& x, const at::Tensor& residual, Weight& weight,
                                             Weight& bias, const kernels::RowStatistics& statistics);
[[nodiscard]] at::Tensor rms_norm_gradient(const at::Tensor& dnorm, const at::Tensor& x, const at::Tensor& residual, Weight& weight,
                                           const kernels::RowStatistics& statistics);

/// The head: norm, projection on the vocabulary, cross entropy. Its last weight is the projection [vocab, width].
class LossSegment : public NamedSegment {
 public:
  using NamedSegment::NamedSegment;
  Boundary forward(const Boundary& in, std::vector<Weight>& weights, Saved* saved, StepContext& step) final;
  Boundary backward(const Boundary& in, const Boundary& grad_out, std::vector<Weight>& weights, Saved& saved, StepContext& step) final;

 private:
  virtual at::Tensor normalize(const at::Tensor& x, std::vector<Weight>& weights, kernels::RowStatistics& statistics) = 0;
  /// `residual` is added to the gradient (zeros: the head has no residual stream).
  virtual at::Tensor normalize_backward(const at::Tensor& dnorm, const at::Tensor& x, const at::Tensor& residual, std::vector<Weight>& weights,
                                        const kernels::RowStatistics& statistics) = 0;
};

}  // namespace wirewise
