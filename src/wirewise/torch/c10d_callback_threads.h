// Threads that run the callbacks of futures. A callback may start another operation and wait for it (communication hooks do), or
// wait for Python's lock; on the communicator's progress thread, or inside a wait(), that would keep everybody's operations from
// moving.
#pragma once

#include <functional>
#include <memory>

namespace wirewise {

/// Runs each job at once on an idle thread, or on a new one when none is: a job that blocks never holds up another. Threads stay
/// for later jobs and end, with what is queued done, after this object is gone.
class CallbackThreads {
 public:
  CallbackThreads();
  ~CallbackThreads();
  CallbackThreads(const CallbackThreads&) = delete;
  CallbackThreads& operator=(const CallbackThreads&) = delete;

  void run(std::function<void()> job);

 private:
  struct State;
  static void serve(const std::shared_ptr<State>& state);
  std::shared_ptr<State> state_;
};

}  // namespace wirewise
