// The communicators of one rank's data-parallel group, one a lane, so that a gather never waits behind a reduction; and the device whose
// memory they carry. On a device a lane's communicator has a stream of its own, and waiting for it makes the compute stream wait.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "wirewise/comm/communicator.h"
#include "wirewise/comm/cuda_library.h"
#include "wirewise/comm/accelerator.h"
#include "wirewise/schedule/schedule.h"

namespace wirewise {

struct Lanes {
  std::shared_ptr<Communicator> gather;
  std::shared_ptr<Communicator> reduce;
  std::shared_ptr<Communicator> control;  // scalars, checkpoints' agreement, hashes: always of host memory
  c10::Device device{c10::DeviceType::CPU};   // where tensors live
  std::shared_ptr<Accelerator> accelerator;        // null on the CPU
  [[nodiscard]] int rank() const { return control->rank(); }
  [[nodiscard]] int size() const { return control->size(); }
  /// Returns once the device has done all that this thread asked of it; throws what failed among the lanes' operations.
  void synchronize() const {
    if (accelerator == nullptr) return;
    accelerator->synchronize();
    gather->progress();
    reduce->progress();
  }
};

/// Joins the group's lanes through `store`. Collective.
[[nodiscard]] Lanes make_lanes(const std::shared_ptr<Store>& store, int rank, int size, std::chrono::milliseconds timeout);

/// The same for tensors of a device; one rank needs no store.
[[nodiscard]] Lanes make_device_lanes(const std::shared_ptr<Store>& store, int rank, int size, std::chrono::milliseconds timeout,
                                      const std::shared_ptr<Accelerator>& device, CudaComm comm);

/// Lanes of `size` ranks that are threads of this process.
[[nodiscard]] std::vector<Lanes> make_thread_lanes(int size, std::chrono::milliseconds timeout);

/// A flat tensor of `elements` in memory that peers of the communicator can map (on a device: of its allocator), counted under `category`. The
/// tensor keeps the communicator alive.
[[nodiscard]] at::Tensor empty_shared(const std::shared_ptr<Communicator>& communicator, std::uint64_t elements, DType dtype,
                                      Category category, c10::Device device = c10::DeviceType::CPU);

/// A flat tensor of `elements` that all ranks of the communicator share: it lies in rank `owner`'s memory. Each rank counts the bytes of an
/// equal part of it under `category`, so that over all ranks it counts once. Collective.
[[nodiscard]] at::Tensor empty_group_shared(const std::shared_ptr<Communicator>& communicator, std::uint64_t elements, DType dtype,
                                            Category category, int owner);

}  // namespace wirewise
