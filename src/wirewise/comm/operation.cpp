#include "wirewise/comm/operation.h"

#include "wirewise/comm/group.h"

namespace wirewise {

Work::State::State(std::shared_ptr<comm::Group> owner, const comm::Fingerprint& print, CallOptions options)
    : State(print, std::move(options), owner->options().timeout) {
  group = std::move(owner);
}

Work::State::State(const comm::Fingerprint& print, CallOptions options, std::chrono::milliseconds default_timeout)
    : fingerprint(print),
      label(std::move(options.label)),
      background(options.progress == CallOptions::Progress::kBackground),
      timeout(options.timeout.count() > 0 ? options.timeout : default_timeout) {
  fingerprint.set_label(label);
  deadline = std::chrono::steady_clock::now() + timeout;
}

void Work::State::fail(std::exception_ptr error) {
  error_ = std::move(error);
  reach(comm::Level::kComplete);
}

void Work::State::rethrow() const {
  if (error_) std::rethrow_exception(error_);
}

void Work::State::then(std::function<void(std::exception_ptr)> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!reached(comm::Level::kComplete)) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(error_);
}

void Work::State::run_callbacks() noexcept {
  std::vector<std::function<void(std::exception_ptr)>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    callbacks.swap(callbacks_);
  }
  for (const auto& callback : callbacks) callback(error_);
}

void Work::State::wait(comm::Level level) { group->wait(*this, level); }

bool Work::State::test() { return group->test(*this); }

void Work::wait_output() {
  if (state_) state_->wait(comm::Level::kOutput);
}

void Work::wait() {
  if (state_) state_->wait(comm::Level::kComplete);
}

bool Work::test() { return !state_ || state_->test(); }

void Work::then(std::function<void(std::exception_ptr)> callback) {
  if (state_) {
    state_->then(std::move(callback));
  } else {
    callback(nullptr);
  }
}

std::uint64_t Work::sequence() const noexcept { return state_ ? state_->fingerprint.sequence : 0; }

}  // namespace wirewise
