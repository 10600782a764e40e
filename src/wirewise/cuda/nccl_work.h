// Work of the NCCL communicator: an operation in flight, what became of it, and the stream that waits for it.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/comm/operation.h"

namespace wirewise::cuda {

/// NCCL's own words for what went wrong, as our error. A watchdog that met the deadline says so in its message.
[[nodiscard]] Error nccl_error(const std::string& what, const std::exception_ptr& error);

/// One or more operations of NCCL, and what follows them on the current stream.
class NcclWork final : public Work::State {
 public:
  using Handle = c10::intrusive_ptr<c10d::Work>;

  NcclWork(const comm::Fingerprint& print, CallOptions options, std::chrono::milliseconds default_timeout, std::string what)
      : Work::State(print, std::move(options), default_timeout), what_(std::move(what)) {}

  void begin(Handle handle, std::function<void()> after) {
    handle_ = std::move(handle);
    after_ = std::move(after);
  }
  bool step() override { return false; }
  [[nodiscard]] bool retired() const noexcept override { return reached(comm::Level::kComplete); }
  [[nodiscard]] std::vector<comm::Missing> missing() const override { return {}; }

  /// The current stream waits; the thread does not. Errors that are known by now are thrown.
  void wait(comm::Level) override;

  [[nodiscard]] bool test() override;
  /// Learns what became of it, without waiting: completion, failure, or the deadline.
  void settle() noexcept;

 private:
  /// Orders the current stream after the operation, and what belongs to it (a widened or added result) after that.
  void order();

  std::mutex mutex_;
  std::string what_;
  Handle handle_;
  std::function<void()> after_;
  bool ordered_ = false;
};

}  // namespace wirewise::cuda
