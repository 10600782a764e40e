// A model's shape: what its units, segments and parameter groups are, and what each costs in parameters, FLOPs and bytes. No tensors:
// the planner, the checker and the memory walk work on shapes alone; torch/ builds the real thing from the same description.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wirewise/base/dtype.h"
#include "wirewise/base/units.h"

namespace wirewise {

enum class Family : std::uint8_t { kGpt2, kLlama, kCustom };

/// The hyperparameters of a decoder-only transformer, in the field's terms.
struct ModelConfig {
  Family family = Family::kGpt2;
  std::int64_t layers = 12;
  std::int64_t width = 768;
  std::int64_t heads = 12;
  std::int64_t kv_heads = 12;   // Llama: grouped-query attention; GPT-2: equal to heads
  std::int64_t ffn = 3072;      // hidden width of the MLP
  std::int64_t vocab = 50257;
  std::int64_t context = 1024;  // GPT-2: rows of the position table; Llama: longest sequence allowed
  bool tied = true;             // the head shares the embedding's matrix
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0;  // Llama only
  bool operator==(const ModelConfig&) const = default;
};

/// Published models: gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-2-7b/13b/70b, llama-3-8b/70b/405b. Throws bad input with the
/// nearest name when unknown.
[[nodiscard]] ModelConfig preset(const std::string& name);
[[nodiscard]] std::vector<std::string> preset_names();

/// Throws bad input with the remedy when no such model exists (heads that don't divide the width, zero layers …).
void validate(const ModelConfig& config);

/// How initial values are drawn; the generator is keyed by (seed, tensor name, element), so sharding changes nothing.
struct Init {
  enum class Kind : std::uint8_t { kZeros, kOnes, kNormal } kind = Kind::kNormal;
  double std = 0.02;
};

struct TensorShape {
  std::string name;                 // as in the checkpoint: "transformer.h.0.attn.c_attn.weight"
  std::vector<std::int64_t> shape;
  Init init;
  bool decay = true;                // weight decay applies (matrices, not biases or norms)
  std::uint64_t offset = 0;         // first element within its group's flat buffer
  [[nodiscard]] std::uint64_t numel() const {
    std::uint64_t n = 1;
    for (auto extent : shape) n *= static_cast<std::uint64_t>(extent);
    return n;
  }
};

/// Tensors that live flat in one buffer, gathered, reduced and stepped together.
struct ParamGroup {
  std::string name;
  std::vector<TensorShape> tensors;
  std::uint64_t padded = 0;         // elements of the flat buffer, a multiple of shards * kAlignElements
  std::vector<int> users;           // units that use it, ascending; a tied embedding has two
  [[nodiscard]] std::uint64_t parameters() const {
    std::uint64_t n = 0;
    for (const auto& tensor : tensors) n += tensor.numel();
    return n;
  }
};

/// Each tensor starts on this many elements, so on 64 bytes in every dtype of 2 bytes or more.
inline constexpr std::uint64_t kAlignElements = 32;

/// What one segment costs for one micro-batch. Bytes are those of the tensors that torch/ allocates, to the byte.
struct SegmentCost {
  Flops forward = 0;
  Flops backward = 0;
  Bytes saved = 0;               // kept from forward for backward, besides the segment's input
  Bytes temporary_forward = 0;   // what forward's peak holds beyond its inputs, output and saved
  Bytes temporary_backward = 0;  // what backward's peak holds beyond its inputs, the gradient of its input and gradient buffers
  Bytes in = 0;                  // the input boundary (hidden state; token ids for the first)
  Bytes out = 0;                 // the output boundary; the last segment's is the loss
};

struct SegmentShape {
  std::string name;              // "attention", "mlp", "embedding", "head"
  std::vector<int> groups;       // parameter groups that it reads
  bool backward_reads_parameters = true;  // an embedding's backward needs no weights
  SegmentCost cost;
};

enum class UnitKind : std::uint8_t { kEmbedding, kBlock, kHead, kCustom };

struct UnitShape {
  std::string name;              // "transformer.h.3"
  UnitKind kind = UnitKind::kBlock;
  std::vector<SegmentShape> segments;
  std::vector<int> groups;       // all groups of its segments, ascending
};

/// What the costs depend on besides the model.
struct BatchShape {
  std::int64_t micro_batch = 1;  // samples
  std::int64_t sequence = 1024;  // tokens a sample
  DType param_dtype = DType::kBFloat16;  // weights and activations
  /// Gradients accumulate in a buffer wider than the compute dtype (local sum over several micro-batches), so backward needs room
  /// for one tensor's gradient besides.
  bool separate_gradient = false;
  DType buffer_dtype = DType::kFloat32;  // tables that are no parameters: rotary positions
};

struct Model {
  ModelConfig config;
  BatchShape batch;
  std::vector<UnitShape> units;
  std::vector<ParamGroup> groups;
  [[nodiscard]] std::uint64_t parameters() const {
    std::uint64_t n = 0;
    for (const auto& group : groups) n += group.parameters();
    return n;
  }
};

/// The units, segments and groups of a configuration; groups are padded for `shards` equal shards.
/// Throws bad input when the sequence is longer than the context.
[[nodiscard]] Model build_model(const ModelConfig& config, const BatchShape& batch, int shards);

/// Lays the tensors of a group out (offset of each, padded size) for `shards` equal shards.
void lay_out(ParamGroup& group, int shards);

/// Model FLOPs of one token's forward and backward (a multiply-add counts two, recompute not counted), as MFU is defined.
[[nodiscard]] Flops flops_per_token(const Model& model);

}  // namespace wirewise
