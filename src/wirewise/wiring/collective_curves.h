// How long GPUs took for collectives by size and number: data/collective_curves.csv as curves.
#pragma once

#include <optional>
#include <string>

#include "wirewise/base/units.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise {

/// Time above what bandwidth alone takes.
struct CurvePoint {
  Seconds above = 0;
  std::string source;
};
/// Of an all-reduce of `ranks` GPUs of one host over links of this kind and generation: interpolated between sizes (by their logarithm)
/// and numbers of GPUs that were measured. Sizes outside are as the nearest one. Nothing where no such GPUs were measured, or not so few
/// or many.
[[nodiscard]] std::optional<CurvePoint> all_reduce_curve(LinkKind kind, int generation, int ranks, Bytes bytes);

}  // namespace wirewise
