// An operation in flight: a small state machine that step() advances without blocking, driven by its group (group.h).
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/comm/communicator.h"
#include "wirewise/comm/control.h"
#include "wirewise/comm/flight_recorder.h"

namespace wirewise::comm {
class Group;

enum class Level : int { kPending, kOutput, kComplete };

/// A rank that an operation waits for.
struct Missing {
  int rank = 0;
  bool arrived = false;  // it has called the operation, but not finished its part
};
}  // namespace wirewise::comm

namespace wirewise {

class Work::State {
 public:
  State(std::shared_ptr<comm::Group> group, const comm::Fingerprint& fingerprint, CallOptions options);
  /// Of an operation that another than a Group drives.
  State(const comm::Fingerprint& fingerprint, CallOptions options, std::chrono::milliseconds default_timeout);
  virtual ~State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Announces the call to the peers; false while its slot is still in use. In order of issue.
  virtual bool post() { return true; }
  /// Advances by at most a few MiB of copying. True when anything moved. Throws the operation's error.
  virtual bool step() = 0;
  /// True once nothing more is to be done for it here: its slot and staging area are given back.
  [[nodiscard]] virtual bool retired() const noexcept = 0;
  /// The ranks it waits for.
  [[nodiscard]] virtual std::vector<comm::Missing> missing() const = 0;
  /// Gives back what it holds; after retired(), or when it failed.
  virtual void release() noexcept {}
  /// It may need the staging area, and gives up its turn with leave_stage().
  [[nodiscard]] virtual bool may_stage() const noexcept { return false; }
  /// The sender of a message that was received, else -1.
  [[nodiscard]] virtual int source() const noexcept { return -1; }
  /// Collectives take a slot; messages don't.
  [[nodiscard]] virtual bool collective() const noexcept { return true; }
  /// Waits for the level, driving what there is to drive. Throws the operation's error.
  virtual void wait(comm::Level level);
  /// Advances without blocking; true once complete. Throws the operation's error.
  [[nodiscard]] virtual bool test();

  [[nodiscard]] bool reached(comm::Level level) const noexcept { return level_.load() >= static_cast<int>(level); }
  void reach(comm::Level level) noexcept {
    if (flight_ != nullptr) record_level(level);
    level_.store(static_cast<int>(level));
  }
  /// Ends it with `error`. Every waiter and callback gets an exception of its own, made from it: one that several threads held would be let
  /// go by the last of them, which is not for them to agree on.
  void fail(std::shared_ptr<const Error> error) noexcept;
  /// Throws the error if there is one.
  void rethrow() const;
  void then(std::function<void(std::exception_ptr)> callback);
  /// Calls what then() left, once the operation is complete.
  void run_callbacks() noexcept;

  /// Enters the call in a flight record, which outlives it; reach() and fail() tell the rest. Once the sequence number is known.
  void record_in(comm::FlightRecorder& recorder, std::uint32_t communicator) noexcept;
  /// How the operation goes, for the record: a word that lives for ever, such as "shared" or "network".
  void record_how(const char* word) noexcept;
  /// Somebody drives it.
  void record_driven() noexcept {
    if (driven_ || flight_ == nullptr) return;
    driven_ = true;
    flight_->driven(flight_call_);
  }
  /// Before the error is known to callers: a dump is made in between.
  void record_failure() noexcept;

  std::shared_ptr<comm::Group> group;
  comm::Fingerprint fingerprint;
  std::string label;
  bool background = true;
  std::chrono::steady_clock::time_point deadline;
  std::chrono::milliseconds timeout;
  bool settled = false;  // its completion was told; the driver's

 private:
  void record_level(comm::Level level) noexcept;
  [[nodiscard]] std::exception_ptr own_exception() const noexcept;

  std::atomic<int> level_{0};
  comm::FlightRecorder* flight_ = nullptr;
  std::uint64_t flight_call_ = comm::FlightRecorder::kNoCall;
  std::uint32_t flight_communicator_ = 0;
  const char* how_ = nullptr;
  bool driven_ = false;
  bool recorded_failure_ = false;
  std::shared_ptr<const Error> error_;  // set before level_ says complete
  std::mutex mutex_;
  std::vector<std::function<void(std::exception_ptr)>> callbacks_;
};

}  // namespace wirewise
