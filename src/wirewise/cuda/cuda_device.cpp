#include "wirewise/cuda/cuda_device.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <array>

#include "wirewise/base/error.h"
#include "wirewise/base/units.h"
#include "wirewise/cuda/nccl_communicator.h"

namespace wirewise::cuda {
namespace {

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  (void)cudaGetLastError();
  throw Error(ErrorKind::kFailed, std::string("CUDA failed to ") + what + ": " + cudaGetErrorString(result) + ".");
}

class Event final : public DeviceEvent {
 public:
  explicit Event(const c10::cuda::CUDAStream& stream) { event_.record(stream); }
  [[nodiscard]] bool passed() override {
    try {
      return event_.query();
    } catch (const c10::Error& error) {
      throw Error(ErrorKind::kFailed, std::string("the device failed: ") + error.what_without_backtrace());
    }
  }

 private:
  at::cuda::CUDAEvent event_;
};

class Stream final : public DeviceStream {
 public:
  explicit Stream(c10::DeviceIndex device) : stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device)) {}

  void follow_current() override {
    at::cuda::CUDAEvent event;
    event.record(c10::cuda::getCurrentCUDAStream(stream_.device_index()));
    event.block(stream_);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes, cudaMemcpyDeviceToHost); }
  void copy_to_device(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes, cudaMemcpyHostToDevice); }
  [[nodiscard]] std::unique_ptr<DeviceEvent> record() override { return std::make_unique<Event>(stream_); }

 private:
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    const c10::cuda::CUDAGuard guard(stream_.device_index());
    check(cudaMemcpyAsync(to, from, bytes, kind, stream_.stream()), "copy between host and device");
  }
  c10::cuda::CUDAStream stream_;
};

class CudaDevice final : public Accelerator {
 public:
  explicit CudaDevice(c10::DeviceIndex index) : index_(index) {
    const c10::cuda::CUDAGuard guard(index_);
    check(cudaGetDeviceProperties(&properties_, index_), "describe the device");
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  }

  [[nodiscard]] int index() const noexcept override { return index_; }
  [[nodiscard]] std::string describe() const override {
    return std::string(properties_.name) + ", " + format_bytes(properties_.totalGlobalMem);
  }

  [[nodiscard]] std::string identity() const override {
    std::array<char, 32> address{};
    check(cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), index_), "say the device's PCI address");
    return address.data();
  }

  [[nodiscard]] void* allocate(std::size_t bytes) override {
    const c10::cuda::CUDAGuard guard(index_);
    try {
      return c10::cuda::CUDACachingAllocator::raw_alloc(bytes);
    } catch (const c10::OutOfMemoryError&) {
      throw Error(ErrorKind::kFailed, "device " + std::to_string(index_) + " has no room for " + format_bytes(bytes) + ".",
                  "Lower train.micro_batch, raise strategy.zero or the number of ranks, or set strategy.recompute = \"full\".");
    }
  }
  void free(void* pointer) noexcept override {
    if (pointer == nullptr) return;
    try {
      c10::cuda::CUDACachingAllocator::raw_delete(pointer);
    } catch (const std::exception&) {
      // The device broke, and its memory with it.
    }
  }

  void pin(void* pointer, std::size_t bytes) override {
    const c10::cuda::CUDAGuard guard(index_);
    check(cudaHostRegister(pointer, bytes, cudaHostRegisterPortable), "pin host memory (ulimit -l may be too small)");
  }
  void unpin(void* pointer) noexcept override {
    if (cudaHostUnregister(pointer) != cudaSuccess) (void)cudaGetLastError();
  }

  [[nodiscard]] std::unique_ptr<DeviceStream> make_stream() override { return std::make_unique<Stream>(index_); }
  void make_current() override { c10::cuda::set_device(index_); }
  void synchronize() override {
    const c10::cuda::CUDAGuard guard(index_);
    check(cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream(index_).stream()), "finish what was queued");
  }

  [[nodiscard]] std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Store> store, int rank, int size,
                                                                CommunicatorOptions options) override {
    return make_nccl_communicator(std::move(store), index_, rank, size, std::move(options));
  }

 private:
  c10::DeviceIndex index_;
  cudaDeviceProp properties_{};
};

}  // namespace

std::shared_ptr<Accelerator> open_device(int index) {
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "count its devices");
  if (index < 0 || index >= devices) {
    throw bad_input("there is no CUDA device " + std::to_string(index) + " among " + std::to_string(devices) + ".");
  }
  return std::make_shared<CudaDevice>(static_cast<c10::DeviceIndex>(index));
}

}  // namespace wirewise::cuda
