// The kernels of kernels.h and attention.h by libtorch's own operators: how tensors on a device are computed, since the kernels there are
// for CPUs. They run on CPU tensors too, which is how tests hold them against the CPU's kernels.
#pragma once

#include "wirewise/torch/attention.h"
#include "wirewise/torch/kernels.h"

namespace wirewise::kernels {

/// While one lives, CPU tensors of this thread are computed by libtorch's operators as well. For tests.
class AtenEverywhere {
 public:
  AtenEverywhere() noexcept;
  ~AtenEverywhere();
  AtenEverywhere(const AtenEverywhere&) = delete;
  AtenEverywhere& operator=(const AtenEverywhere&) = delete;

 private:
  bool before_;
};

/// Whether `x` is computed by libtorch's operators.
[[nodiscard]] bool on_aten(const at::Tensor& x) noexcept;

namespace aten {

/// Statistics are the operators' own, in whatever type and shape those have.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon, RowStatistics& statistics);
at::Tensor layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const RowStatistics& statistics,
                               const at::Tensor& residual_grad, at::Tensor& dweight, at::Tensor& dbias);
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon, RowStatistics& statistics);
at::Tensor rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const RowStatistics& statistics,
                             const at::Tensor& residual_grad, at::Tensor& dweight);

/// A float64 scalar where the logits are: reading it would make the thread wait for the device.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse);
void cross_entropy_backward_(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse, double scale);
void embedding_backward(at::Tensor& grad, bool add, const at::Tensor& dy, const at::Tensor& tokens);
void column_sums(const at::Tensor& x, at::Tensor& out, bool add);
/// A float64 scalar where `flat` is.
at::Tensor sum_of_squares(const at::Tensor& flat);
std::int64_t first_not_finite(const at::Tensor& flat);

/// The fused operator that a device computes attention with: "flash" (16 bit) or "efficient" (float32). Throws bad input where none fits.
[[nodiscard]] const char* attention_operator(c10::ScalarType type, std::int64_t head_dim);
AttentionForward attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
AttentionBackward attention_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
                                     const at::Tensor& lse);

/// x [batch, sequence, heads, head_dim] in place; cos and sin float32 [sequence, head_dim / 2].
void rotate_(at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool inverse);

}  // namespace aten
}  // namespace wirewise::kernels
