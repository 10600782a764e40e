// Layers that segments are made of, each a forward and a backward on plain tensors. Activations are [rows, width], rows = micro_batch * sequence.
#pragma once

#include "wirewise/torch/segment.h"

namespace wirewise::layers {

/// Puts `gradient` (any floating dtype) where the weight wants it.
void store_gradient(Weight& weight, const at::Tensor& gradient);

/// x W^T (+ b). W [out, in].
at::Tensor linear(const at::Tensor& x, const Weight& weight, const Weight* bias = nullptr);
/// Fills dW = dy^T x and db = column sums of dy.
void linear_weight_backward(const at::Tensor& dy, const at::Tensor& x, Weight& weight, Weight* bias = nullptr);
/// dy W.
at::Tensor linear_input_backward(const at::Tensor& dy, const Weight& weight);

/// Causal attention. q [batch, heads, sequence, head_dim], k and v with kv_heads (heads a multiple of it). Returns [batch * sequence, heads * head_dim].
struct Attention {
  at::Tensor out;      // [batch, heads, sequence, head_dim], laid out [batch, sequence, heads, head_dim]
  at::Tensor lse;      // float32 log sum exp
};
Attention attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
struct AttentionGradient {
  at::Tensor q, k, v;  // shaped as the inputs
};
AttentionGradient attention_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const Attention& forward);

/// Rotary position embedding in place, Llama's half-split pairing: x [batch, sequence, heads, head_dim], contiguous. `inverse` undoes it (backward).
/// The table holds cos and sin of each position and pair, rounded to `table_dtype`: [sequence][head_dim / 2][2].
class Rotary {
 public:
  Rotary(std::int64_t head_dim, double theta, DType table_dtype) : head_dim_(head_dim), theta_(theta), table_dtype_(table_dtype) {}
  void apply_(at::Tensor& x, bool inverse);

 private:
  void extend(std::int64_t sequence);
  std::int64_t head_dim_;
  double theta_;
  DType table_dtype_;
  std::vector<float> table_;
  at::Tensor cos_, sin_;   // the table where the last tensor off the CPU was: float32 [positions, head_dim / 2]
};

}  // namespace wirewise::layers
