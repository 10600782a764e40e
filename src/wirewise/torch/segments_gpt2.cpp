// GPT-2's segments: learned positions, LayerNorm, one fused query-key-value projection, GELU (tanh form).
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>

#include "wirewise/torch/families.h"
#include "wirewise/torch/kernels.h"
#include "wirewise/torch/layers.h"

namespace wirewise {
namespace {

class Gpt2Embedding final : public NamedSegment {
 public:
  Gpt2Embedding() : NamedSegment({"transformer.wte.weight", "transformer.wpe.weight"}) {}

  Boundary forward(const Boundary& in, std::vector<Weight>& weights, Saved*, StepContext&) override {
    at::Tensor out = at::embedding(weights[0].value, in[0]);
    out.add_(weights[1].value.narrow(0, 0, in[0].size(1)));
    return {out};
  }

  Boundary backward(const Boundary& in, const Boundary& grad_out, std::vector<Weight>& weights, Saved&, StepContext&) override {
    const at::Tensor& dy = grad_out[0];
    kernels::embedding_backward(weights[0].grad, weights[0].add, dy.view({-1, dy.size(-1)}), in[0]);
    const std::int64_t sequence = dy.size(1);
    at::Tensor used = weights[1].grad.narrow(0, 0, sequence).view(-1);
    kernels::column_sums(dy.view({dy.size(0), -1}), used, weights[1].add);
    if (!weights[1].add) weights[1].grad.narrow(0, sequence, weights[1].grad.size(0) - sequence).zero_();
    return {};
  }
};

class Gpt2Attention final : public NamedSegment {
 public:
  Gpt2Attention(const ModelConfig& config, const std::string& unit)
      : NamedSegment({unit + ".ln_1.weight", unit + ".ln_1.bias", unit + ".attn.c_attn.weight", unit + ".attn.c_attn.bias",
                      unit + ".attn.c_proj.weight", unit + ".attn.c_proj.bias"}),
        heads_(config.heads),
        epsilon_(config.norm_epsilon) {}

  Boundary forward(const Boundary& in, std::vector<Weight>& weights, Saved* saved, StepContext&) override {
    const at::Tensor& x = in[0];
    kernels::RowStatistics statistics;
    at::Tensor y = flat(kernels::layer_norm(x, weights[0].value, weights[1].value, epsilon_, statistics));
    at::Tensor qkv = layers::linear(y, weights[2], &weights[3]);
    const auto [q, k, v] = split(qkv, x);
    layers::Attention attention = layers::attention(q, k, v);
    at::Tensor out = layers::linear(rows_of(attention.out), weights[4], &weights[5]).view(x.sizes());
    out.add_(x);
    if (saved) *saved = {y, statistics.mean, statistics.rstd, qkv, attention.out, attention.lse};
    return {out};
  }

  Boundary backward(const Boundary& in, const Boundary& grad_out, std::vector<Weight>& weights, Saved& saved, StepContext&) override {
    const at::Tensor& x = in[0];
    const at::Tensor dy = flat(grad_out[0]);
    layers::linear_weight_backward(dy, rows_of(saved[4]), weights[4], &weights[5]);
    at::Tensor dqkv;
    {
      at::Tensor dattention = layers::linear_input_backward(dy, weights[4]).view({x.size(0), x.size(1), heads_, -1}).transpose(1, 2);
      const auto [q, k, v] = split(saved[3], x);
      layers::AttentionGradient grad = layers::attention_backward(dattention, q, k, v, {saved[4], saved[5]});
      dattention.reset();
      dqkv = at::cat({rows_of(grad.q), rows_of(grad.k), rows_of(grad.v)}, 1);
    }
    layers::linear_weight_backward(dqkv, saved[0], weights[2], &weights[3]);
    at::Tensor dnorm = layers::linear_input_backward(dqkv, weights[2]);
    dqkv.reset();
    return {layer_norm_gradient(dnorm, x, dy, weights[0], weights[1], {saved[1], saved[2]})};
  }

