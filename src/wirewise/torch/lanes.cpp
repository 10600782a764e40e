#include "wirewise/torch/lanes.h"

#include <ATen/ops/from_blob.h>

#include "wirewise/torch/dtype_torch.h"
#include "wirewise/torch/memory.h"

namespace wirewise {

Lanes make_lanes(const std::shared_ptr<Store>& store, int rank, int size, std::chrono::milliseconds timeout) {
  const auto join = [&](const char* name) {
    return std::shared_ptr<Communicator>(make_communicator(store, rank, size, CommunicatorOptions{timeout, name}));
  };
  Lanes lanes;
  lanes.control = join("control");
  lanes.gather = join("gather");
  lanes.reduce = join("reduce");
  return lanes;
}

Lanes make_device_lanes(const std::shared_ptr<Store>& store, int rank, int size, std::chrono::milliseconds timeout,
                        const std::shared_ptr<Accelerator>& device, CudaComm comm) {
  Lanes lanes;
  if (size == 1) {
    lanes.control = make_thread_lanes(1, timeout).front().control;
  } else {
    lanes.control = make_communicator(store, rank, size, CommunicatorOptions{timeout, "control"});
  }
  lanes.gather = join_device(device, comm, store, rank, size, CommunicatorOptions{timeout, "gather"});
  lanes.reduce = join_device(device, comm, store, rank, size, CommunicatorOptions{timeout, "reduce"});
  lanes.device = c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device->index()));
  lanes.accelerator = device;
  return lanes;
}

std::vector<Lanes> make_thread_lanes(int size, std::chrono::milliseconds timeout) {
  std::vector<Lanes> lanes(static_cast<std::size_t>(size));
  const auto join = [&](const char* name, auto member) {
    auto communicators = make_thread_communicators(size, CommunicatorOptions{timeout, name});
    for (std::size_t rank = 0; rank < lanes.size(); ++rank) lanes[rank].*member = std::move(communicators[rank]);
  };
  join("control", &Lanes::control);
  join("gather", &Lanes::gather);
  join("reduce", &Lanes::reduce);
  return lanes;
}

namespace {

/// Shared memory as a tensor, which gives it back; `counted` bytes of it are this rank's. What comes from a device's allocator is counted there.
at::Tensor tensor_over(void* data, const std::shared_ptr<Communicator>& communicator, std::uint64_t elements, DType dtype, Category category,
                       Bytes counted, c10::Device device) {
  if (!device.is_cpu()) counted = 0;
  memory::add_external(category, counted);
  return at::from_blob(
      data, {static_cast<std::int64_t>(elements)},
      [communicator, counted, category](void* pointer) {
        memory::remove_external(category, counted);
        communicator->free_shared(pointer);
      },
      at::TensorOptions().dtype(to_scalar_type(dtype)).device(device), device);
}

}  // namespace

at::Tensor empty_shared(const std::shared_ptr<Communicator>& communicator, std::uint64_t elements, DType dtype, Category category,
                        c10::Device device) {
  const Bytes bytes = elements * size_of(dtype);
  return tensor_over(communicator->allocate_shared(bytes), communicator, elements, dtype, category, bytes, device);
}

at::Tensor empty_group_shared(const std::shared_ptr<Communicator>& communicator, std::uint64_t elements, DType dtype, Category category, int owner) {
  const Bytes bytes = elements * size_of(dtype);
  void* data = communicator->allocate_group_shared(bytes, owner);
  return tensor_over(data, communicator, elements, dtype, category, bytes / static_cast<Bytes>(communicator->size()), c10::kCPU);
}

}  // namespace wirewise
