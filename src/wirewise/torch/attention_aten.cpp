// Attention by libtorch's fused operators: flash for 16-bit types, memory-efficient for float32; on the CPU (tests) its flash kernel.
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/zeros.h>

#include <string_view>

#include "wirewise/base/error.h"
#include "wirewise/torch/kernels_aten.h"

namespace wirewise::kernels::aten {
namespace {

bool is_flash(const at::Tensor& q) { return std::string_view(attention_operator(q.scalar_type(), q.size(3))) == "flash"; }

/// Without dropout the operators draw no random numbers, but ask for where they would have begun.
at::Tensor no_random_state(const at::Tensor& q, const std::vector<std::int64_t>& shape, c10::ScalarType type) {
  return at::zeros(shape, q.options().dtype(type));
}

}  // namespace

const char* attention_operator(c10::ScalarType type, std::int64_t head_dim) {
  const bool half = type == c10::kBFloat16 || type == c10::kHalf;
  if (head_dim % 8 != 0 || (half && head_dim > 256)) {
    throw bad_input("fused attention on a device needs a head dimension that is a multiple of 8" + std::string(half ? " and at most 256" : "") +
                        ", but model.width / model.heads is " + std::to_string(head_dim) + ".",
                    "Change model.heads or model.width.");
  }
  return half ? "flash" : "efficient";
}

AttentionForward attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  if (q.device().is_cpu()) {
    auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, /*is_causal=*/true);
    return {std::move(out), std::move(lse)};
  }
  if (is_flash(q)) {
    auto result = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, /*is_causal=*/true);
    return {std::get<0>(result), std::get<1>(result)};
  }
  auto result = at::_scaled_dot_product_efficient_attention(q, k, v, std::nullopt, /*compute_log_sumexp=*/true, 0.0, /*is_causal=*/true);
  return {std::get<0>(result), std::get<1>(result)};
}

AttentionBackward attention_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
                                     const at::Tensor& lse) {
  if (q.device().is_cpu()) {
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(grad_out, q, k, v, out, lse, 0.0, /*is_causal=*/true);
    return {std::move(dq), std::move(dk), std::move(dv)};
  }
  if (is_flash(q)) {
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_backward(grad_out, q, k, v, out, lse, /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, q.size(2),
                                                                        k.size(2), 0.0, /*is_causal=*/true, no_random_state(q, {2}, c10::kUInt64),
                                                                        no_random_state(q, {}, c10::kUInt64));
    return {std::move(dq), std::move(dk), std::move(dv)};
  }
  auto [dq, dk, dv, dbias] = at::_scaled_dot_product_efficient_attention_backward(
      grad_out, q, k, v, /*attn_bias=*/{}, out, lse, no_random_state(q, {}, c10::kLong), no_random_state(q, {}, c10::kLong), 0.0,
      {true, true, true, false}, /*is_causal=*/true);
  return {std::move(dq), std::move(dk), std::move(dv)};
}

}  // namespace wirewise::kernels::aten
