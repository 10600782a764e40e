// Cross entropy over a vocabulary of any size: log-sum-exp forward in float32, gradient in place of the logits.
#include <algorithm>
#include <cmath>
#include <vector>

#include "wirewise/torch/kernels.h"
#include "wirewise/torch/kernels_aten.h"
#include "wirewise/torch/kernels_common.h"
#include "wirewise/torch/kernels_exp.h"

namespace wirewise::kernels {
namespace {

template <typename T>
[[gnu::always_inline]] inline float log_sum_exp(const T* x, std::int64_t count) {
  float top[16];
  for (float& lane : top) lane = load(x[0]);
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int k = 0; k < 16; ++k) {
      const float v = load(x[i + k]);
      top[k] = v > top[k] ? v : top[k];
    }
  }
  for (; i < count; ++i) top[0] = std::max(top[0], load(x[i]));
  float peak = top[0];
  for (const float lane : top) peak = std::max(peak, lane);
  float sum[16] = {};
  for (i = 0; i + 16 <= count; i += 16) {
    for (int k = 0; k < 16; ++k) sum[k] += exp_nonpositive(load(x[i + k]) - peak);
  }
  for (int k = 0; i < count; ++i, ++k) sum[k] += exp_nonpositive(load(x[i]) - peak);
  const float total = fold(sum);
  // A NaN anywhere must come out as NaN: the maximum may have passed it by.
  float probe = 0;
  for (i = 0; i < count; ++i) probe += load(x[i]) * 0.0F;
  return peak + std::log(total) + probe;
}

template <typename T>
[[gnu::always_inline]] inline void gradient_row(T* x, std::int64_t count, float lse, float scale) {
  for (std::int64_t i = 0; i < count; ++i) store(x[i], exp_nonpositive(load(x[i]) - lse) * scale);
}

#define WIREWISE_LOSS_KERNELS(T)                                                                                        \
  WIREWISE_VECTOR float log_sum_exp_##T(const T* x, std::int64_t count) { return log_sum_exp<T>(x, count); }            \
  WIREWISE_VECTOR void gradient_##T(T* x, std::int64_t count, float lse, float scale) { gradient_row<T>(x, count, lse, scale); } \
  [[maybe_unused]] inline float row_lse(const T* x, std::int64_t count) { return log_sum_exp_##T(x, count); }           \
  [[maybe_unused]] inline void row_gradient(T* x, std::int64_t count, float lse, float scale) { gradient_##T(x, count, lse, scale); }
WIREWISE_LOSS_KERNELS(Float)
WIREWISE_LOSS_KERNELS(BFloat16)
WIREWISE_LOSS_KERNELS(Half)

}  // namespace

double cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse) {
  if (on_aten(logits)) return aten::cross_entropy(logits, targets, lse).item<double>();
  const std::int64_t rows = logits.size(0);
  const std::int64_t vocab = logits.size(1);
  const auto* target = targets.const_data_ptr<std::int64_t>();
  float* out = lse.defined() ? lse.mutable_data_ptr<float>() : nullptr;
  std::vector<double> loss(static_cast<std::size_t>(rows), 0.0);
  dispatch(logits.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* data = logits.const_data_ptr<T>();
    for_rows(rows, vocab, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* x = data + row * vocab;
        if (target[row] < 0) {
          if (out) out[row] = 0;
          continue;
        }
        const float value = row_lse(x, vocab);
        if (out) out[row] = value;
        loss[static_cast<std::size_t>(row)] = static_cast<double>(value) - static_cast<double>(load(x[target[row]]));
      }
    });
  });
  double sum = 0;
  for (const double value : loss) sum += value;
  return sum;
}

void cross_entropy_backward_(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse, double scale) {
  if (on_aten(logits)) return aten::cross_entropy_backward_(logits, targets, lse, scale);
  const std::int64_t rows = logits.size(0);
  const std::int64_t vocab = logits.size(1);
  const auto* target = targets.const_data_ptr<std::int64_t>();
  const float* row_value = lse.const_data_ptr<float>();
  dispatch(logits.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T* data = logits.mutable_data_ptr<T>();
    for_rows(rows, vocab, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        T* x = data + row * vocab;
        if (target[row] < 0) {
          std::fill(x, x + vocab, T(0));
          continue;
        }
        const float at_target = exp_nonpositive(std::min(0.0F, load(x[target[row]]) - row_value[row]));
        row_gradient(x, vocab, row_value[row], static_cast<float>(scale));
        store(x[target[row]], (at_target - 1.0F) * static_cast<float>(scale));
      }
    });
  });
}

}  // namespace wirewise::kernels
