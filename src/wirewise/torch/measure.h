// A short measurement of what ops cost on this machine, all ranks at once as in training: the simulator prices schedules with it.
#pragma once

#include "wirewise/sim/simulate.h"
#include "wirewise/torch/executor.h"

namespace wirewise {

/// Runs each distinct segment forward and backward, collectives and the optimizer at two sizes each, a few times, on scratch tensors. The
/// larger size is smaller where a slow network would take long. Collective; the same figures (the slowest rank's) on every rank.
[[nodiscard]] MeasuredCosts measure_costs(const Model& model, const Strategy& strategy, const SegmentTable& segments, const Lanes& lanes,
                                          const OptimizerOptions& optimizer);

/// The link between hosts, each way, as the gather lane reaches it when all hosts send at once; rank r is on host_of[r]. Collective, over
/// two hosts or more; the same figures on every rank.
[[nodiscard]] Link measure_network(const Lanes& lanes, const std::vector<int>& host_of);

/// Matrix-multiplication rate of one rank in the compute dtype while all ranks compute: the peak that MFU is taken of. Collective.
[[nodiscard]] double measure_flops(DType dtype, const Lanes& lanes);

}  // namespace wirewise
