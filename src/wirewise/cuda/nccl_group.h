// The NCCL process group of libtorch that a communicator calls, made so that what fails is an error and not the end of the process.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <chrono>
#include <memory>

#include "wirewise/comm/store.h"

namespace wirewise::cuda {

/// Connects at once. Throws what NCCL says where ranks can't reach each other or share a device.
[[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroupNCCL> make_nccl_group(const std::shared_ptr<Store>& store, int device, int rank, int size,
                                                                         std::chrono::milliseconds timeout);

}  // namespace wirewise::cuda
