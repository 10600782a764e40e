#include "wirewise/torch/c10d_devices.h"

#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/comm/cuda_library.h"

namespace wirewise {

std::shared_ptr<Accelerator> open_cuda(c10::Device device) {
  const std::string what = "The wirewise backend can't use " + device.str();
  if (!device.is_cuda()) throw bad_input(what + ": it knows the memory of the CPU and of CUDA devices.", "Move tensors to one of them first.");
  try {
    CudaLibrary& library = load_cuda_library();
    const CudaStatus status = library.status();
    if (const auto refusal = cuda_refusal(status, 1, CudaComm::kStaged)) throw *refusal;
    return library.device(device.index());
  } catch (const Error& error) {
    throw Error(error.kind(), what + ": " + error.sentence(),
                "Build the package with a torch that has CUDA, or let them go by NCCL (backend=\"cpu:wirewise,cuda:nccl\").");
  }
}

Communicator& BackendDevices::communicator(c10::Device device) {
  const std::string name = device.is_cpu() ? "" : device.str();
  std::vector<std::shared_ptr<StagedCommunicator>> others;
  Communicator* wanted = host_.get();
  {
    const std::lock_guard lock(mutex_);
    if (!device.is_cpu()) {
      auto& staged = staged_[name];
      if (!staged) staged = make_staged_communicator(host_, open_(device));
      wanted = staged.get();
    }
    for (const auto& [of, staged] : staged_) {
      if (of != name && staged) others.push_back(staged);
    }
  }
  for (const auto& other : others) other->wait_issued();
  return *wanted;
}

}  // namespace wirewise
