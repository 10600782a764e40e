#include "wirewise/torch/kernels_aten.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "wirewise/base/error.h"

namespace wirewise::kernels {
namespace {

thread_local bool aten_everywhere = false;

/// Elements that are widened to float32 at once where an operator would widen all of a large tensor.
constexpr std::int64_t kChunk = 16 << 20;

std::int64_t rows_at_once(const at::Tensor& x) { return std::max<std::int64_t>(1, kChunk / std::max<std::int64_t>(1, x.size(1))); }

void put(const at::Tensor& value, at::Tensor& out, bool add) {
  if (add) {
    out.add_(value.view_as(out));
  } else {
    out.copy_(value.view_as(out));
  }
}

}  // namespace

AtenEverywhere::AtenEverywhere() noexcept : before_(aten_everywhere) { aten_everywhere = true; }
AtenEverywhere::~AtenEverywhere() { aten_everywhere = before_; }

bool on_aten(const at::Tensor& x) noexcept { return !x.device().is_cpu() || aten_everywhere; }

namespace aten {

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon, RowStatistics& statistics) {
  auto [y, mean, rstd] = at::native_layer_norm(x, {x.size(-1)}, weight, bias, epsilon);
  statistics = {std::move(mean), std::move(rstd)};
  return y;
}

at::Tensor layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const RowStatistics& statistics,
                               const at::Tensor& residual_grad, at::Tensor& dweight, at::Tensor& dbias) {
  // Of the bias only the type is used: its gradient is a sum of dy.
  auto [dx, dw, db] =
      at::native_layer_norm_backward(dy.view_as(x), x, {x.size(-1)}, statistics.mean, statistics.rstd, weight, /*bias=*/weight, {true, true, true});
  dweight.copy_(dw);
  dbias.copy_(db);
  return dx.add_(residual_grad.view_as(x));
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon, RowStatistics& statistics) {
  auto [y, rstd] = at::_fused_rms_norm(x, {x.size(-1)}, weight, epsilon);
  statistics = {{}, rstd.to(c10::kFloat)};
  return y;
}

at::Tensor rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const RowStatistics& statistics,
                             const at::Tensor& residual_grad, at::Tensor& dweight) {
  // libtorch's fused backward is for CUDA alone, and its weight gradient is rounded to 16 bit; this one runs everywhere, in float32.
  const std::int64_t width = x.size(-1);
  const at::Tensor scaled = x.view({-1, width}).to(c10::kFloat).mul_(statistics.rstd.view({-1, 1}));  // x * rstd
  const at::Tensor grad = dy.view({-1, width}).to(c10::kFloat);
  dweight.copy_((grad * scaled).sum(0));
  at::Tensor dx = grad * weight.to(c10::kFloat);
  const at::Tensor mean_dot = (dx * scaled).mean(1, /*keepdim=*/true);
  dx.sub_(scaled * mean_dot).mul_(statistics.rstd.view({-1, 1}));
  dx.add_(residual_grad.view({-1, width}));
  return dx.to(x.scalar_type()).view_as(x);
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse) {
  const at::Tensor target = targets.view({-1});
  at::Tensor loss = at::zeros({}, logits.options().dtype(c10::kDouble));
  for (std::int64_t begin = 0, step = rows_at_once(logits); begin < logits.size(0); begin += step) {
    const std::int64_t rows = std::min(step, logits.size(0) - begin);
    const at::Tensor x = logits.narrow(0, begin, rows).to(c10::kFloat);
    const at::Tensor which = target.narrow(0, begin, rows);
    const at::Tensor counted = which.ge(0);
    const at::Tensor top = at::logsumexp(x, {1});
    const at::Tensor own = x.gather(1, which.clamp_min(0).unsqueeze(1)).squeeze(1);
    loss.add_((top - own).masked_fill_(counted.logical_not(), 0).sum(c10::kDouble));
    if (lse.defined()) lse.narrow(0, begin, rows).copy_(top);
  }
  return loss;
}

void cross_entropy_backward_(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse, double scale) {
  const at::Tensor target = targets.view({-1});
  for (std::int64_t begin = 0, step = rows_at_once(logits); begin < logits.size(0); begin += step) {
    const std::int64_t rows = std::min(step, logits.size(0) - begin);
    at::Tensor part = logits.narrow(0, begin, rows);
    const at::Tensor which = target.narrow(0, begin, rows).unsqueeze(1);
    at::Tensor x = part.to(c10::kFloat, /*non_blocking=*/false, /*copy=*/true);
    x.sub_(lse.narrow(0, begin, rows).unsqueeze(1)).exp_();
    const at::Tensor index = which.clamp_min(0);
    x.scatter_(1, index, x.gather(1, index) - 1);
    x.mul_(scale).masked_fill_(which.lt(0), 0);
    part.copy_(x);
  }
}

void embedding_backward(at::Tensor& grad, bool add, const at::Tensor& dy, const at::Tensor& tokens) {
  const at::Tensor rows = dy.view({-1, dy.size(-1)}).to(c10::kFloat);
  put(at::embedding_dense_backward(rows, tokens.view({-1}), grad.size(0), /*padding_idx=*/-1, /*scale_grad_by_freq=*/false), grad, add);
}

void column_sums(const at::Tensor& x, at::Tensor& out, bool add) { put(x.sum({0}, /*keepdim=*/false, c10::kFloat), out, add); }

at::Tensor sum_of_squares(const at::Tensor& flat) { return at::linalg_vector_norm(flat, 2, std::nullopt, false, c10::kDouble).square(); }

std::int64_t first_not_finite(const at::Tensor& flat) {
  const at::Tensor bad = at::isfinite(flat).logical_not();
  if (!bad.any().item<bool>()) return -1;
  return bad.to(c10::kByte).argmax().item<std::int64_t>();
}

void rotate_(at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool inverse) {
  const std::int64_t half = x.size(3) / 2;
  at::Tensor first = x.narrow(3, 0, half), second = x.narrow(3, half, half);
  const at::Tensor a = first.to(c10::kFloat), b = second.to(c10::kFloat);
  const at::Tensor c = cos.unsqueeze(1);
  const at::Tensor s = inverse ? sin.neg().unsqueeze(1) : sin.unsqueeze(1);
  const at::Tensor rotated = b * c + a * s;
  first.copy_(a * c - b * s);
  second.copy_(rotated);
}

}  // namespace aten
}  // namespace wirewise::kernels
