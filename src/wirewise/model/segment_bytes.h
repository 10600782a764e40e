// Bytes that torch/'s segments allocate, to the byte: what each keeps for backward and what lives only inside it. These formulas mirror
// the tensors of torch/layers; tests hold them against a counting allocator.
#pragma once

#include "wirewise/model/model.h"

namespace wirewise {

struct SegmentBytes {
  Bytes saved = 0;
  Bytes temporary_forward = 0;
  Bytes temporary_backward = 0;
};

/// `segment`: index within the unit (blocks: 0 attention, 1 mlp).
[[nodiscard]] SegmentBytes segment_bytes(const ModelConfig& config, const BatchShape& batch, UnitKind unit, int segment);

/// Queries of one tile of CPU attention.
inline constexpr int kAttentionTile = 64;
/// Heads that CPU attention works on at once: as many as keep a tile's operands near a mebibyte.
[[nodiscard]] constexpr std::int64_t attention_head_group(std::int64_t heads, std::int64_t sequence, std::int64_t head_dim) {
  const std::int64_t fit = (std::int64_t{1} << 20) / (sequence * head_dim * 4);
  return fit < 1 ? 1 : fit > heads ? heads : fit;
}

}  // namespace wirewise
