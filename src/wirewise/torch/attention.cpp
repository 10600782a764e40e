#include "wirewise/torch/attention.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "wirewise/model/segment_bytes.h"
#include "wirewise/torch/kernels_aten.h"
#include "wirewise/torch/kernels_common.h"
#include "wirewise/torch/kernels_exp.h"

namespace wirewise::kernels {
namespace {

/// Scores of query rows against keys [0, keys), row r standing at position first + r: softmax over keys up to its own position, zero beyond.
template <typename T>
[[gnu::always_inline]] inline void softmax_rows(const float* scores, T* weights, float* lse, std::int64_t rows, std::int64_t keys,
                                                std::int64_t first) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* x = scores + r * keys;
    T* y = weights + r * keys;
    const std::int64_t seen = first + r + 1;
    float top[16];
    for (float& lane : top) lane = x[0];
    std::int64_t i = 0;
    for (; i + 16 <= seen; i += 16) {
      for (int lane = 0; lane < 16; ++lane) top[lane] = x[i + lane] > top[lane] ? x[i + lane] : top[lane];
    }
    for (; i < seen; ++i) top[0] = std::max(top[0], x[i]);
    float peak = top[0];
    for (const float lane : top) peak = std::max(peak, lane);
    float sum[16] = {};
    for (i = 0; i + 16 <= seen; i += 16) {
      for (int lane = 0; lane < 16; ++lane) sum[lane] += exp_nonpositive(x[i + lane] - peak);
    }
    for (int lane = 0; i < seen; ++i, ++lane) sum[lane] += exp_nonpositive(x[i] - peak);
    // A NaN score must not vanish in comparisons.
    float probe = 0;
    for (i = 0; i < seen; ++i) probe += x[i] * 0.0F;
    lse[r] = peak + std::log(fold(sum)) + probe;
    for (i = 0; i < seen; ++i) store(y[i], exp_nonpositive(x[i] - lse[r]));
    for (i = seen; i < keys; ++i) store(y[i], 0.0F);
  }
}

/// Weights again from scores and lse, and the gradient of the scores: ds = p * (dp - delta) * scale.
template <typename T>
[[gnu::always_inline]] inline void score_gradient_rows(const float* scores, const float* dp, const float* lse, const float* delta, T* weights,
                                                       T* ds, float scale, std::int64_t rows, std::int64_t keys, std::int64_t first) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t seen = first + r + 1;
    const std::int64_t at = r * keys;
    for (std::int64_t i = 0; i < seen; ++i) {
      const float p = exp_nonpositive(scores[at + i] - lse[r]);
      store(weights[at + i], p);
      store(ds[at + i], p * (dp[at + i] - delta[r]) * scale);
    }
    for (std::int64_t i = seen; i < keys; ++i) {
      store(weights[at + i], 0.0F);
      store(ds[at + i], 0.0F);
    }
  }
}

#define WIREWISE_ATTENTION_KERNELS(T)                                                                                                  \
  WIREWISE_VECTOR void softmax_##T(const float* s, T* w, float* l, std::int64_t rows, std::int64_t keys, std::int64_t first) {         \
    softmax_rows<T>(s, w, l, rows, keys, first);                                                                                       \
  }                                                                                                                                    \
  WIREWISE_VECTOR void gradient_##T(const float* s, const float* dp, const float* l, const float* delta, T* w, T* ds, float scale,     \
                                    std::int64_t rows, std::int64_t keys, std::int64_t first) {                                        \
    score_gradient_rows<T>(s, dp, l, delta, w, ds, scale, rows, keys, first);                                                          \
  }                                                                                                                                    \
  [[maybe_unused]] inline void softmax(const float* s, T* w, float* l, std::int64_t rows, std::int64_t keys, std::int64_t first) {     \
    softmax_##T(s, w, l, rows, keys, first);                                                                                           \
  }                                                                                                                                    \
  [[maybe_unused]] inline void score_gradient(const float* s, const float* dp, const float* l, const float* delta, T* w, T* ds,        \
                                              float scale, std::int64_t rows, std::int64_t keys, std::int64_t first) {                 \
    gradient_##T(s, dp, l, delta, w, ds, scale, rows, keys, first);                                                                    \
  }
WIREWISE_ATTENTION_KERNELS(Float)
WIREWISE_ATTENTION_KERNELS(BFloat16)
WIREWISE_ATTENTION_KERNELS(Half)

/// A copy of heads [begin, begin + count) of one sample, contiguous [count, sequence, head_dim] in `dtype`.
at::Tensor heads_of(const at::Tensor& x, std::int64_t sample, std::int64_t begin, std::int64_t count, c10::ScalarType dtype) {
  at::Tensor heads = at::empty({count, x.size(2), x.size(3)}, x.options().dtype(dtype));
  heads.copy_(x.select(0, sample).narrow(0, begin, count));
  return heads;
}

/// f(sample, first head, heads) over groups of heads, small enough for their tiles to stay in cache.
template <typename F>
void for_head_groups(const at::Tensor& q, F&& f) {
  const std::int64_t group = attention_head_group(q.size(1), q.size(2), q.size(3));
  for (std::int64_t sample = 0; sample < q.size(0); ++sample) {
    for (std::int64_t head = 0; head < q.size(1); head += group) f(sample, head, std::min(group, q.size(1) - head));
  }
}

}  // namespace

