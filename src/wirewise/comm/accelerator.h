// An accelerator as programs see it that don't link its libraries: memory, side streams, and communicators over its own wires. CUDA's
// implementation lies in a shared library of its own (src/wirewise/cuda/), loaded when a device is asked for (cuda_library.h); tests
// bring one that lives in host memory.
//
// "The current stream" is the calling thread's, as libtorch knows it: kernels that the thread launches run on it in order.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "wirewise/comm/communicator.h"
#include "wirewise/comm/store.h"

namespace wirewise {

/// A point in a stream.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  /// Whether the stream has come past it. Throws Failed when the device broke.
  [[nodiscard]] virtual bool passed() = 0;
};

/// A queue of copies beside the current stream. Calls come from one thread at a time.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
  /// What is queued from here on starts after all that the current stream holds now.
  virtual void follow_current() = 0;
  /// Queues a copy; host memory must have been pinned for the call to return before it is done.
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_to_device(void* to, const void* from, std::size_t bytes) = 0;
  [[nodiscard]] virtual std::unique_ptr<DeviceEvent> record() = 0;
};

class Accelerator {
 public:
  virtual ~Accelerator() = default;
  [[nodiscard]] virtual int index() const noexcept = 0;
  /// "NVIDIA H200, 139 GiB".
  [[nodiscard]] virtual std::string describe() const = 0;
  /// Equal for the same device in all processes of a host, whichever number they give it: its PCI address. Empty: not known.
  [[nodiscard]] virtual std::string identity() const { return {}; }

  /// Memory of the device, from the allocator that tensors use too. Throws Failed when there is not enough.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  virtual void free(void* pointer) noexcept = 0;

  /// Registers host memory for copies that run by themselves; until unpin().
  virtual void pin(void* pointer, std::size_t bytes) = 0;
  virtual void unpin(void* pointer) noexcept = 0;

  [[nodiscard]] virtual std::unique_ptr<DeviceStream> make_stream() = 0;
  /// Makes this the calling thread's device.
  virtual void make_current() = 0;
  /// Waits for all that the current stream holds.
  virtual void synchronize() = 0;

  /// The device's own collectives (NCCL) between ranks that hold a device each. Buffers are device memory. wait() and wait_output()
  /// make the current stream wait, not the thread; an operation that outlived its deadline, or whose peers died, fails the next call,
  /// wait, test() or progress(). Collective over the store's ranks; one
  /// rank needs no store.
  [[nodiscard]] virtual std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Store> store, int rank, int size,
                                                                        CommunicatorOptions options) = 0;
};

}  // namespace wirewise
