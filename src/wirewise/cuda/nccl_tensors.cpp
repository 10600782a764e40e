#include "wirewise/cuda/nccl_tensors.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <string>

#include "wirewise/base/error.h"
#include "wirewise/torch/dtype_torch.h"

namespace wirewise::cuda {

at::Tensor tensor_of(ConstBuffer buffer, std::size_t count, c10::DeviceIndex index) {
  const at::Device device(c10::DeviceType::CUDA, index);
  // Inputs are only read; libtorch has no tensor that says so.
  return at::for_blob(const_cast<void*>(buffer.data), {static_cast<std::int64_t>(count)})
      .options(at::TensorOptions().dtype(to_scalar_type(buffer.dtype)).device(device))
      .target_device(device)
      .make_tensor();
}

c10d::ReduceOp to_reduce_op(Reduction op, const char* operation) {
  switch (op) {
    case Reduction::kSum: return c10d::ReduceOp::SUM;
    case Reduction::kAverage: return c10d::ReduceOp::AVG;
    case Reduction::kProduct: return c10d::ReduceOp::PRODUCT;
    case Reduction::kMin: return c10d::ReduceOp::MIN;
    case Reduction::kMax: return c10d::ReduceOp::MAX;
    default: break;
  }
  throw bad_input(std::string(operation) + ": NCCL has no bitwise reductions.", "Use the staged communicator for them (--comm staged).");
}

ReductionTensors::ReductionTensors(std::span<const ReducePart> parts, bool accumulate, bool in_place, std::size_t inputs, c10::DeviceIndex device) {
  for (const ReducePart& part : parts) {
    if (part.count == 0) continue;
    at::Tensor in = tensor_of(part.in, part.count * inputs, device);
    at::Tensor out = tensor_of(part.out, part.count, device);
    if (in.scalar_type() != out.scalar_type()) in = in.to(out.scalar_type());
    if (accumulate) {
      at::Tensor sum = at::empty({static_cast<std::int64_t>(part.count)}, out.options());
      added.emplace_back(out, sum);
      out = sum;
    }
    if (in_place) {
      if (in.data_ptr() != out.data_ptr()) out.copy_(in);
      in = out;
    }
    ins.push_back(std::move(in));
    outs.push_back(std::move(out));
  }
}

std::function<void()> ReductionTensors::after() const {
  if (added.empty()) return {};
  return [added = added] {
    for (auto [out, sum] : added) out.add_(sum);
  };
}

}  // namespace wirewise::cuda
