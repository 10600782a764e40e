// The optimizer step on one group's shard: AdamW (libtorch's fused kernel) or SGD on float32 masters, then the compute-dtype weights.
#pragma once

#include "wirewise/torch/state.h"

namespace wirewise {

struct OptimizerOptions {
  bool adamw = true;           // false: SGD
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;   // decoupled (AdamW) or L2 (SGD), on tensors that decay
};

/// gradient: elements of the master's range, in the reduce dtype; multiplied by `factor` (clipping over loss scale) first.
/// step counts from 1. Updates masters, moments and the rank's part of param.
void optimizer_step(GroupState& state, const ParamGroup& group, const at::Tensor& gradient, double factor, double lr, std::int64_t step,
                    const OptimizerOptions& options);

}  // namespace wirewise
