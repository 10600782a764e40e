// The progress thread of a process: asleep on a word in shared memory until there is something to do, it runs background operations that
// nobody waits for. It starts with the first of them, so programs that only use operations run by their callers have no such thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "wirewise/comm/arena.h"

namespace wirewise::comm {

/// A communicator as the engine sees it.
class EngineClient {
 public:
  enum class Drive : std::uint8_t { kNothing, kWaiting, kMoved };
  virtual ~EngineClient() = default;
  /// Advances operations as far as they go. `everything`: also those left to their callers (a caller is stuck elsewhere).
  virtual Drive drive_in_background(bool everything) = 0;
};

class Engine {
 public:
  explicit Engine(ArenaHeader& header) : header_(header) {}
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void add(EngineClient* client);
  /// Returns once the thread is out of `client`.
  void remove(EngineClient* client) noexcept;

  /// There is work: starts or wakes the thread.
  void notify();
  /// There is work that most likely its caller does next: looked after within kNap, mostly without a wake-up now.
  void notify_soon();
  /// A caller waits on one communicator and gets nowhere: until end_help() the thread runs all operations of all communicators, lest
  /// callers of different ranks wait for each other.
  void begin_help();
  void end_help() noexcept { help_.fetch_sub(1); }
  [[nodiscard]] bool on_thread() const noexcept { return started_.load() && std::this_thread::get_id() == thread_id_; }

 private:
  void run();
  bool pass(bool& moved);

  ArenaHeader& header_;
  std::mutex mutex_;
  std::condition_variable left_;
  std::vector<EngineClient*> clients_;
  EngineClient* current_ = nullptr;
  std::thread thread_;
  std::thread::id thread_id_;
  std::atomic<bool> started_{false};
  std::atomic<bool> stop_{false};
  std::atomic<int> help_{0};
};

/// Wakes the progress thread that sleeps behind `header`, if it does.
void ring_engine(ArenaHeader& header) noexcept;

}  // namespace wirewise::comm
