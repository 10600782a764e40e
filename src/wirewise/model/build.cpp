// Builds a model's shape from its configuration: units and their segments, the parameter groups they read, and what each costs.
//
// A Linear's weight is [out, in] everywhere. FLOPs count a multiply-add as two. Attention's two products count whole
// sequence x sequence squares, as PyTorch's FLOP counter does: the causal half that a kernel may skip is not taken off. Backward
// counts twice its forward (the gradients of both factors); scores that a fused kernel computes anew are not counted.
#include <algorithm>
#include <cmath>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/model/model.h"
#include "wirewise/model/segment_bytes.h"

namespace wirewise {
namespace {

constexpr Init kNormInit{Init::Kind::kOnes, 0};
constexpr Init kBiasInit{Init::Kind::kZeros, 0};
constexpr Init kMatrixInit{Init::Kind::kNormal, 0.02};

TensorShape matrix(std::string name, std::int64_t rows, std::int64_t columns, Init init = kMatrixInit) {
  return {std::move(name), {rows, columns}, init, true, 0};
}
/// Biases and norms: vectors, which weight decay leaves alone.
TensorShape vector_of(std::string name, std::int64_t length, Init init) { return {std::move(name), {length}, init, false, 0}; }

ParamGroup group_of(std::string name, std::vector<TensorShape> tensors) { return {std::move(name), std::move(tensors), 0, {}}; }

ParamGroup gpt2_block(const ModelConfig& c, std::int64_t layer) {
  const std::string name = "transformer.h." + std::to_string(layer), at = name + ".";
  // GPT-2 scales what writes into the residual stream by the number of writes, two a layer.
  const Init residual{Init::Kind::kNormal, 0.02 / std::sqrt(2.0 * static_cast<double>(c.layers))};
  return group_of(name, {
                            vector_of(at + "ln_1.weight", c.width, kNormInit),
                            vector_of(at + "ln_1.bias", c.width, kBiasInit),
                            matrix(at + "attn.c_attn.weight", 3 * c.width, c.width),
                            vector_of(at + "attn.c_attn.bias", 3 * c.width, kBiasInit),
                            matrix(at + "attn.c_proj.weight", c.width, c.width, residual),
                            vector_of(at + "attn.c_proj.bias", c.width, kBiasInit),
                            vector_of(at + "ln_2.weight", c.width, kNormInit),
                            vector_of(at + "ln_2.bias", c.width, kBiasInit),
                            matrix(at + "mlp.c_fc.weight", c.ffn, c.width),
                            vector_of(at + "mlp.c_fc.bias", c.ffn, kBiasInit),
                            matrix(at + "mlp.c_proj.weight", c.width, c.ffn, residual),
                            vector_of(at + "mlp.c_proj.bias", c.width, kBiasInit),
                        });
}

ParamGroup llama_block(const ModelConfig& c, std::int64_t layer) {
  const std::string name = "model.layers." + std::to_string(layer), at = name + ".";
  const std::int64_t kv_width = c.width / c.heads * c.kv_heads;
  return group_of(name, {
                            vector_of(at + "input_layernorm.weight", c.width, kNormInit),
                            matrix(at + "self_attn.q_proj.weight", c.width, c.width),
                            matrix(at + "self_attn.k_proj.weight", kv_width, c.width),
                            matrix(at + "self_attn.v_proj.weight", kv_width, c.width),
                            matrix(at + "self_attn.o_proj.weight", c.width, c.width),
                            vector_of(at + "post_attention_layernorm.weight", c.width, kNormInit),
                            matrix(at + "mlp.gate_proj.weight", c.ffn, c.width),
                            matrix(at + "mlp.up_proj.weight", c.ffn, c.width),
                            matrix(at + "mlp.down_proj.weight", c.width, c.ffn),
                        });
}

/// The embedding's groups (the token table first), then one a block, then the head's.
std::vector<ParamGroup> groups_of(const ModelConfig& c) {
  std::vector<ParamGroup> groups;
  const bool gpt2 = c.family == Family::kGpt2;
  const std::string tokens = gpt2 ? "transformer.wte" : "model.embed_tokens";
  groups.push_back(group_of(tokens, {matrix(tokens + ".weight", c.vocab, c.width)}));
  if (gpt2) groups.push_back(group_of("transformer.wpe", {matrix("transformer.wpe.weight", c.context, c.width)}));
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    groups.push_back(gpt2 ? gpt2_block(c, layer) : llama_block(c, layer));
  }
  ParamGroup head = group_of("head", {});
  if (gpt2) {
    head.tensors.push_back(vector_of("transformer.ln_f.weight", c.width, kNormInit));
    head.tensors.push_back(vector_of("transformer.ln_f.bias", c.width, kBiasInit));
  } else {
    head.tensors.push_back(vector_of("model.norm.weight", c.width, kNormInit));
  }
  if (!c.tied) head.tensors.push_back(matrix("lm_head.weight", c.vocab, c.width));
  groups.push_back(std::move(head));
  return groups;
}

/// Forward FLOPs of each segment for one micro-batch.
struct ForwardFlops {
  Flops attention, mlp, head;
};
ForwardFlops forward_flops(const ModelConfig& c, const BatchShape& batch) {
  const double tokens = static_cast<double>(batch.micro_batch) * static_cast<double>(batch.sequence);
  const auto matmul = [](double m, double n, double k) { return 2 * m * n * k; };
  const double width = static_cast<double>(c.width), ffn = static_cast<double>(c.ffn);
  const double kv_width = static_cast<double>(c.width / c.heads * c.kv_heads);
  const double qkv = matmul(tokens, width + 2 * kv_width, width);
  // Scores and values, over all heads: each is [sequence, head] x [head, sequence] a head and sample.
  const double squares = 2 * matmul(tokens, static_cast<double>(batch.sequence), width);
  const double mlp_matrices = c.family == Family::kLlama ? 3 : 2;  // SwiGLU has a gate besides up and down
  return {qkv + squares + matmul(tokens, width, width), mlp_matrices * matmul(tokens, ffn, width),
          matmul(tokens, static_cast<double>(c.vocab), width)};
}

struct Boundaries {
  Bytes ids, hidden, loss;
};

SegmentShape segment_of(const Model& model, std::string name, UnitKind kind, int index, std::vector<int> groups, Flops forward,
                        Bytes in, Bytes out) {
  const SegmentBytes bytes = segment_bytes(model.config, model.batch, kind, index);
  SegmentShape segment;
  segment.name = std::move(name);
  segment.groups = std::move(groups);
  segment.backward_reads_parameters = kind != UnitKind::kEmbedding;
  segment.cost = {forward, 2 * forward, bytes.saved, bytes.temporary_forward, bytes.temporary_backward, in, out};
  return segment;
}

void check_batch(const ModelConfig& config, const BatchShape& batch) {
  if (batch.micro_batch < 1) {
    throw bad_input("train.micro_batch is " + std::to_string(batch.micro_batch) + ", but must be at least 1.",
                    "Set it to 1 or more.");
  }
  if (batch.sequence < 1) {
    throw bad_input("train.sequence is " + std::to_string(batch.sequence) + ", but must be at least 1.", "Set it to 1 or more.");
  }
  if (batch.sequence > config.context) {
    throw bad_input("train.sequence " + std::to_string(batch.sequence) + " is longer than model.context " +
                        std::to_string(config.context) + ".",
                    "Set sequence to " + std::to_string(config.context) + " or less, or context to " +
                        std::to_string(batch.sequence) + " or more.");
  }
  constexpr double kMostElements = 1e15;  // of the largest activation: keeps every byte count within 64 bits
  const double widest =
      std::max({static_cast<double>(config.vocab), static_cast<double>(config.ffn), 3 * static_cast<double>(config.width),
                static_cast<double>(config.heads) * static_cast<double>(batch.sequence)});
  if (static_cast<double>(batch.micro_batch) * static_cast<double>(batch.sequence) * widest > kMostElements) {
    throw bad_input("a micro-batch of " + std::to_string(batch.micro_batch) + " x " + std::to_string(batch.sequence) +
                        " tokens would need activations of more than 10^15 elements.",
                    "Lower train.micro_batch or train.sequence.");
  }
}

}  // namespace

