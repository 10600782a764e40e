// The few CPU kernels that libtorch lacks or does in several passes over memory: norms with float32 statistics in 16-bit models, the
// loss over a large vocabulary in place, embedding gradients summed in float32, and float64 sums of squares. All are deterministic: each result
// is computed by one thread in a fixed order. Tensors are contiguous; T is float32, bfloat16 or float16.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace wirewise::kernels {

/// Row statistics, float32, one value a row of x. RMSNorm leaves `mean` undefined.
struct RowStatistics {
  at::Tensor mean;
  at::Tensor rstd;
};

/// y = (x - mean) * rstd * weight + bias over the last dimension. x [rows, width]; weight, bias [width] in x's dtype.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon, RowStatistics& statistics);
/// Returns dx + residual_grad. Writes float32 [width] sums into dweight and dbias.
at::Tensor layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const RowStatistics& statistics,
                               const at::Tensor& residual_grad, at::Tensor& dweight, at::Tensor& dbias);

/// y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + epsilon).
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon, RowStatistics& statistics);
/// Returns dx + residual_grad. Writes float32 [width] sums into dweight.
at::Tensor rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const RowStatistics& statistics,
                             const at::Tensor& residual_grad, at::Tensor& dweight);

/// Sum over rows of -log softmax(logits)[target]; rows whose target is negative are left out. logits [rows, vocab], targets int64 [rows].
/// Writes log sum exp of each row, float32 [rows], where `lse` is defined.
double cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse);
/// Replaces logits by (softmax - one-hot) * scale; rows whose target is negative become zero.
void cross_entropy_backward_(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse, double scale);

/// grad[token] += sum of the rows of dy with that token, added in float32 in row order and rounded once. Unless `add`, other rows of grad become
/// zero. grad [vocab, width] of any of the dtypes, dy [rows, width], tokens int64 [rows].
void embedding_backward(at::Tensor& grad, bool add, const at::Tensor& dy, const at::Tensor& tokens);

/// out = column sums of x, or out += them, added in float32 in row order and rounded once. x [rows, width], out [width] of any of the dtypes.
void column_sums(const at::Tensor& x, at::Tensor& out, bool add);

/// sum += value, element by element, of contiguous tensors of one size; a 16-bit value is widened on the way, not copied first.
void accumulate(at::Tensor& sum, const at::Tensor& value);

/// Sum of squares in float64, in a fixed order that depends on the length alone.
double sum_of_squares(const at::Tensor& flat);

/// Index of the first element that is not finite, or -1.
std::int64_t first_not_finite(const at::Tensor& flat);

}  // namespace wirewise::kernels
