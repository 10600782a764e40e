// Buffers of calls as the tensors that NCCL's process group takes.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "wirewise/comm/communicator.h"

namespace wirewise::cuda {

/// A view of the buffer.
[[nodiscard]] at::Tensor tensor_of(ConstBuffer buffer, std::size_t count, c10::DeviceIndex device);

/// Throws bad input, naming the operation, for what NCCL hasn't.
[[nodiscard]] c10d::ReduceOp to_reduce_op(Reduction op, const char* operation);

/// The parts of an all_reduce or a reduce_scatter; empty ones are left out.
///
/// Where a part is 16 bit and its result float32, the sum is made in float32: on the wire too, twice the bytes. `out += sum` goes
/// through a temporary and an addition on the stream that waits. Copies and casts are on the current stream.
struct ReductionTensors {
  std::vector<at::Tensor> ins;   // of an all_reduce: the outs
  std::vector<at::Tensor> outs;
  std::vector<std::pair<at::Tensor, at::Tensor>> added;  // (result, its sum)

  /// `inputs`: elements of an input for each of its result, 1 in an all_reduce.
  ReductionTensors(std::span<const ReducePart> parts, bool accumulate, bool in_place, std::size_t inputs, c10::DeviceIndex device);
  /// What is left to do once the sums are there; empty where nothing is.
  [[nodiscard]] std::function<void()> after() const;
};

}  // namespace wirewise::cuda
