// Llama's segments: rotary positions, RMSNorm, grouped-query attention, SwiGLU.
#include <ATen/ops/embedding.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include "wirewise/torch/families.h"
#include "wirewise/torch/kernels.h"
#include "wirewise/torch/layers.h"

namespace wirewise {
namespace {

class LlamaEmbedding final : public NamedSegment {
 public:
  LlamaEmbedding() : NamedSegment({"model.embed_tokens.weight"}) {}

  Boundary forward(const Boundary& in, std::vector<Weight>& weights, Saved*, StepContext&) override {
    return {at::embedding(weights[0].value, in[0])};
  }

  Boundary backward(const Boundary& in, const Boundary& grad_out, std::vector<Weight>& weights, Saved&, StepContext&) override {
    kernels::embedding_backward(weights[0].grad, weights[0].add, flat(grad_out[0]), in[0]);
    return {};
  }
};

class LlamaAttention final : public NamedSegment {
 public:
  LlamaAttention(const ModelConfig& config, const std::string& unit, DType buffer_dtype)
      : NamedSegment({unit + ".input_layernorm.weight", unit + ".self_attn.q_proj.weight", unit + ".self_attn.k_proj.weight",
                      unit + ".self_attn.v_proj.weight", unit + ".self_attn.o_proj.weight"}),
        heads_(config.heads),
        kv_heads_(config.kv_heads),
        epsilon_(config.norm_epsilon),
        rotary_(config.width / config.heads, config.rope_theta, buffer_dtype) {}

  Boundary forward(const Boundary& in, std::vector<Weight>& weights, Saved* saved, StepContext&) override {
    const at::Tensor& x = in[0];
    kernels::RowStatistics statistics;
    at::Tensor y = flat(kernels::rms_norm(x, weights[0].value, epsilon_, statistics));
    at::Tensor q = heads_of(layers::linear(y, weights[1]), x, heads_);
    at::Tensor k = heads_of(layers::linear(y, weights[2]), x, kv_heads_);
    at::Tensor v = heads_of(layers::linear(y, weights[3]), x, kv_heads_);
    rotary_.apply_(q, false);
    rotary_.apply_(k, false);
    layers::Attention attention = layers::attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2));
    at::Tensor out = layers::linear(rows_of(attention.out), weights[4]).view(x.sizes());
    out.add_(x);
    if (saved) *saved = {y, statistics.rstd, q, k, v, attention.out, attention.lse};
    return {out};
  }

  Boundary backward(const Boundary& in, const Boundary& grad_out, std::vector<Weight>& weights, Saved& saved, StepContext&) override {
    const at::Tensor& x = in[0];
    const at::Tensor dy = flat(grad_out[0]);
    layers::linear_weight_backward(dy, rows_of(saved[5]), weights[4]);
    at::Tensor dattention = heads_of(layers::linear_input_backward(dy, weights[4]), x, heads_).transpose(1, 2);
    layers::AttentionGradient grad = layers::attention_backward(dattention, saved[2].transpose(1, 2), saved[3].transpose(1, 2),
                                                                saved[4].transpose(1, 2), {saved[5], saved[6]});
    dattention.reset();
    at::Tensor dnorm = project_back(grad.q, x, weights[1], saved[0], true, {});
    grad.q.reset();
    dnorm = project_back(grad.k, x, weights[2], saved[0], true, dnorm);
    grad.k.reset();
    dnorm = project_back(grad.v, x, weights[3], saved[0], false, dnorm);
    grad.v.reset();
    return {rms_norm_gradient(dnorm, x, dy, weights[0], {{}, saved[1]})};
  }

 private:
  static at::Tensor heads_of(const at::Tensor& rows, const at::Tensor& x, std::int64_t heads) {
    return rows.view({x.size(0), x.size(1), heads, -1});
  }

  /// From the gradient of one projection's heads to its weight gradient and its share of the norm output's gradient.
  at::Tensor project_back(const at::Tensor& grad, const at::Tensor& x, Weight& weight, const at::Tensor& y, bool rotated,
                          at::Tensor dnorm) {
    at::Tensor rows = rows_of(grad).contiguous();
    if (rotated) {
      at::Tensor heads = heads_of(rows, x, grad.size(1));
      rotary_.apply_(heads, true);
    }
    layers::linear_weight_backward(rows, y, weight);
    if (!dnorm.defined()) return layers::linear_input_backward(rows, weight);
    return dnorm.addmm_(rows, weight.value);
  }

