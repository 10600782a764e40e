// LayerNorm and RMSNorm with float32 statistics, forward and backward.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <vector>

#include "wirewise/torch/kernels.h"
#include "wirewise/torch/kernels_aten.h"
#include "wirewise/torch/kernels_common.h"

namespace wirewise::kernels {
namespace {

template <typename T>
[[gnu::always_inline]] inline float sum_row(const T* x, std::int64_t width) {
  float lane[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= width; i += 16) {
    for (int k = 0; k < 16; ++k) lane[k] += load(x[i + k]);
  }
  for (int k = 0; i < width; ++i, ++k) lane[k] += load(x[i]);
  return fold(lane);
}

template <typename T>
[[gnu::always_inline]] inline float square_row(const T* x, float center, std::int64_t width) {
  float lane[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= width; i += 16) {
    for (int k = 0; k < 16; ++k) {
      const float d = load(x[i + k]) - center;
      lane[k] += d * d;
    }
  }
  for (int k = 0; i < width; ++i, ++k) {
    const float d = load(x[i]) - center;
    lane[k] += d * d;
  }
  return fold(lane);
}

/// y = (x - mean) * rstd * weight (+ bias); `center` false leaves mean and bias out (RMSNorm).
template <typename T, bool center>
[[gnu::always_inline]] inline void forward_rows(const T* x, const T* weight, const T* bias, T* y, float* mean, float* rstd, std::int64_t begin,
                                                std::int64_t end, std::int64_t width, float epsilon) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* in = x + row * width;
    T* out = y + row * width;
    const float m = center ? sum_row(in, width) / static_cast<float>(width) : 0.0F;
    const float r = 1.0F / std::sqrt(square_row(in, m, width) / static_cast<float>(width) + epsilon);
    if (center) mean[row] = m;
    rstd[row] = r;
    if (center) {
      for (std::int64_t i = 0; i < width; ++i) store(out[i], (load(in[i]) - m) * r * load(weight[i]) + load(bias[i]));
    } else {
      for (std::int64_t i = 0; i < width; ++i) store(out[i], load(in[i]) * r * load(weight[i]));
    }
  }
}

/// dx = residual + rstd * (g - [mean(g)] - xhat * mean(g * xhat)), g = dy * weight, xhat = (x - mean) * rstd.
template <typename T, bool center>
[[gnu::always_inline]] inline void backward_rows(const T* dy, const T* x, const T* weight, const float* mean, const float* rstd,
                                                 const T* residual, T* dx, std::int64_t begin, std::int64_t end, std::int64_t width) {
  const float inverse = 1.0F / static_cast<float>(width);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* in = x + row * width;
    const T* grad = dy + row * width;
    const T* skip = residual + row * width;
    T* out = dx + row * width;
    const float m = center ? mean[row] : 0.0F;
    const float r = rstd[row];
    float sum[16] = {};
    float dot[16] = {};
    std::int64_t i = 0;
    for (; i + 16 <= width; i += 16) {
      for (int k = 0; k < 16; ++k) {
        const float g = load(grad[i + k]) * load(weight[i + k]);
        if (center) sum[k] += g;
        dot[k] += g * ((load(in[i + k]) - m) * r);
      }
    }
    for (int k = 0; i < width; ++i, ++k) {
      const float g = load(grad[i]) * load(weight[i]);
      if (center) sum[k] += g;
      dot[k] += g * ((load(in[i]) - m) * r);
    }
    const float mean_g = center ? fold(sum) * inverse : 0.0F;
    const float mean_dot = fold(dot) * inverse;
    for (std::int64_t j = 0; j < width; ++j) {
      const float g = load(grad[j]) * load(weight[j]);
      const float xhat = (load(in[j]) - m) * r;
      store(out[j], load(skip[j]) + r * (g - mean_g - xhat * mean_dot));
    }
  }
}

/// dweight[j] = sum over rows of dy * xhat and dbias[j] = sum of dy, rows ascending.
template <typename T, bool center>
[[gnu::always_inline]] inline void weight_rows(const T* dy, const T* x, const float* mean, const float* rstd, float* dweight, float* dbias,
                                               std::int64_t rows, std::int64_t width) {
  for (std::int64_t j = 0; j < width; ++j) dweight[j] = 0.0F;
  if (center) {
    for (std::int64_t j = 0; j < width; ++j) dbias[j] = 0.0F;
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* in = x + row * width;
    const T* grad = dy + row * width;
    const float m = center ? mean[row] : 0.0F;
    const float r = rstd[row];
    for (std::int64_t j = 0; j < width; ++j) {
      const float g = load(grad[j]);
      dweight[j] += g * ((load(in[j]) - m) * r);
      if (center) dbias[j] += g;
    }
  }
}