 private:
  struct Heads {
    at::Tensor q, k, v;
  };
  Heads split(const at::Tensor& qkv, const at::Tensor& x) const {
    const at::Tensor parts = qkv.view({x.size(0), x.size(1), 3, heads_, x.size(2) / heads_}).permute({2, 0, 3, 1, 4});
    return {parts[0], parts[1], parts[2]};
  }
  std::int64_t heads_;
  double epsilon_;
};

class Gpt2Mlp final : public NamedSegment {
 public:
  Gpt2Mlp(const ModelConfig& config, const std::string& unit)
      : NamedSegment({unit + ".ln_2.weight", unit + ".ln_2.bias", unit + ".mlp.c_fc.weight", unit + ".mlp.c_fc.bias",
                      unit + ".mlp.c_proj.weight", unit + ".mlp.c_proj.bias"}),
        epsilon_(config.norm_epsilon) {}

  Boundary forward(const Boundary& in, std::vector<Weight>& weights, Saved* saved, StepContext&) override {
    const at::Tensor& x = in[0];
    kernels::RowStatistics statistics;
    at::Tensor y = flat(kernels::layer_norm(x, weights[0].value, weights[1].value, epsilon_, statistics));
    at::Tensor hidden = layers::linear(y, weights[2], &weights[3]);
    at::Tensor active = at::gelu(hidden, "tanh");
    at::Tensor out = layers::linear(active, weights[4], &weights[5]).view(x.sizes());
    out.add_(x);
    if (saved) *saved = {y, statistics.mean, statistics.rstd, hidden, active};
    return {out};
  }

  Boundary backward(const Boundary& in, const Boundary& grad_out, std::vector<Weight>& weights, Saved& saved, StepContext&) override {
    const at::Tensor dy = flat(grad_out[0]);
    layers::linear_weight_backward(dy, saved[4], weights[4], &weights[5]);
    at::Tensor dhidden = layers::linear_input_backward(dy, weights[4]);
    at::gelu_backward_out(dhidden, dhidden, saved[3], "tanh");
    layers::linear_weight_backward(dhidden, saved[0], weights[2], &weights[3]);
    at::Tensor dnorm = layers::linear_input_backward(dhidden, weights[2]);
    dhidden.reset();
    return {layer_norm_gradient(dnorm, in[0], dy, weights[0], weights[1], {saved[1], saved[2]})};
  }

 private:
  double epsilon_;
};

class Gpt2Head final : public LossSegment {
 public:
  explicit Gpt2Head(const ModelConfig& config)
      : LossSegment({"transformer.ln_f.weight", "transformer.ln_f.bias", config.tied ? "transformer.wte.weight" : "lm_head.weight"}),
        epsilon_(config.norm_epsilon) {}

 private:
  at::Tensor normalize(const at::Tensor& x, std::vector<Weight>& weights, kernels::RowStatistics& statistics) override {
    return kernels::layer_norm(x, weights[0].value, weights[1].value, epsilon_, statistics);
  }
  at::Tensor normalize_backward(const at::Tensor& dnorm, const at::Tensor& x, const at::Tensor& residual, std::vector<Weight>& weights,
                                const kernels::RowStatistics& statistics) override {
    return layer_norm_gradient(dnorm, x, residual, weights[0], weights[1], statistics);
  }
  double epsilon_;
};

}  // namespace

std::vector<std::unique_ptr<Segment>> gpt2_segments(const ModelConfig& config, const UnitShape& unit) {
  std::vector<std::unique_ptr<Segment>> segments;
  switch (unit.kind) {
    case UnitKind::kEmbedding: segments.push_back(std::make_unique<Gpt2Embedding>()); break;
    case UnitKind::kBlock:
      segments.push_back(std::make_unique<Gpt2Attention>(config, unit.name));
      segments.push_back(std::make_unique<Gpt2Mlp>(config, unit.name));
      break;
    case UnitKind::kHead: segments.push_back(std::make_unique<Gpt2Head>(config)); break;
    case UnitKind::kCustom: break;
  }
  return segments;
}

}  // namespace wirewise
