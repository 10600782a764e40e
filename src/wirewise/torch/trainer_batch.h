// A batch as a user passes it to the Trainer: what is refused of it, and the micro-batch that the executor runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "wirewise/base/dtype.h"
#include "wirewise/torch/executor.h"

namespace wirewise {

/// Throws bad input unless there is a sample.
void require_inputs(const at::Tensor& inputs);
/// Throws bad input unless inputs and targets agree on at least `least` samples.
void require_samples(const at::Tensor& inputs, const at::Tensor& targets, std::int64_t least);

/// Floating inputs are cast to `dtype`; undefined targets stay so.
[[nodiscard]] MicroBatch make_micro_batch(const at::Tensor& inputs, const at::Tensor& targets, DType dtype);

}  // namespace wirewise
