#include "wirewise/cuda/nccl_group.h"

#include <c10/cuda/CUDAGuard.h>

#include <cstdlib>
#include <exception>
#include <string>

#include "wirewise/cuda/c10d_store.h"
#include "wirewise/cuda/nccl_work.h"

namespace wirewise::cuda {
namespace {

/// libtorch's own handling of errors ends the process; ours ends the operation and lets the program say what happened. What the user
/// has set stays.
void prefer_errors_over_termination() {
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", std::to_string(c10d::CleanUpOnly).c_str(), /*overwrite=*/0);
  ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 0);
  ::setenv("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0", 0);
}

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroupNCCL> make_nccl_group(const std::shared_ptr<Store>& store, int device, int rank, int size,
                                                           std::chrono::milliseconds timeout) {
  prefer_errors_over_termination();
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
  auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  options->timeout = timeout;
  try {
    auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::make_intrusive<StoreForNccl>(store, timeout), rank, size, options);
    group->setSequenceNumberForGroup();
    // Now and not at the first call: ranks that can't reach each other, or share a device, are told at the start.
    group->eagerConnectSingleDevice(at::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device)));
    return group;
  } catch (const c10::Error&) {
    throw nccl_error("NCCL can't join the " + std::to_string(size) + " ranks", std::current_exception());
  }
}

}  // namespace wirewise::cuda
