// The communicators of a backend: one for host memory, and over it one for the memory of each device whose tensors come, by staging
// (comm/staged_communicator.h). Ranks match calls by their order, so there is one order for all of them: what goes to one communicator waits
// until the calls before it, that a device holds back, have been issued.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "wirewise/comm/accelerator.h"
#include "wirewise/comm/communicator.h"
#include "wirewise/comm/staged_communicator.h"

namespace wirewise {

/// Opens the device of a tensor. Throws an error that says why it can't be used.
using OpenDevice = std::function<std::shared_ptr<Accelerator>(c10::Device)>;
/// CUDA devices, by libwirewise_cuda.so; others are bad input.
[[nodiscard]] std::shared_ptr<Accelerator> open_cuda(c10::Device device);

class BackendDevices {
 public:
  BackendDevices(std::shared_ptr<Communicator> host, OpenDevice open) : host_(std::move(host)), open_(std::move(open)) {}

  /// The communicator for memory of `device`, once all earlier calls have been issued on the host's. Waits for devices, not for peers. A
  /// device is opened by its first call.
  [[nodiscard]] Communicator& communicator(c10::Device device);
  [[nodiscard]] const std::shared_ptr<Communicator>& host() const noexcept { return host_; }

 private:
  std::shared_ptr<Communicator> host_;
  OpenDevice open_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<StagedCommunicator>> staged_;  // by the device's name
};

}  // namespace wirewise
