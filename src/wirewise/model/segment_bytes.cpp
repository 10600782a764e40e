#include "wirewise/model/segment_bytes.h"

#include <algorithm>

namespace wirewise {
namespace {

struct Shape {
  Bytes e;       // bytes of an activation
  Bytes rows;    // micro_batch * sequence
  Bytes width, kv_width, ffn, vocab, heads, sequence, head_dim, head_group;
  bool separate; // weight gradients pass through a temporary of their own
  [[nodiscard]] Bytes hidden() const { return rows * width * e; }
  [[nodiscard]] Bytes row_floats() const { return rows * 4; }
  /// A linear layer's weight gradient where it does not go straight to its place.
  [[nodiscard]] Bytes weight_gradient(Bytes out, Bytes in) const { return separate ? out * in * e : 0; }
};

Bytes over(Bytes peak, Bytes counted) { return peak > counted ? peak - counted : 0; }

/// Elements of one group of heads [heads, sequence, head_dim].
Bytes group_elements(const Shape& s) { return s.head_group * s.sequence * s.head_dim; }

/// The largest of f(query rows, keys) over the tiles that can be largest: the last whole one, and the rest behind it.
template <typename F>
Bytes largest_tile(const Shape& s, F&& f) {
  const Bytes rest = s.sequence % kAttentionTile;
  const Bytes whole = s.sequence - rest;
  return std::max(whole > 0 ? f(Bytes{kAttentionTile}, whole) : 0, rest > 0 ? f(rest, s.sequence) : 0);
}

/// Queries and keys in float32, values, one tile of scores (float32) and of weights, its output.
Bytes attention_forward_scratch(const Shape& s) {
  return group_elements(s) * (8 + s.e) + largest_tile(s, [&](Bytes rows, Bytes keys) {
           return s.head_group * rows * (keys * (4 + s.e) + s.head_dim * s.e);
         });
}

/// Gradient of the output, scaled queries, keys, values, and sums of key and value gradients in float32; queries, keys and the output's gradient in the
/// compute dtype; a row sum; then a tile of scores and their gradient in both, or a tile's share of the key gradients.
Bytes attention_backward_scratch(const Shape& s) {
  return group_elements(s) * (24 + 3 * s.e) + 4 * s.head_group * s.sequence + largest_tile(s, [&](Bytes rows, Bytes keys) {
           const Bytes tile = s.head_group * rows * keys;
           return std::max(tile * (8 + 2 * s.e), tile * 2 * s.e + s.head_group * keys * s.head_dim * s.e);
         });
}

SegmentBytes gpt2_attention(const Shape& s) {
  const Bytes h = s.hidden();
  const Bytes statistics = s.row_floats() * s.heads;
  SegmentBytes bytes;
  bytes.saved = 5 * h + 2 * s.row_floats() + statistics;  // norm, query-key-value (3), attention; mean, rstd, log sum exp
  bytes.temporary_forward = over(attention_forward_scratch(s), h);  // scratch is gone before the output comes
  bytes.temporary_backward = over(std::max({
      s.weight_gradient(s.width, s.width),
      4 * h + attention_backward_scratch(s),        // gradient of attention's output, then of q, k, v
      6 * h,                                        // q, k, v joined
      3 * h + s.weight_gradient(3 * s.width, s.width),
      4 * h,
      2 * h + 8 * s.width,                          // norm's gradient and its input's, float32 sums of weight and bias
  }), h);
  return bytes;
}

SegmentBytes gpt2_mlp(const Shape& s) {
  const Bytes h = s.hidden();
  const Bytes inner = s.rows * s.ffn * s.e;
  SegmentBytes bytes;
  bytes.saved = h + 2 * s.row_floats() + 2 * inner;
  bytes.temporary_backward = over(std::max({inner + h, inner + s.weight_gradient(s.ffn, s.width), 2 * h + 8 * s.width}), h);
  return bytes;
}

SegmentBytes llama_attention(const Shape& s) {
  const Bytes h = s.hidden();
  const Bytes keys = s.rows * s.kv_width * s.e;
  const bool grouped = s.kv_width != s.width;
  const Bytes repeated = grouped ? 2 * h : 0;  // keys and values repeated for their query heads
  const Bytes kv_grads = 2 * keys;
  SegmentBytes bytes;
  bytes.saved = 3 * h + 2 * keys + s.row_floats() * (1 + s.heads);
  bytes.temporary_forward = over(repeated + attention_forward_scratch(s), h);
  bytes.temporary_backward = over(std::max({
      s.weight_gradient(s.width, s.width),
      h + repeated + 3 * h + attention_backward_scratch(s),
      grouped ? 4 * h + kv_grads : 4 * h,           // folding key and value gradients over their query heads
      h + kv_grads + s.weight_gradient(s.width, s.width),
      2 * h + kv_grads,                             // query's gradient, norm's gradient
      2 * h + 4 * s.width,
  }), h);
  return bytes;
}

SegmentBytes llama_mlp(const Shape& s) {
  const Bytes h = s.hidden();
  const Bytes inner = s.rows * s.ffn * s.e;
  SegmentBytes bytes;
  bytes.saved = h + s.row_floats() + 3 * inner;
  // Both inner gradients live until the end of the segment.
  bytes.temporary_backward = over(std::max({2 * inner + 2 * h + 4 * s.width, 2 * inner + s.weight_gradient(s.ffn, s.width),
                                            s.weight_gradient(s.width, s.ffn)}), h);
  return bytes;
}

SegmentBytes head(const Shape& s, bool centered) {
  const Bytes h = s.hidden();
  const Bytes logits = s.rows * s.vocab * s.e;
  SegmentBytes bytes;
  bytes.saved = h + s.row_floats() * (centered ? 3 : 2) + logits;
  // The logits, saved, are gone before the norm's backward.
  bytes.temporary_backward = over(std::max({s.weight_gradient(s.vocab, s.width), h, over(3 * h + (centered ? 8 : 4) * s.width, logits)}), h);
  return bytes;
}

}  // namespace

SegmentBytes segment_bytes(const ModelConfig& config, const BatchShape& batch, UnitKind unit, int segment) {
  Shape s{};
  s.e = size_of(batch.param_dtype);
  s.sequence = static_cast<Bytes>(batch.sequence);
  s.rows = static_cast<Bytes>(batch.micro_batch) * s.sequence;
  s.width = static_cast<Bytes>(config.width);
  s.heads = static_cast<Bytes>(config.heads);
  s.head_dim = s.width / s.heads;
  s.head_group = static_cast<Bytes>(attention_head_group(config.heads, batch.sequence, config.width / config.heads));
  s.kv_width = s.head_dim * static_cast<Bytes>(config.kv_heads);
  s.ffn = static_cast<Bytes>(config.ffn);
  s.vocab = static_cast<Bytes>(config.vocab);
  s.separate = batch.separate_gradient;
  const bool llama = config.family == Family::kLlama;
  switch (unit) {
    case UnitKind::kEmbedding: return {};
    case UnitKind::kHead: return head(s, !llama);
    case UnitKind::kBlock:
      if (segment == 0) return llama ? llama_attention(s) : gpt2_attention(s);
      return llama ? llama_mlp(s) : gpt2_mlp(s);
    case UnitKind::kCustom: return {};
  }
  return {};
}

}  // namespace wirewise
