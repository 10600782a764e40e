// A short measurement of what ops cost on this machine, all ranks at once as in training: the simulator prices schedules with it.
#pragma once

#include "wirewise/sim/simulate.h"
#include "wirewise/torch/executor.h"

namespace wirewise {

/// Runs each distinct segment forward and backward, collectives and the optimizer at two sizes each, a few times, on scratch tensors.
/// Collective; the same figures (the slowest rank's) on every rank.
[[nodiscard]] MeasuredCosts measure_costs(const Model& model, const Strategy& strategy, const SegmentTable& segments, const Lanes& lanes,
                                          const OptimizerOptions& optimizer);

/// Matrix-multiplication rate of one rank in the compute dtype while all ranks compute: the peak that MFU is taken of. Collective.
[[nodiscard]] double measure_flops(DType dtype, const Lanes& lanes);

}  // namespace wirewise