#define WIREWISE_NORM_KERNELS(T, center)                                                                                              \
  WIREWISE_VECTOR void forward_##T##_##center(const T* x, const T* w, const T* b, T* y, float* mean, float* rstd, \
                                              std::int64_t begin, std::int64_t end, std::int64_t width, float epsilon) {              \
    forward_rows<T, center>(x, w, b, y, mean, rstd, begin, end, width, epsilon);                                                 \
  }                                                                                                                                   \
  WIREWISE_VECTOR void backward_##T##_##center(const T* dy, const T* x, const T* w, const float* mean,                 \
                                               const float* rstd, const T* residual, T* dx, std::int64_t begin,             \
                                               std::int64_t end, std::int64_t width) {                                                \
    backward_rows<T, center>(dy, x, w, mean, rstd, residual, dx, begin, end, width);                                             \
  }                                                                                                                                   \
  WIREWISE_VECTOR void weight_##T##_##center(const T* dy, const T* x, const float* mean, const float* rstd, float* dweight, \
                                             float* dbias, std::int64_t rows, std::int64_t width) {                                   \
    weight_rows<T, center>(dy, x, mean, rstd, dweight, dbias, rows, width);                                                      \
  }

WIREWISE_NORM_KERNELS(Float, true)
WIREWISE_NORM_KERNELS(Float, false)
WIREWISE_NORM_KERNELS(BFloat16, true)
WIREWISE_NORM_KERNELS(BFloat16, false)
WIREWISE_NORM_KERNELS(Half, true)
WIREWISE_NORM_KERNELS(Half, false)

/// The compiled bodies of one element type.
template <typename T, bool center>
struct Norm;
#define WIREWISE_NORM_TABLE(T, center)                          \
  template <>                                                   \
  struct Norm<T, center> {                                 \
    static constexpr auto forward = forward_##T##_##center;     \
    static constexpr auto backward = backward_##T##_##center;   \
    static constexpr auto weight = weight_##T##_##center;       \
  };
WIREWISE_NORM_TABLE(Float, true)
WIREWISE_NORM_TABLE(Float, false)
WIREWISE_NORM_TABLE(BFloat16, true)
WIREWISE_NORM_TABLE(BFloat16, false)
WIREWISE_NORM_TABLE(Half, true)
WIREWISE_NORM_TABLE(Half, false)

template <bool center>
at::Tensor forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor* bias, double epsilon, RowStatistics& statistics) {
  const std::int64_t width = x.size(-1);
  const std::int64_t rows = x.numel() / width;
  at::Tensor y = at::empty_like(x);
  statistics.rstd = at::empty({rows}, x.options().dtype(c10::kFloat));
  if (center) statistics.mean = at::empty({rows}, x.options().dtype(c10::kFloat));
  dispatch(x.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    for_rows(rows, width, [&](std::int64_t begin, std::int64_t end) {
      Norm<T, center>::forward(x.const_data_ptr<T>(), weight.const_data_ptr<T>(), bias ? bias->const_data_ptr<T>() : nullptr,
                               y.mutable_data_ptr<T>(), center ? statistics.mean.mutable_data_ptr<float>() : nullptr,
                               statistics.rstd.mutable_data_ptr<float>(), begin, end, width, static_cast<float>(epsilon));
    });
  });
  return y;
}

template <bool center>
at::Tensor backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const RowStatistics& statistics,
                    const at::Tensor& residual_grad, at::Tensor& dweight, at::Tensor* dbias) {
  const std::int64_t width = x.size(-1);
  const std::int64_t rows = x.numel() / width;
  at::Tensor dx = at::empty_like(x);
  dispatch(x.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const float* mean = center ? statistics.mean.const_data_ptr<float>() : nullptr;
    const float* rstd = statistics.rstd.const_data_ptr<float>();
    for_rows(rows, width, [&](std::int64_t begin, std::int64_t end) {
      Norm<T, center>::backward(dy.const_data_ptr<T>(), x.const_data_ptr<T>(), weight.const_data_ptr<T>(), mean, rstd,
                                residual_grad.const_data_ptr<T>(), dx.mutable_data_ptr<T>(), begin, end, width);
    });
    Norm<T, center>::weight(dy.const_data_ptr<T>(), x.const_data_ptr<T>(), mean, rstd, dweight.mutable_data_ptr<float>(),
                            dbias ? dbias->mutable_data_ptr<float>() : nullptr, rows, width);
  });
  return dx;
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon, RowStatistics& statistics) {
  if (on_aten(x)) return aten::layer_norm(x, weight, bias, epsilon, statistics);
  return forward<true>(x, weight, &bias, epsilon, statistics);
}

at::Tensor layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const RowStatistics& statistics,
                               const at::Tensor& residual_grad, at::Tensor& dweight, at::Tensor& dbias) {
  if (on_aten(x)) return aten::layer_norm_backward(dy, x, weight, statistics, residual_grad, dweight, dbias);
  return backward<true>(dy, x, weight, statistics, residual_grad, dweight, &dbias);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon, RowStatistics& statistics) {
  if (on_aten(x)) return aten::rms_norm(x, weight, epsilon, statistics);
  return forward<false>(x, weight, nullptr, epsilon, statistics);
}

at::Tensor rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const RowStatistics& statistics,
                             const at::Tensor& residual_grad, at::Tensor& dweight) {
  if (on_aten(x)) return aten::rms_norm_backward(dy, x, weight, statistics, residual_grad, dweight);
  return backward<false>(dy, x, weight, statistics, residual_grad, dweight, nullptr);
}

}  // namespace wirewise::kernels
