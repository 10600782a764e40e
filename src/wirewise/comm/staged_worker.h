// The thread of a staged communicator: it issues calls on the host communicator in their order, each once its inputs have left the device,
// drives them, and copies results back.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "wirewise/comm/accelerator.h"
#include "wirewise/comm/operation.h"
#include "wirewise/comm/pinned_pool.h"

namespace wirewise::comm {

/// An operation's handle; the worker completes it.
class StagedState final : public Work::State {
 public:
  StagedState(const Fingerprint& print, CallOptions options, std::chrono::milliseconds default_timeout)
      : Work::State(print, std::move(options), default_timeout) {}

  bool step() override { return false; }
  [[nodiscard]] bool retired() const noexcept override { return reached(Level::kComplete); }
  [[nodiscard]] std::vector<Missing> missing() const override { return {}; }
  [[nodiscard]] int source() const noexcept override { return source_; }
  void wait(Level) override {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return reached(Level::kComplete); });
    rethrow();
  }
  [[nodiscard]] bool test() override {
    if (!reached(Level::kComplete)) return false;
    rethrow();
    return true;
  }
  /// Of a message, before complete().
  void set_source(int rank) noexcept { source_ = rank; }
  void complete(std::shared_ptr<const Error> error) noexcept {
    {
      const std::lock_guard lock(mutex_);
      if (error) {
        fail(std::move(error));
      } else {
        reach(Level::kComplete);
      }
    }
    done_.notify_all();
    run_callbacks();
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  int source_ = -1;
};

/// An operation from its call to its end.
struct StagedJob {
  std::shared_ptr<StagedState> state;
  std::unique_ptr<DeviceEvent> arrived;   // inputs are in host memory, and the current stream is past all that it held at the call
  std::function<Work()> issue;
  struct Back {
    void* device = nullptr;
    const void* host = nullptr;
    std::size_t bytes = 0;
  };
  std::vector<Back> back;
  std::vector<PinnedPool::Block> held;
  Work work;
  std::unique_ptr<DeviceEvent> returned;  // results are in device memory
};

class StagedWorker {
 public:
  /// Both must outlive it.
  StagedWorker(Communicator& host, Accelerator& device);
  /// Operations in flight fail.
  ~StagedWorker();
  StagedWorker(const StagedWorker&) = delete;
  StagedWorker& operator=(const StagedWorker&) = delete;

  void push(StagedJob job);
  /// Returns once every job pushed before has been issued on the host communicator, or has failed.
  void wait_issued();

 private:
  /// The device broke, or is stuck: the group can't go on without this rank.
  void give_up(const Error& error) noexcept;
  bool issue_first(std::list<StagedJob>& flying);
  bool advance(StagedJob& job, bool& moved);
  void run();
  void close(std::list<StagedJob>& flying);

  Communicator& host_;
  Accelerator& device_;
  std::unique_ptr<DeviceStream> up_;
  std::mutex mutex_;             // of what follows
  std::condition_variable changed_, issued_;
  std::deque<StagedJob> queue_;  // push_back leaves the front where it is
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace wirewise::comm