AttentionForward attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  if (on_aten(q)) return aten::attention_forward(q, k, v);
  const std::int64_t sequence = q.size(2);
  const float scale = 1.0F / std::sqrt(static_cast<float>(q.size(3)));
  AttentionForward result;
  result.out = at::empty({q.size(0), sequence, q.size(1), q.size(3)}, q.options()).transpose(1, 2);
  result.lse = at::empty({q.size(0), q.size(1), sequence}, q.options().dtype(c10::kFloat));
  for_head_groups(q, [&](std::int64_t sample, std::int64_t head, std::int64_t heads) {
    at::Tensor queries = heads_of(q, sample, head, heads, c10::kFloat);
    queries.mul_(scale);
    const at::Tensor keys = heads_of(k, sample, head, heads, c10::kFloat);
    const at::Tensor values = heads_of(v, sample, head, heads, v.scalar_type());
    float* lse = result.lse.mutable_data_ptr<float>() + (sample * q.size(1) + head) * sequence;
    for (std::int64_t first = 0; first < sequence; first += kAttentionTile) {
      const std::int64_t rows = std::min<std::int64_t>(kAttentionTile, sequence - first);
      const std::int64_t seen = first + rows;
      const at::Tensor scores = at::bmm(queries.narrow(1, first, rows), keys.narrow(1, 0, seen).transpose(1, 2));
      at::Tensor weights = at::empty(scores.sizes(), q.options());
      dispatch(q.scalar_type(), [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        for_rows(heads, rows * seen, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t h = begin; h < end; ++h) {
            softmax(scores.const_data_ptr<float>() + h * rows * seen, weights.mutable_data_ptr<T>() + h * rows * seen, lse + h * sequence + first,
                    rows, seen, first);
          }
        });
      });
      at::Tensor out = result.out.select(0, sample).narrow(0, head, heads).narrow(1, first, rows);
      out.copy_(at::bmm(weights, values.narrow(1, 0, seen)));
    }
  });
  return result;
}

AttentionBackward attention_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const at::Tensor& out, const at::Tensor& lse) {
  if (on_aten(q)) return aten::attention_backward(grad_out, q, k, v, out, lse);
  const std::int64_t sequence = q.size(2);
  const float scale = 1.0F / std::sqrt(static_cast<float>(q.size(3)));
  const auto compute = q.scalar_type();
  const auto like_q = [&] { return at::empty({q.size(0), sequence, q.size(1), q.size(3)}, q.options()).transpose(1, 2); };
  AttentionBackward grad{like_q(), like_q(), like_q()};
  for_head_groups(q, [&](std::int64_t sample, std::int64_t head, std::int64_t heads) {
    const auto part = [&](at::Tensor& x) { return x.select(0, sample).narrow(0, head, heads); };
    at::Tensor delta;
    const at::Tensor grads_float = heads_of(grad_out, sample, head, heads, c10::kFloat);
    {
      at::Tensor product = heads_of(out, sample, head, heads, c10::kFloat);
      product.mul_(grads_float);
      delta = product.sum(-1);
    }
    const at::Tensor queries = heads_of(q, sample, head, heads, compute);
    const at::Tensor keys = heads_of(k, sample, head, heads, compute);
    const at::Tensor grads = heads_of(grad_out, sample, head, heads, compute);
    at::Tensor scaled = heads_of(q, sample, head, heads, c10::kFloat);
    scaled.mul_(scale);
    const at::Tensor keys_float = heads_of(k, sample, head, heads, c10::kFloat);
    const at::Tensor values_float = heads_of(v, sample, head, heads, c10::kFloat);
    at::Tensor dk = at::zeros(keys_float.sizes(), keys_float.options());
    at::Tensor dv = at::zeros(keys_float.sizes(), keys_float.options());
    const float* lse_rows = lse.const_data_ptr<float>() + (sample * q.size(1) + head) * sequence;
    const float* delta_rows = delta.const_data_ptr<float>();
    for (std::int64_t first = 0; first < sequence; first += kAttentionTile) {
      const std::int64_t rows = std::min<std::int64_t>(kAttentionTile, sequence - first);
      const std::int64_t seen = first + rows;
      at::Tensor weights = at::empty({heads, rows, seen}, q.options());
      at::Tensor dscores = at::empty({heads, rows, seen}, q.options());
      {
        const at::Tensor scores = at::bmm(scaled.narrow(1, first, rows), keys_float.narrow(1, 0, seen).transpose(1, 2));
        const at::Tensor dweights = at::bmm(grads_float.narrow(1, first, rows), values_float.narrow(1, 0, seen).transpose(1, 2));
        dispatch(compute, [&](auto* type) {
          using T = std::remove_pointer_t<decltype(type)>;
          for_rows(heads, rows * seen, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t h = begin; h < end; ++h) {
              const std::int64_t at = h * rows * seen;
              score_gradient(scores.const_data_ptr<float>() + at, dweights.const_data_ptr<float>() + at, lse_rows + h * sequence + first,
                             delta_rows + h * sequence + first, weights.mutable_data_ptr<T>() + at, dscores.mutable_data_ptr<T>() + at, scale, rows,
                             seen, first);
            }
          });
        });
      }
      part(grad.q).narrow(1, first, rows).copy_(at::bmm(dscores, keys.narrow(1, 0, seen)));
      dk.narrow(1, 0, seen).add_(at::bmm(dscores.transpose(1, 2), queries.narrow(1, first, rows)));
      dv.narrow(1, 0, seen).add_(at::bmm(weights.transpose(1, 2), grads.narrow(1, first, rows)));
    }
    part(grad.k).copy_(dk);
    part(grad.v).copy_(dv);
  });
  return grad;
}

}  // namespace wirewise::kernels
