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

}  // namespace wirewise
