// Completion has two steps: the handle first, on the thread that finished the operations; then the future, whose callbacks are
// the user's code and run on threads of their own.
#include "wirewise/torch/c10d_work.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <algorithm>
#include <utility>

#include "wirewise/base/error.h"

namespace wirewise {
namespace {

void drive(std::vector<wirewise::Work>& operations) noexcept {
  for (wirewise::Work& operation : operations) {
    try {
      operation.wait();
    } catch (...) {
      // The error reaches the handle by the operation's callback.
    }
  }
}

c10d::ErrorType error_type(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    if (known.kind() == ErrorKind::kTimeout) return c10d::ErrorType::TIMEOUT;
    if (known.kind() == ErrorKind::kPeerLost) return c10d::ErrorType::REMOTE_ERROR;
    return c10d::ErrorType::COMM_ERROR;
  } catch (...) {
    return c10d::ErrorType::COMM_ERROR;
  }
}

// What a future must know: the devices of its value.
std::vector<c10::Device> devices_of(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> devices;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.device().is_cpu() && std::find(devices.begin(), devices.end(), tensor.device()) == devices.end()) devices.push_back(tensor.device());
  }
  return devices;
}

// A stream of the device for this thread, which else has the one that programs compute in by default: what a program has queued there is
// nothing that a completion should wait for.
class SideStream {
 public:
  explicit SideStream(c10::Device device) : device_(device) {
    if (!device.is_cpu()) guard_.reset_stream(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device));
  }
  void synchronize() const {
    if (device_.is_cpu()) return;
    const c10::impl::VirtualGuardImpl impl(device_.type());
    impl.synchronizeStream(impl.getStream(device_));
  }

 private:
  c10::Device device_;
  c10::OptionalStreamGuard guard_;
};

}  // namespace

WirewiseWork::WirewiseWork(int rank, Request request)
    : c10d::Work(rank, request.type, request.title, request.inputs),
      request_(std::move(request)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices_of(request_.outputs))) {
  request_.inputs.clear();
}

c10::intrusive_ptr<WirewiseWork> WirewiseWork::start(int rank, Request request, const std::vector<Issue>& issues) {
  auto work = c10::make_intrusive<WirewiseWork>(rank, std::move(request));
  std::exception_ptr refused;
  std::vector<wirewise::Work> issued;
  for (const Issue& issue : issues) {
    try {
      issued.push_back(issue());
    } catch (...) {
      refused = std::current_exception();
      break;
    }
  }
  work->operations_ = issued;
  work->pending_ += issued.size();
  for (wirewise::Work& operation : issued) {
    operation.then([work](std::exception_ptr error) { work->one_done(error); });
  }
  work->one_done(refused);
  if (refused) std::rethrow_exception(refused);
  return work;
}

c10::intrusive_ptr<WirewiseWork> WirewiseWork::join(int rank, c10d::OpType type, const char* title,
                                                    const std::vector<c10::intrusive_ptr<WirewiseWork>>& works) {
  Request request;
  request.type = type;
  request.title = title;
  request.callbacks = works.empty() ? std::make_shared<CallbackThreads>() : works.front()->request_.callbacks;
  for (const auto& work : works) {
    request.outputs.insert(request.outputs.end(), work->request_.outputs.begin(), work->request_.outputs.end());
    request.sequence = work->request_.sequence;
    if (!work->request_.device.is_cpu()) request.device = work->request_.device;
  }
  auto joined = c10::make_intrusive<WirewiseWork>(rank, std::move(request));
  joined->pending_ += works.size();
  for (const auto& work : works) {
    joined->operations_.insert(joined->operations_.end(), work->operations_.begin(), work->operations_.end());
    work->when_done([joined](const std::exception_ptr& error) { joined->one_done(error); });
  }
  joined->one_done(nullptr);
  return joined;
}

void WirewiseWork::when_done(std::function<void(const std::exception_ptr&)> listener) {
  {
    const std::lock_guard lock(error_mutex_);
    if (!done_) {
      listeners_.push_back(std::move(listener));
      return;
    }
  }
  listener(first_error_);
}

void WirewiseWork::one_done(const std::exception_ptr& error) {
  if (error) {
    const std::lock_guard lock(error_mutex_);
    if (!first_error_) first_error_ = error;
  }
  if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) complete();
}

void WirewiseWork::complete() {
  std::exception_ptr error = first_error_;
  if (!error) {
    try {
      if (request_.staging.has_copies()) {
        const SideStream stream(request_.device);
        request_.staging.write_back();
        stream.synchronize();  // whoever waited finds the results in place, in whatever stream
      }
    } catch (...) {
      error = std::current_exception();
    }
  }
  request_.staging.clear();
  if (error && request_.health) {
    auto expected = c10d::ErrorType::SUCCESS;
    request_.health->compare_exchange_strong(expected, error_type(error));
  }
  finish(error);
  std::vector<std::function<void(const std::exception_ptr&)>> listeners;
  {
    const std::lock_guard lock(error_mutex_);
    first_error_ = error;
    done_ = true;
    listeners.swap(listeners_);
  }
  for (const auto& listener : listeners) listener(error);
  bool may_have_callbacks = false;
  {
    const std::lock_guard lock(mutex_);
    future_settled_ = true;
    may_have_callbacks = future_given_;
  }
  if (!may_have_callbacks) return complete_future(error);
  request_.callbacks->run([self = c10::intrusive_ptr<WirewiseWork>::reclaim_copy(this), error] { self->complete_future(error); });
}

void WirewiseWork::complete_future(const std::exception_ptr& error) {
  if (error) {
    future_->setError(error);
  } else {
    const SideStream stream(request_.device);  // callbacks' streams wait for this one
    future_->markCompleted(c10::IValue(request_.outputs));
  }
}

bool WirewiseWork::wait(std::chrono::milliseconds timeout) {
  if (timeout <= kNoTimeout) {
    drive(operations_);
  } else {
    std::unique_lock lock(mutex_);
    if (!cv_.wait_for(lock, timeout, [this] { return completed_; })) {
      throw Error(ErrorKind::kTimeout, std::string(request_.title) + " (call " + std::to_string(request_.sequence) +
                                           ") did not end within the " + std::to_string(timeout.count()) + " ms of this wait.");
    }
  }
  future_->wait();
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
  return true;
}

bool WirewiseWork::isCompleted() { return future_->completed(); }

bool WirewiseWork::isSuccess() const { return future_->completed() && !future_->hasError(); }

std::exception_ptr WirewiseWork::exception() const {
  return future_->completed() && future_->hasError() ? future_->exception_ptr() : nullptr;
}

std::vector<at::Tensor> WirewiseWork::result() { return request_.outputs; }

int WirewiseWork::sourceRank() const {
  if (request_.source != kAnySource || operations_.empty()) return request_.source;
  return operations_.front().source();
}

c10::intrusive_ptr<c10::ivalue::Future> WirewiseWork::getFuture() {
  bool about_to_complete = false;
  {
    const std::lock_guard lock(mutex_);
    about_to_complete = future_settled_ && !future_given_;
    if (!future_settled_) future_given_ = true;
  }
  // It is being completed as one without callbacks: a callback must find it complete.
  if (about_to_complete) future_->wait();
  return future_;
}

}  // namespace wirewise
