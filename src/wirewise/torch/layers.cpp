#include "wirewise/torch/layers.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>

#include <cmath>

#include "wirewise/torch/attention.h"
#include "wirewise/torch/kernels.h"
#include "wirewise/torch/kernels_aten.h"
#include "wirewise/torch/kernels_common.h"

namespace wirewise::layers {
namespace {

/// Repeats each key/value head for its query heads: [batch, kv_heads, sequence, head_dim] -> [batch, heads, sequence, head_dim].
at::Tensor repeat_heads(const at::Tensor& x, std::int64_t heads) {
  const std::int64_t repeats = heads / x.size(1);
  if (repeats == 1) return x;
  return x.unsqueeze(2).expand({x.size(0), x.size(1), repeats, x.size(2), x.size(3)}).reshape({x.size(0), heads, x.size(2), x.size(3)});
}

/// The sum over each group of query heads, the backward of repeat_heads.
at::Tensor fold_heads(const at::Tensor& grad, std::int64_t kv_heads) {
  if (grad.size(1) == kv_heads) return grad;
  return grad.reshape({grad.size(0), kv_heads, grad.size(1) / kv_heads, grad.size(2), grad.size(3)}).sum(2);
}

float rounded(float value, DType dtype) {
  if (dtype == DType::kBFloat16) return static_cast<float>(c10::BFloat16(value));
  if (dtype == DType::kFloat16) return static_cast<float>(c10::Half(value));
  return value;
}

}  // namespace

void store_gradient(Weight& weight, const at::Tensor& gradient) {
  const at::Tensor shaped = gradient.view_as(weight.grad);
  if (weight.add) {
    kernels::accumulate(weight.grad, shaped);
  } else {
    weight.grad.copy_(shaped);
  }
}

at::Tensor linear(const at::Tensor& x, const Weight& weight, const Weight* bias) {
  return bias ? at::addmm(bias->value, x, weight.value.t()) : at::mm(x, weight.value.t());
}

void linear_weight_backward(const at::Tensor& dy, const at::Tensor& x, Weight& weight, Weight* bias) {
  if (weight.grad.scalar_type() != dy.scalar_type()) {
    at::Tensor gradient = at::empty(weight.grad.sizes(), dy.options());
    at::mm_out(gradient, dy.t(), x);
    store_gradient(weight, gradient);
  } else if (weight.add) {
    at::addmm_out(weight.grad, weight.grad, dy.t(), x);
  } else {
    at::mm_out(weight.grad, dy.t(), x);
  }
  if (bias) kernels::column_sums(dy, bias->grad, bias->add);
}

at::Tensor linear_input_backward(const at::Tensor& dy, const Weight& weight) { return at::mm(dy, weight.value); }

Attention attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  auto [out, lse] = kernels::attention_forward(q, repeat_heads(k, q.size(1)), repeat_heads(v, q.size(1)));
  return {std::move(out), std::move(lse)};
}

AttentionGradient attention_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const Attention& forward) {
  auto [dq, dk, dv] = kernels::attention_backward(grad_out, q, repeat_heads(k, q.size(1)), repeat_heads(v, q.size(1)), forward.out, forward.lse);
  dk = fold_heads(dk, k.size(1));
  dv = fold_heads(dv, v.size(1));
  return {std::move(dq), std::move(dk), std::move(dv)};
}

void Rotary::extend(std::int64_t sequence) {
  const std::int64_t half = head_dim_ / 2;
  const std::int64_t from = static_cast<std::int64_t>(table_.size()) / (2 * half);
  table_.reserve(static_cast<std::size_t>(sequence * half * 2));
  for (std::int64_t position = from; position < sequence; ++position) {
    for (std::int64_t pair = 0; pair < half; ++pair) {
      const double angle = static_cast<double>(position) * std::pow(theta_, -2.0 * static_cast<double>(pair) / static_cast<double>(head_dim_));
      table_.push_back(rounded(static_cast<float>(std::cos(angle)), table_dtype_));
      table_.push_back(rounded(static_cast<float>(std::sin(angle)), table_dtype_));
    }
  }
}

void Rotary::apply_(at::Tensor& x, bool inverse) {
  const std::int64_t sequence = x.size(1);
  const std::int64_t heads = x.size(2);
  const std::int64_t half = head_dim_ / 2;
  extend(sequence);
  if (kernels::on_aten(x)) {
    if (!cos_.defined() || cos_.device() != x.device() || cos_.size(0) < sequence) {
      const at::Tensor table = at::from_blob(table_.data(), {static_cast<std::int64_t>(table_.size()) / (2 * half), half, 2},
                                             at::TensorOptions().dtype(c10::kFloat));
      cos_ = table.select(2, 0).clone(at::MemoryFormat::Contiguous).to(x.device());
      sin_ = table.select(2, 1).clone(at::MemoryFormat::Contiguous).to(x.device());
    }
    kernels::aten::rotate_(x, cos_.narrow(0, 0, sequence), sin_.narrow(0, 0, sequence), inverse);
    return;
  }
  const float sign = inverse ? -1.0F : 1.0F;
  kernels::dispatch(x.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T* data = x.mutable_data_ptr<T>();
    kernels::for_rows(x.size(0) * sequence, heads * head_dim_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const float* angles = table_.data() + (row % sequence) * half * 2;
        for (std::int64_t head = 0; head < heads; ++head) {
          T* first = data + (row * heads + head) * head_dim_;
          T* second = first + half;
          for (std::int64_t i = 0; i < half; ++i) {
            const float c = angles[2 * i];
            const float s = angles[2 * i + 1] * sign;
            const float a = kernels::load(first[i]);
            const float b = kernels::load(second[i]);
            kernels::store(first[i], a * c - b * s);
            kernels::store(second[i], b * c + a * s);
          }
        }
      }
    });
  });
}

}  // namespace wirewise::layers
