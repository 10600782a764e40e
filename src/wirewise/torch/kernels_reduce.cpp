// Embedding gradients, and sums over flat buffers, in orders that depend on nothing but the data's length.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "wirewise/torch/kernels.h"
#include "wirewise/torch/kernels_aten.h"
#include "wirewise/torch/kernels_common.h"

namespace wirewise::kernels {
namespace {

template <typename T>
[[gnu::always_inline]] inline void add_row(const T* in, float* out, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) out[i] += load(in[i]);
}

template <typename T>
[[gnu::always_inline]] inline double squares(const T* x, std::int64_t count) {
  double lane[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int k = 0; k < 16; ++k) {
      const double v = load(x[i + k]);
      lane[k] += v * v;
    }
  }
  for (int k = 0; i < count; ++i, ++k) {
    const double v = load(x[i]);
    lane[k] += v * v;
  }
  return fold(lane);
}

/// NaN when any element is not finite, else 0.
template <typename T>
[[gnu::always_inline]] inline float probe_finite(const T* x, std::int64_t count) {
  float lane[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int k = 0; k < 16; ++k) lane[k] += load(x[i + k]) * 0.0F;
  }
  for (int k = 0; i < count; ++i, ++k) lane[k] += load(x[i]) * 0.0F;
  return fold(lane);
}

#define WIREWISE_REDUCE_KERNELS(T)                                                                                              \
  WIREWISE_VECTOR void add_row_##T(const T* in, float* out, std::int64_t width) { add_row<T>(in, out, width); }                 \
  WIREWISE_VECTOR double squares_##T(const T* x, std::int64_t count) { return squares<T>(x, count); }                           \
  WIREWISE_VECTOR float probe_##T(const T* x, std::int64_t count) { return probe_finite<T>(x, count); }                         \
  [[maybe_unused]] inline void row_add(const T* in, float* out, std::int64_t width) { add_row_##T(in, out, width); }            \
  [[maybe_unused]] inline double block_squares(const T* x, std::int64_t count) { return squares_##T(x, count); }                \
  [[maybe_unused]] inline bool block_finite(const T* x, std::int64_t count) { return !std::isnan(probe_##T(x, count)); }
WIREWISE_REDUCE_KERNELS(Float)
WIREWISE_REDUCE_KERNELS(BFloat16)
WIREWISE_REDUCE_KERNELS(Half)

constexpr std::int64_t kRowBlock = 64;     // rows summed on their own in column sums
constexpr std::int64_t kBlock = 1 << 16;  // elements summed on their own; block sums are added in order

}  // namespace

void embedding_backward(at::Tensor& grad, bool add, const at::Tensor& dy, const at::Tensor& tokens) {
  if (on_aten(grad)) return aten::embedding_backward(grad, add, dy, tokens);
  const std::int64_t width = grad.size(1);
  const std::int64_t rows = tokens.numel();
  const auto* token = tokens.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> order(static_cast<std::size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return token[a] < token[b]; });
  if (!add) grad.zero_();
  std::vector<float> sum(static_cast<std::size_t>(width));
  dispatch(dy.scalar_type(), [&](auto* in_type) {
    using In = std::remove_pointer_t<decltype(in_type)>;
    dispatch(grad.scalar_type(), [&](auto* out_type) {
      using Out = std::remove_pointer_t<decltype(out_type)>;
      const In* in = dy.const_data_ptr<In>();
      Out* out = grad.mutable_data_ptr<Out>();
      for (std::size_t i = 0; i < order.size();) {
        const std::int64_t id = token[order[i]];
        std::fill(sum.begin(), sum.end(), 0.0F);
        for (; i < order.size() && token[order[i]] == id; ++i) row_add(in + order[i] * width, sum.data(), width);
        Out* row = out + id * width;
        for (std::int64_t j = 0; j < width; ++j) store(row[j], load(row[j]) + sum[static_cast<std::size_t>(j)]);
      }
    });
  });
}

void column_sums(const at::Tensor& x, at::Tensor& out, bool add) {
  if (on_aten(x)) return aten::column_sums(x, out, add);
  const std::int64_t rows = x.size(0);
  const std::int64_t width = x.size(1);
  std::vector<float> total(static_cast<std::size_t>(width), 0.0F);
  std::vector<float> block(static_cast<std::size_t>(width));
  dispatch(x.scalar_type(), [&](auto* in_type) {
    using In = std::remove_pointer_t<decltype(in_type)>;
    const In* in = x.const_data_ptr<In>();
    // Sums of blocks of rows are added up, so that rounding grows with the number of blocks and not of rows.
    for (std::int64_t begin = 0; begin < rows; begin += kRowBlock) {
      std::fill(block.begin(), block.end(), 0.0F);
      for (std::int64_t row = begin; row < std::min(rows, begin + kRowBlock); ++row) row_add(in + row * width, block.data(), width);
      row_add(block.data(), total.data(), width);
    }
  });
  dispatch(out.scalar_type(), [&](auto* out_type) {
    using Out = std::remove_pointer_t<decltype(out_type)>;
    Out* data = out.mutable_data_ptr<Out>();
    for (std::int64_t i = 0; i < width; ++i) {
      const float sum = total[static_cast<std::size_t>(i)];
      store(data[i], add ? load(data[i]) + sum : sum);
    }
  });
}

void accumulate(at::Tensor& sum, const at::Tensor& value) {
  if (sum.scalar_type() != c10::kFloat || on_aten(sum)) {
    sum.add_(value);
    return;
  }
  float* out = sum.mutable_data_ptr<float>();
  const std::int64_t count = sum.numel();
  dispatch(value.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* in = value.const_data_ptr<T>();
    for_rows((count + kBlock - 1) / kBlock, kBlock, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) row_add(in + b * kBlock, out + b * kBlock, std::min(kBlock, count - b * kBlock));
    });
  });
}

double sum_of_squares(const at::Tensor& flat) {
  if (on_aten(flat)) return aten::sum_of_squares(flat).item<double>();
  const std::int64_t count = flat.numel();
  const std::int64_t blocks = (count + kBlock - 1) / kBlock;
  std::vector<double> partial(static_cast<std::size_t>(blocks), 0.0);
  dispatch(flat.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* data = flat.const_data_ptr<T>();
    for_rows(blocks, kBlock, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        partial[static_cast<std::size_t>(b)] = block_squares(data + b * kBlock, std::min(kBlock, count - b * kBlock));
      }
    });
  });
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

std::int64_t first_not_finite(const at::Tensor& flat) {
  if (on_aten(flat)) return aten::first_not_finite(flat);
  const std::int64_t count = flat.numel();
  return dispatch(flat.scalar_type(), [&](auto* type) -> std::int64_t {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* data = flat.const_data_ptr<T>();
    for (std::int64_t begin = 0; begin < count; begin += kBlock) {
      const std::int64_t end = std::min(count, begin + kBlock);
      if (block_finite(data + begin, end - begin)) continue;
      for (std::int64_t i = begin; i < end; ++i) {
        if (!std::isfinite(load(data[i]))) return i;
      }
    }
    return -1;
  });
}

}  // namespace wirewise::kernels