  std::int64_t heads_;
  std::int64_t kv_heads_;
  double epsilon_;
  layers::Rotary rotary_;
};

class LlamaMlp final : public NamedSegment {
 public:
  LlamaMlp(const ModelConfig& config, const std::string& unit)
      : NamedSegment({unit + ".post_attention_layernorm.weight", unit + ".mlp.gate_proj.weight", unit + ".mlp.up_proj.weight",
                      unit + ".mlp.down_proj.weight"}),
        epsilon_(config.norm_epsilon) {}

  Boundary forward(const Boundary& in, std::vector<Weight>& weights, Saved* saved, StepContext&) override {
    const at::Tensor& x = in[0];
    kernels::RowStatistics statistics;
    at::Tensor y = flat(kernels::rms_norm(x, weights[0].value, epsilon_, statistics));
    at::Tensor gate = layers::linear(y, weights[1]);
    at::Tensor up = layers::linear(y, weights[2]);
    at::Tensor active = at::silu(gate);
    active.mul_(up);
    at::Tensor out = layers::linear(active, weights[3]).view(x.sizes());
    out.add_(x);
    if (saved) *saved = {y, statistics.rstd, gate, up, active};
    return {out};
  }

  Boundary backward(const Boundary& in, const Boundary& grad_out, std::vector<Weight>& weights, Saved& saved, StepContext&) override {
    const at::Tensor dy = flat(grad_out[0]);
    layers::linear_weight_backward(dy, saved[4], weights[3]);
    at::Tensor dgate = layers::linear_input_backward(dy, weights[3]);
    at::Tensor dup = at::silu(saved[2]);
    dup.mul_(dgate);
    dgate.mul_(saved[3]);
    at::silu_backward_out(dgate, dgate, saved[2]);
    layers::linear_weight_backward(dgate, saved[0], weights[1]);
    layers::linear_weight_backward(dup, saved[0], weights[2]);
    at::Tensor dnorm = layers::linear_input_backward(dgate, weights[1]);
    dnorm.addmm_(dup, weights[2].value);
    return {rms_norm_gradient(dnorm, in[0], dy, weights[0], {{}, saved[1]})};
  }

 private:
  double epsilon_;
};

class LlamaHead final : public LossSegment {
 public:
  explicit LlamaHead(const ModelConfig& config)
      : LossSegment({"model.norm.weight", config.tied ? "model.embed_tokens.weight" : "lm_head.weight"}), epsilon_(config.norm_epsilon) {}

 private:
  at::Tensor normalize(const at::Tensor& x, std::vector<Weight>& weights, kernels::RowStatistics& statistics) override {
    return kernels::rms_norm(x, weights[0].value, epsilon_, statistics);
  }
  at::Tensor normalize_backward(const at::Tensor& dnorm, const at::Tensor& x, const at::Tensor& residual, std::vector<Weight>& weights,
                                const kernels::RowStatistics& statistics) override {
    return rms_norm_gradient(dnorm, x, residual, weights[0], statistics);
  }
  double epsilon_;
};

}  // namespace

std::vector<std::unique_ptr<Segment>> llama_segments(const ModelConfig& config, const UnitShape& unit, DType buffer_dtype) {
  std::vector<std::unique_ptr<Segment>> segments;
  switch (unit.kind) {
    case UnitKind::kEmbedding: segments.push_back(std::make_unique<LlamaEmbedding>()); break;
    case UnitKind::kBlock:
      segments.push_back(std::make_unique<LlamaAttention>(config, unit.name, buffer_dtype));
      segments.push_back(std::make_unique<LlamaMlp>(config, unit.name));
      break;
    case UnitKind::kHead: segments.push_back(std::make_unique<LlamaHead>(config)); break;
    case UnitKind::kCustom: break;
  }
  return segments;
}

}  // namespace wirewise
