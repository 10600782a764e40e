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

void Work::State::record_in(comm::FlightRecorder& recorder, std::uint32_t communicator) noexcept {
  flight_ = &recorder;
  flight_communicator_ = communicator;
  flight_call_ = recorder.issued(communicator, fingerprint, how_);
}

void Work::State::record_how(const char* word) noexcept {
  how_ = word;
  if (flight_ != nullptr) flight_->how(flight_call_, word);
}

void Work::State::record_level(comm::Level level) noexcept {
  if (level == comm::Level::kOutput) flight_->output(flight_call_);
  if (level == comm::Level::kComplete && !recorded_failure_) flight_->completed(flight_call_);
}

void Work::State::record_failure() noexcept {
  if (flight_ == nullptr || recorded_failure_) return;
  recorded_failure_ = true;
  if (flight_->failed(flight_call_)) return;
  // So many calls came after it that it fell out of the record: it matters more than they.
  flight_call_ = flight_->issued(flight_communicator_, fingerprint, how_);
  flight_->failed(flight_call_);
}

void Work::State::fail(std::shared_ptr<const Error> error) noexcept {
  record_failure();
  error_ = std::move(error);
  reach(comm::Level::kComplete);
}

void Work::State::rethrow() const {
  // From its parts: a copy would share the text that the standard library counts for itself.
  if (error_) throw Error(error_->kind(), error_->sentence(), error_->remedy());
}

std::exception_ptr Work::State::own_exception() const noexcept {
  try {
    rethrow();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void Work::State::then(std::function<void(std::exception_ptr)> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!reached(comm::Level::kComplete)) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(own_exception());
}

void Work::State::run_callbacks() noexcept {
  std::vector<std::function<void(std::exception_ptr)>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    callbacks.swap(callbacks_);
  }
  for (const auto& callback : callbacks) callback(own_exception());
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

std::uint64_t Work::sequence() const noexcept { return state_ ? state_->fingerprint.sequence : completed_ > 0 ? completed_ - 1 : 0; }

int Work::source() const noexcept { return state_ && state_->reached(comm::Level::kComplete) ? state_->source() : -1; }

}  // namespace wirewise
