#include "wirewise/torch/families.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include "wirewise/torch/kernels_aten.h"
#include "wirewise/torch/layers.h"

namespace wirewise {

at::Tensor layer_norm_gradient(const at::Tensor& dnorm, const at::Tensor& x, const at::Tensor& residual, Weight& weight, Weight& bias,
                               const kernels::RowStatistics& statistics) {
  at::Tensor dweight = at::empty({x.size(-1)}, x.options().dtype(c10::kFloat));
  at::Tensor dbias = at::empty_like(dweight);
  at::Tensor dx = kernels::layer_norm_backward(dnorm, x, weight.value, statistics, residual, dweight, dbias);
  layers::store_gradient(weight, dweight);
  layers::store_gradient(bias, dbias);
  return dx;
}

at::Tensor rms_norm_gradient(const at::Tensor& dnorm, const at::Tensor& x, const at::Tensor& residual, Weight& weight,
                             const kernels::RowStatistics& statistics) {
  at::Tensor dweight = at::empty({x.size(-1)}, x.options().dtype(c10::kFloat));
  at::Tensor dx = kernels::rms_norm_backward(dnorm, x, weight.value, statistics, residual, dweight);
  layers::store_gradient(weight, dweight);
  return dx;
}

Boundary LossSegment::forward(const Boundary& in, std::vector<Weight>& weights, Saved* saved, StepContext& step) {
  // Sampling wants the last position's logits and no loss.
  const bool sampling = !step.targets.defined();
  const at::Tensor x = sampling ? in[0].narrow(1, in[0].size(1) - 1, 1).contiguous() : in[0];
  kernels::RowStatistics statistics;
  at::Tensor y = flat(normalize(x, weights, statistics));
  at::Tensor logits = layers::linear(y, weights.back());
  if (sampling) {
    step.logits = logits;
    return {};
  }
  at::Tensor lse;
  if (saved) lse = at::empty({logits.size(0)}, logits.options().dtype(c10::kFloat));
  if (kernels::on_aten(logits)) {
    const at::Tensor loss = kernels::aten::cross_entropy(logits, step.targets, lse);
    step.loss_on_device = step.loss_on_device.defined() ? step.loss_on_device.add(loss) : loss;
  } else {
    step.loss_sum += kernels::cross_entropy(logits, step.targets, lse);
  }
  if (saved) *saved = {y, statistics.mean, statistics.rstd, logits, lse};
  return {};
}

Boundary LossSegment::backward(const Boundary& in, const Boundary&, std::vector<Weight>& weights, Saved& saved, StepContext& step) {
  at::Tensor& dlogits = saved[3];
  kernels::cross_entropy_backward_(dlogits, step.targets, saved[4], step.gradient_scale);
  layers::linear_weight_backward(dlogits, saved[0], weights.back());
  at::Tensor dnorm = layers::linear_input_backward(dlogits, weights.back());
  dlogits.reset();
  const at::Tensor zeros = at::zeros_like(in[0]);
  return {normalize_backward(dnorm, in[0], zeros, weights, {saved[1], saved[2]})};
}

std::vector<std::unique_ptr<Segment>> make_segments(const Model& model, int unit) {
  const UnitShape& shape = model.units[static_cast<std::size_t>(unit)];
  return model.config.family == Family::kLlama ? llama_segments(model.config, shape, model.batch.buffer_dtype) : gpt2_segments(model.config, shape);
}

}  // namespace wirewise
