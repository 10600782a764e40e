// Causal attention on the CPU, forward and backward, tile by tile: scores in float32, products with values and gradients in the compute dtype. libtorch's
// flash kernel does the same arithmetic without matrix units where head and sequence are short, at half the speed or less.
#pragma once

#include <ATen/core/Tensor.h>

#include "wirewise/base/units.h"

namespace wirewise::kernels {

/// q, k, v [batch, heads, sequence, head_dim], of one dtype; any strides with a contiguous last dimension.
struct AttentionForward {
  at::Tensor out;   // as q, laid out [batch, sequence, heads, head_dim]
  at::Tensor lse;   // float32 [batch, heads, sequence]: log sum exp of the scaled scores
};
[[nodiscard]] AttentionForward attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

struct AttentionBackward {
  at::Tensor q, k, v;   // as the inputs, laid out [batch, sequence, heads, head_dim]
};
[[nodiscard]] AttentionBackward attention_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                   const at::Tensor& out, const at::Tensor& lse);

}  // namespace wirewise::kernels
