#include "wirewise/model/segment_bytes.h"

#include <algorithm>

namespace wirewise {
namespace {

struct Shape {
  Bytes e;        // bytes of an activation
  Bytes rows;     // micro_batch * sequence
  Bytes width, kv_width, ffn, vocab, heads, batch, sequence, head_dim;
  bool separate;  // weight gradients pass through a temporary of their own
  [[nodiscard]] Bytes hidden() const { return rows * width * e; }
  [[nodiscard]] Bytes row_floats() const { return rows * 4; }
  /// Peak of a linear layer's weight backward besides its operands: the gradient itself where it does not go straight to its place.
  [[nodiscard]] Bytes weight_gradient(Bytes out, Bytes in) const { return separate ? out * in * e : 0; }
};

/// Scratch of libtorch's CPU flash attention: a tile of scores and of its output for each thread.
Bytes attention_forward_scratch(const Shape&) { return 0; }
Bytes attention_backward_scratch(const Shape&) { return 0; }

SegmentBytes gpt2_attention(const Shape& s) {
  SegmentBytes bytes;
  bytes.saved = s.hidden() * 5 + s.row_floats() * (2 + s.heads);  // norm, qkv (3), attention; mean, rstd, log sum exp
  bytes.temporary_forward = attention_forward_scratch(s);
  const Bytes projections = 3 * s.hidden();
  bytes.temporary_backward = std::max({
      s.hidden() + projections + attention_backward_scratch(s),      // gradient of the output, then of q, k, v
      2 * projections,                                               // joined
      projections + s.weight_gradient(3 * s.width, s.width),
      projections + s.hidden(),
      s.weight_gradient(s.width, s.width),
  });
  return bytes;
}

SegmentBytes gpt2_mlp(const Shape& s) {
  SegmentBytes bytes;
  const Bytes inner = s.rows * s.ffn * s.e;
  bytes.saved = s.hidden() + s.row_floats() * 2 + 2 * inner;
  bytes.temporary_backward = std::max(inner + s.hidden(), inner + s.weight_gradient(s.ffn, s.width));
  return bytes;
}

SegmentBytes llama_attention(const Shape& s) {
  SegmentBytes bytes;
  const Bytes keys = s.rows * s.kv_width * s.e;
  const Bytes repeated = s.kv_width == s.width ? 0 : 2 * s.hidden();  // keys and values repeated for their query heads
  bytes.saved = 3 * s.hidden() + 2 * keys + s.row_floats() * (1 + s.heads);
  bytes.temporary_forward = repeated + attention_forward_scratch(s);
  bytes.temporary_backward = s.hidden() + repeated + 3 * s.hidden() + attention_backward_scratch(s);
  return bytes;
}

SegmentBytes llama_mlp(const Shape& s) {
  SegmentBytes bytes;
  const Bytes inner = s.rows * s.ffn * s.e;
  bytes.saved = s.hidden() + s.row_floats() + 3 * inner;
  bytes.temporary_backward = 2 * inner + std::max(s.hidden(), s.weight_gradient(s.ffn, s.width));
  return bytes;
}

SegmentBytes head(const Shape& s, bool centered) {
  SegmentBytes bytes;
  const Bytes logits = s.rows * s.vocab * s.e;
  bytes.saved = s.hidden() + s.row_floats() * (centered ? 3 : 2) + logits;
  bytes.temporary_backward = std::max(s.hidden() * 2, s.weight_gradient(s.vocab, s.width));
  return bytes;
}

}  // namespace

SegmentBytes segment_bytes(const ModelConfig& config, const BatchShape& batch, UnitKind unit, int segment) {
  Shape s{};
  s.e = size_of(batch.param_dtype);
  s.batch = static_cast<Bytes>(batch.micro_batch);
  s.sequence = static_cast<Bytes>(batch.sequence);
  s.rows = s.batch * s.sequence;
  s.width = static_cast<Bytes>(config.width);
  s.heads = static_cast<Bytes>(config.heads);
  s.head_dim = s.width / s.heads;
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
