// The threads are detached and share the queue's ownership, so that a job may be the one that lets go of the last backend.
#include "wirewise/torch/c10d_callback_threads.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace wirewise {

struct CallbackThreads::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  std::size_t idle = 0;
  bool stop = false;
};

CallbackThreads::CallbackThreads() : state_(std::make_shared<State>()) {}

CallbackThreads::~CallbackThreads() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
}

void CallbackThreads::run(std::function<void()> job) {
  bool start = false;
  {
    const std::lock_guard lock(state_->mutex);
    state_->jobs.push_back(std::move(job));
    start = state_->jobs.size() > state_->idle;
  }
  if (start) {
    std::thread([state = state_] { serve(state); }).detach();
  } else {
    state_->changed.notify_one();
  }
}

void CallbackThreads::serve(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  for (;;) {
    ++state->idle;
    state->changed.wait(lock, [&] { return !state->jobs.empty() || state->stop; });
    --state->idle;
    if (state->jobs.empty()) return;
    {
      const auto job = std::move(state->jobs.front());
      state->jobs.pop_front();
      lock.unlock();
      job();
    }
    lock.lock();
  }
}

}  // namespace wirewise
