// A device for tests whose memory is the host's. Its copies happen late: when an event behind them is asked whether it has passed, and
// not at the first question. So whoever uses data before the event said so, uses what isn't there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/comm/accelerator.h"

namespace wirewise::testing {

class HostDevice final : public Accelerator {
 public:
  /// `questions`: how often an event is asked before it has passed; -1: never.
  explicit HostDevice(int questions = 3) : questions_(questions) {}

  [[nodiscard]] int index() const noexcept override { return 0; }
  [[nodiscard]] std::string describe() const override { return "host memory"; }
  [[nodiscard]] void* allocate(std::size_t bytes) override {
    ++allocated;
    return std::malloc(bytes);
  }
  void free(void* pointer) noexcept override {
    --allocated;
    std::free(pointer);
  }
  void pin(void* pointer, std::size_t) override {
    const std::lock_guard lock(mutex_);
    pinned_.insert(pointer);
    ++pins;
  }
  void unpin(void* pointer) noexcept override {
    const std::lock_guard lock(mutex_);
    pinned_.erase(pointer);
  }
  [[nodiscard]] std::unique_ptr<DeviceStream> make_stream() override { return std::make_unique<Stream>(*this); }
  void make_current() override {}
  void synchronize() override {}
  [[nodiscard]] std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Store>, int, int, CommunicatorOptions) override {
    throw bad_input("host memory has no wires of its own.");
  }

  [[nodiscard]] std::size_t pinned() {
    const std::lock_guard lock(mutex_);
    return pinned_.size();
  }
  std::atomic<int> pins{0}, allocated{0};

 private:
  struct Queue {
    std::mutex mutex;
    std::vector<std::function<void()>> copies;
  };
  class Event final : public DeviceEvent {
   public:
    Event(std::shared_ptr<Queue> queue, int questions) : queue_(std::move(queue)), left_(questions) {}
    [[nodiscard]] bool passed() override {
      if (left_ != 0) {
        if (left_ > 0) --left_;
        return false;
      }
      const std::lock_guard lock(queue_->mutex);
      for (const auto& copy : queue_->copies) copy();
      queue_->copies.clear();
      return true;
    }

   private:
    std::shared_ptr<Queue> queue_;
    int left_;
  };
  class Stream final : public DeviceStream {
   public:
    explicit Stream(HostDevice& device) : device_(device) {}
    void follow_current() override {}
    void copy_to_host(void* to, const void* from, std::size_t bytes) override { queue(to, from, bytes); }
    void copy_to_device(void* to, const void* from, std::size_t bytes) override { queue(to, from, bytes); }
    [[nodiscard]] std::unique_ptr<DeviceEvent> record() override { return std::make_unique<Event>(queue_, device_.questions_); }

   private:
    void queue(void* to, const void* from, std::size_t bytes) {
      const std::lock_guard lock(queue_->mutex);
      queue_->copies.emplace_back([=] { std::memcpy(to, from, bytes); });
    }
    HostDevice& device_;
    std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  };

  int questions_;
  std::mutex mutex_;
  std::set<void*> pinned_;
};

}  // namespace wirewise::testing
