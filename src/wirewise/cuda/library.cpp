// libwirewise_cuda.so: its one entry point, and what CUDA says of this machine.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>
#include <map>
#include <mutex>

#include "wirewise/comm/cuda_library.h"
#include "wirewise/cuda/cuda_device.h"

namespace wirewise {
namespace {

class Library final : public CudaLibrary {
 public:
  [[nodiscard]] CudaStatus status() override {
    CudaStatus status;
    (void)cudaDriverGetVersion(&status.driver_version);
    (void)cudaRuntimeGetVersion(&status.runtime_version);
    (void)ncclGetVersion(&status.nccl_version);
    const cudaError_t found = cudaGetDeviceCount(&status.devices);
    if (found != cudaSuccess) {
      status.devices = 0;
      if (found != cudaErrorNoDevice) status.failure = cudaGetErrorString(found);
      (void)cudaGetLastError();  // it is told; later calls must not trip over it
    }
    return status;
  }

  [[nodiscard]] std::shared_ptr<Accelerator> device(int index) override {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Accelerator>& device = devices_[index];
    if (!device) device = cuda::open_device(index);
    return device;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::shared_ptr<Accelerator>> devices_;
};

}  // namespace
}  // namespace wirewise

/// See cuda_library.h. Both sides must come from one build: C++ objects cross the border.
extern "C" __attribute__((visibility("default"))) wirewise::CudaLibrary* wirewise_cuda_library(std::uint32_t abi, const char* version,
                                                                                              const char** theirs) {
  static const std::string own = std::string(WIREWISE_VERSION) + " with interface " + std::to_string(wirewise::kCudaLibraryAbi);
  *theirs = own.c_str();
  if (abi != wirewise::kCudaLibraryAbi || std::strcmp(version, WIREWISE_VERSION) != 0) return nullptr;
  static auto* const library = new wirewise::Library;  // CUDA may be in use until the process ends
  return library;
}
