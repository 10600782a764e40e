#include "wirewise/comm/staged_worker.h"
#include "wirewise/comm/signals_blocked.h"

#include <pthread.h>

#include <chrono>
#include <string>
#include <utility>

#include "wirewise/base/error.h"

namespace wirewise::comm {
namespace {

using Clock = std::chrono::steady_clock;

using SharedError = std::shared_ptr<const Error>;

/// The exception being handled, made anew: of a copy, the standard library shares the text among threads.
SharedError own_error() {
  try {
    throw;
  } catch (const Error& error) {
    return std::make_shared<const Error>(error.kind(), error.sentence(), error.remedy());
  } catch (const std::exception& error) {
    return std::make_shared<const Error>(ErrorKind::kFailed, error.what());
  }
}

void check_deadline(const StagedJob& job, const char* what) {
  if (Clock::now() < job.state->deadline) return;
  throw Error(ErrorKind::kTimeout, "a staged operation (call " + std::to_string(job.state->fingerprint.sequence) +
                                       (job.state->label.empty() ? "" : ", " + job.state->label) + ") waited " +
                                       std::to_string(job.state->timeout.count()) + " ms for " + what + ".");
}

bool passed(const std::unique_ptr<DeviceEvent>& event) noexcept {
  try {
    return !event || event->passed();
  } catch (const std::exception&) {
    return true;  // the device broke: nothing copies any more
  }
}

void finish(StagedJob& job, SharedError error) noexcept {
  // Pinned memory under a copy that doesn't end is never used again.
  if (!passed(job.arrived) || !passed(job.returned)) {
    for (auto& block : job.held) (void)block.release();
  }
  job.held.clear();
  job.state->complete(std::move(error));
}

/// Waits for a copy, at most until the operation's deadline.
void settle(const StagedJob& job, const std::unique_ptr<DeviceEvent>& event) noexcept {
  while (!passed(event) && Clock::now() < job.state->deadline) std::this_thread::yield();
}

}  // namespace

StagedWorker::StagedWorker(Communicator& host, Accelerator& device) : host_(host), device_(device), up_(device.make_stream()) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

StagedWorker::~StagedWorker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StagedWorker::push(StagedJob job) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void StagedWorker::wait_issued() {
  std::unique_lock lock(mutex_);
  issued_.wait(lock, [this] { return queue_.empty(); });
}

void StagedWorker::give_up(const Error& error) noexcept { host_.abort(error.what()); }

/// Issues the first of the queue once its inputs came. True when it did.
bool StagedWorker::issue_first(std::list<StagedJob>& flying) {
  StagedJob* first = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) return false;
    first = &queue_.front();  // stays where it is: only this thread takes from the front
  }
  SharedError error;
  try {
    if (!first->arrived->passed()) {
      check_deadline(*first, "its inputs to leave the device");
      return false;
    }
  } catch (const std::exception&) {
    error = own_error();
    give_up(*error);  // peers count on the call
  }
  try {
    if (!error) first->work = first->issue();
  } catch (const std::exception&) {
    error = own_error();
  }
  StagedJob job;
  {
    const std::lock_guard lock(mutex_);
    job = std::move(queue_.front());
    queue_.pop_front();
  }
  issued_.notify_all();
  if (error) {
    finish(job, std::move(error));
  } else {
    flying.push_back(std::move(job));
  }
  return true;
}

/// Advances an issued operation. True when it is over.
bool StagedWorker::advance(StagedJob& job, bool& moved) {
  SharedError error;
  bool over = job.returned != nullptr;  // on the host
  try {
    if (!over) {
      if (!job.work.test()) return false;
      over = moved = true;
      job.state->set_source(job.work.source());
      for (const StagedJob::Back& back : job.back) up_->copy_to_device(back.device, back.host, back.bytes);
      job.returned = up_->record();
    }
    if (!job.returned->passed()) {
      check_deadline(job, "its results to reach the device");
      return false;
    }
  } catch (const std::exception&) {
    error = own_error();
    if (over) give_up(*error);
  }
  finish(job, std::move(error));
  moved = true;
  return true;
}

void StagedWorker::run() {
  using namespace std::chrono_literals;
  pthread_setname_np(pthread_self(), "wirewise-staged");
  device_.make_current();
  std::list<StagedJob> flying;
  int idle = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (flying.empty()) changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (stop_) break;
    }
    bool moved = issue_first(flying);
    std::erase_if(flying, [&](StagedJob& job) { return advance(job, moved); });
    idle = moved ? 0 : idle + 1;
    if (idle < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(idle < 1000 ? 20us : 200us);
    }
  }
  close(flying);
}

/// Fails what is in flight.
void StagedWorker::close(std::list<StagedJob>& flying) {
  const auto gone = [] {
    return std::make_shared<const Error>(ErrorKind::kAborted, "the communicator was closed while operations were in flight.");
  };
  if (!flying.empty() || !queue_.empty()) host_.abort("a rank closed its communicator while operations were in flight");
  for (StagedJob& job : flying) {
    try {
      job.work.wait();
    } catch (const std::exception&) {
      // It was aborted; its memory is free.
    }
    settle(job, job.returned);
    finish(job, gone());
  }
  for (StagedJob& job : queue_) {
    settle(job, job.arrived);
    finish(job, gone());
  }
  queue_.clear();
}

}  // namespace wirewise::comm
