#include "wirewise/cuda/nccl_work.h"

#include <memory>

namespace wirewise::cuda {

Error nccl_error(const std::string& what, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return known;
  } catch (const std::exception& other) {
    std::string text = other.what();
    const bool late = text.find("timeout") != std::string::npos || text.find("Timeout") != std::string::npos;
    text = text.substr(0, text.find('\n'));
    return Error(late ? ErrorKind::kTimeout : ErrorKind::kFailed, what + ": NCCL says: " + text,
                 late ? "Some rank did not come: look at the other ranks' output, or set NCCL_DEBUG=WARN." : "Set NCCL_DEBUG=WARN to see more.");
  }
}

void NcclWork::wait(comm::Level) {
  settle();
  rethrow();
  order();
}

bool NcclWork::test() {
  settle();
  rethrow();
  if (!reached(comm::Level::kComplete)) return false;
  order();
  return true;
}

void NcclWork::settle() noexcept {
  std::unique_lock lock(mutex_);
  if (reached(comm::Level::kComplete)) return;
  std::exception_ptr error;
  bool done = false;
  try {
    done = !handle_ || handle_->isCompleted();  // by events; true for a failed one too
    if (done && handle_) error = handle_->exception();
  } catch (...) {
    error = std::current_exception();
    done = true;
  }
  if (!error && !done && std::chrono::steady_clock::now() >= deadline) {
    error = std::make_exception_ptr(Error(ErrorKind::kTimeout,
                                          what_ + " (call " + std::to_string(fingerprint.sequence) + (label.empty() ? "" : ", " + label) +
                                              ") did not end within " + std::to_string(timeout.count()) + " ms.",
                                          "Some rank did not come: look at the other ranks' output, or set NCCL_DEBUG=WARN."));
  }
  if (error) {
    fail(std::make_shared<const Error>(nccl_error(what_, error)));
  } else if (done) {
    reach(comm::Level::kComplete);
  } else {
    return;
  }
  lock.unlock();
  run_callbacks();
}

void NcclWork::order() {
  const std::lock_guard lock(mutex_);
  if (ordered_) return;
  ordered_ = true;
  const std::exception_ptr error = [&]() -> std::exception_ptr {
    try {
      if (handle_) handle_->wait();
      if (after_) after_();
      after_ = nullptr;
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }();
  if (!error) return;
  fail(std::make_shared<const Error>(nccl_error(what_, error)));
  rethrow();
}

}  // namespace wirewise::cuda