Model build_model(const ModelConfig& config, const BatchShape& batch, int shards) {
  validate(config);
  check_batch(config, batch);
  Model model{config, batch, {}, groups_of(config)};
  const Bytes tokens = static_cast<Bytes>(batch.micro_batch) * static_cast<Bytes>(batch.sequence);
  const Boundaries boundary{2 * tokens * size_of(DType::kInt64),  // token ids and targets
                            tokens * static_cast<Bytes>(config.width) * size_of(batch.param_dtype), size_of(DType::kFloat32)};
  const ForwardFlops flops = forward_flops(config, batch);
  const int first_block = config.family == Family::kGpt2 ? 2 : 1;
  const int layers = static_cast<int>(config.layers), head_group = first_block + layers;

  const auto add_unit = [&](std::string name, UnitKind kind, std::vector<SegmentShape> segments, std::vector<int> groups) {
    for (int group : groups) model.groups[static_cast<std::size_t>(group)].users.push_back(static_cast<int>(model.units.size()));
    model.units.push_back({std::move(name), kind, std::move(segments), std::move(groups)});
  };

  std::vector<int> tables{0};
  if (first_block == 2) tables.push_back(1);
  add_unit("embedding", UnitKind::kEmbedding,
           {segment_of(model, "embedding", UnitKind::kEmbedding, 0, tables, 0, boundary.ids, boundary.hidden)}, tables);
  for (int layer = 0; layer < layers; ++layer) {
    const int group = first_block + layer;
    add_unit(model.groups[static_cast<std::size_t>(group)].name, UnitKind::kBlock,
             {segment_of(model, "attention", UnitKind::kBlock, 0, {group}, flops.attention, boundary.hidden, boundary.hidden),
              segment_of(model, "mlp", UnitKind::kBlock, 1, {group}, flops.mlp, boundary.hidden, boundary.hidden)},
             {group});
  }
  std::vector<int> head_groups;
  if (config.tied) head_groups.push_back(0);
  head_groups.push_back(head_group);
  add_unit("head", UnitKind::kHead,
           {segment_of(model, "head", UnitKind::kHead, 0, head_groups, flops.head, boundary.hidden, boundary.loss)}, head_groups);

  for (auto& group : model.groups) lay_out(group, shards);
  return model;
}

void lay_out(ParamGroup& group, int shards) {
  if (shards < 1) {
    throw bad_input("parameters can't be laid out for " + std::to_string(shards) + " shards.", "Use 1 shard or more.");
  }
  std::uint64_t end = 0;
  for (auto& tensor : group.tensors) {
    tensor.offset = round_up(end, kAlignElements);
    end = tensor.offset + tensor.numel();
  }
  group.padded = round_up(end, static_cast<std::uint64_t>(shards) * kAlignElements);
}

Flops flops_per_token(const Model& model) {
  Flops total = 0;
  for (const auto& unit : model.units) {
    for (const auto& segment : unit.segments) total += segment.cost.forward + segment.cost.backward;
  }
  return total / (static_cast<double>(model.batch.micro_batch) * static_cast<double>(model.batch.sequence));
}

}  // namespace wirewise
