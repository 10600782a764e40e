#include "wirewise/comm/staged_communicator.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <list>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/comm/operation.h"
#include "wirewise/comm/pinned_pool.h"

namespace wirewise {
namespace {

using comm::PinnedPool;
using Clock = std::chrono::steady_clock;

/// An operation's handle; the worker completes it.
class StagedState final : public Work::State {
 public:
  StagedState(const comm::Fingerprint& print, CallOptions options, std::chrono::milliseconds default_timeout)
      : Work::State(print, std::move(options), default_timeout) {}

  bool step() override { return false; }
  [[nodiscard]] bool retired() const noexcept override { return reached(comm::Level::kComplete); }
  [[nodiscard]] std::vector<comm::Missing> missing() const override { return {}; }
  void wait(comm::Level) override {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return reached(comm::Level::kComplete); });
    rethrow();
  }
  [[nodiscard]] bool test() override {
    if (!reached(comm::Level::kComplete)) return false;
    rethrow();
    return true;
  }
  /// The error is handed over whole: once a waiter may have it, this thread must hold no part of it.
  void complete(std::exception_ptr error) noexcept {
    {
      const std::lock_guard lock(mutex_);
      if (error) {
        fail(std::move(error));
      } else {
        reach(comm::Level::kComplete);
      }
    }
    done_.notify_all();
    run_callbacks();
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
};

/// An operation from its call to its end.
struct Job {
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

/// The exception being handled, made anew: the host communicator may keep a part of its own for later calls, which other threads let go.
std::exception_ptr own_error() {
  try {
    throw;
  } catch (const Error& error) {
    return std::make_exception_ptr(Error(error.kind(), error.sentence(), error.remedy()));
  } catch (const std::exception& error) {
    return std::make_exception_ptr(Error(ErrorKind::kFailed, error.what()));
  }
}

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> host, std::shared_ptr<Accelerator> device, CommunicatorOptions options)
      : host_(std::move(host)),
        device_(std::move(device)),
        options_(std::move(options)),
        pool_(*host_, *device_),
        down_(device_->make_stream()),
        up_(device_->make_stream()) {
    // Signals belong to the program's own threads.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    worker_ = std::thread([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  ~StagedCommunicator() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    worker_.join();
    for (void* const pointer : allocated_) device_->free(pointer);
  }

  [[nodiscard]] int rank() const noexcept override { return host_->rank(); }
  [[nodiscard]] int size() const noexcept override { return host_->size(); }

  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::reduce_scatter;

  Work all_reduce(std::span<const ReducePart> parts, Reduction op, CallOptions options) override {
    return reduction(comm::Operation::kAllReduce, parts, 1, op, std::move(options));
  }
  Work reduce_scatter(std::span<const ReducePart> parts, Reduction op, CallOptions options) override {
    return reduction(comm::Operation::kReduceScatter, parts, ranks(), op, std::move(options));
  }

  Work all_gather(std::span<const AllGatherPart> parts, CallOptions options) override {
    Call call(*this, comm::Operation::kAllGather, options);
    std::vector<AllGatherPart> host;
    for (const AllGatherPart& part : parts) {
      const std::size_t bytes = part.count * size_of(part.shard.dtype);
      auto* full = static_cast<std::byte*>(call.output(part.full.data, bytes * ranks()));
      std::byte* shard = full + (full != nullptr ? bytes * static_cast<std::size_t>(rank()) : 0);
      call.bring(shard, part.shard.data, bytes);
      host.push_back({{shard, part.shard.dtype}, {full, part.full.dtype}, part.count});
    }
    return call.start([this, host = std::move(host)](CallOptions how) { return host_->all_gather(host, std::move(how)); });
  }

  Work broadcast(Buffer buffer, std::size_t count, int root, CallOptions options) override {
    Call call(*this, comm::Operation::kBroadcast, options);
    const std::size_t bytes = count * size_of(buffer.dtype);
    void* data = rank() == root ? call.input(buffer.data, bytes) : call.output(buffer.data, bytes);
    return call.start([this, host = Buffer{data, buffer.dtype}, count, root](CallOptions how) {
      return host_->broadcast(host, count, root, std::move(how));
    });
  }

  Work reduce(ConstBuffer in, Buffer out, std::size_t count, int root, Reduction op, CallOptions options) override {
    Call call(*this, comm::Operation::kReduce, options);
    const ConstBuffer from{call.input(in.data, count * size_of(in.dtype)), in.dtype};
    Buffer to{nullptr, out.dtype};
    if (rank() == root) to.data = call.output(out.data, count * size_of(out.dtype), options.accumulate);
    return call.start([this, from, to, count, root, op](CallOptions how) { return host_->reduce(from, to, count, root, op, std::move(how)); });
  }

  Work gather(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options) override {
    Call call(*this, comm::Operation::kGather, options);
    const ConstBuffer from{call.input(in.data, count * size_of(in.dtype)), in.dtype};
    Buffer to{nullptr, out.dtype};
    if (rank() == root) to.data = call.output(out.data, ranks() * count * size_of(out.dtype));
    return call.start([this, from, to, count, root](CallOptions how) { return host_->gather(from, to, count, root, std::move(how)); });
  }

  Work scatter(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options) override {
    Call call(*this, comm::Operation::kScatter, options);
    ConstBuffer from{nullptr, in.dtype};
    if (rank() == root) from.data = call.input(in.data, ranks() * count * size_of(in.dtype));
    const Buffer to{call.output(out.data, count * size_of(out.dtype)), out.dtype};
    return call.start([this, from, to, count, root](CallOptions how) { return host_->scatter(from, to, count, root, std::move(how)); });
  }

  Work all_to_all(ConstBuffer in, std::span<const std::size_t> send_counts, Buffer out, std::span<const std::size_t> recv_counts,
                  CallOptions options) override {
    Call call(*this, comm::Operation::kAllToAll, options);
    std::vector<std::size_t> sends(send_counts.begin(), send_counts.end());
    std::vector<std::size_t> recvs(recv_counts.begin(), recv_counts.end());
    const auto sum = [](const std::vector<std::size_t>& counts) { return std::accumulate(counts.begin(), counts.end(), std::size_t{0}); };
    const ConstBuffer from{call.input(in.data, sum(sends) * size_of(in.dtype)), in.dtype};
    const Buffer to{call.output(out.data, sum(recvs) * size_of(out.dtype)), out.dtype};
    return call.start([this, from, to, sends = std::move(sends), recvs = std::move(recvs)](CallOptions how) {
      return host_->all_to_all(from, sends, to, recvs, std::move(how));
    });
  }

  Work send(ConstBuffer in, std::size_t count, int peer, int tag, CallOptions options) override {
    Call call(*this, comm::Operation::kSend, options);
    const ConstBuffer from{call.input(in.data, count * size_of(in.dtype)), in.dtype};
    return call.start([this, from, count, peer, tag](CallOptions how) { return host_->send(from, count, peer, tag, std::move(how)); });
  }

  Work recv(Buffer out, std::size_t count, int peer, int tag, CallOptions options) override {
    Call call(*this, comm::Operation::kRecv, options);
    const Buffer to{call.output(out.data, count * size_of(out.dtype)), out.dtype};
    return call.start([this, to, count, peer, tag](CallOptions how) { return host_->recv(to, count, peer, tag, std::move(how)); });
  }

  Work barrier(CallOptions options) override {
    return Call(*this, comm::Operation::kBarrier, options).start([this](CallOptions how) { return host_->barrier(std::move(how)); });
  }

  void progress() override {}  // the worker's

  [[nodiscard]] std::unique_ptr<Communicator> split(int colour, int key, CommunicatorOptions options) override {
    // Calls before the split must have been issued on the host before it.
    {
      std::unique_lock lock(mutex_);
      issued_.wait(lock, [this] { return queue_.empty(); });
    }
    auto part = host_->split(colour, key, options);
    return part ? make_staged_communicator(std::move(part), device_, std::move(options)) : nullptr;
  }

  void abort(const std::string& reason) noexcept override { host_->abort(reason); }

  [[nodiscard]] void* allocate_shared(std::size_t bytes) override {
    void* pointer = device_->allocate(bytes);
    const std::lock_guard lock(mutex_);
    allocated_.insert(pointer);
    return pointer;
  }
  void free_shared(void* pointer) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      if (allocated_.erase(pointer) == 0) return;
    }
    device_->free(pointer);
  }

 private:
  /// Puts one operation together. Calls are made one at a time: what a call copies down, and its place in the queue, must not be parted.
  class Call {
   public:
    Call(StagedCommunicator& owner, comm::Operation operation, const CallOptions& options)
        : owner_(owner), lock_(owner.call_mutex_), options_(options) {
      comm::Fingerprint print;
      print.operation = operation;
      print.sequence = owner.sequence_++;
      job_.state = std::make_shared<StagedState>(print, options_, owner.options_.timeout);
      owner_.down_->follow_current();
    }

    /// Queues a copy from the device into host memory that a previous input() or output() gave.
    void bring(void* host, const void* device, std::size_t bytes) {
      if (bytes > 0) owner_.down_->copy_to_host(host, device, bytes);
    }
    /// Host memory that holds what lies at `device`.
    void* input(const void* device, std::size_t bytes) {
      job_.held.push_back(owner_.pool_.take(bytes));
      void* host = job_.held.back().get();
      bring(host, device, bytes);
      return host;
    }
    /// Host memory whose content goes to `device` in the end; `filled`: begins as what lies there.
    void* output(void* device, std::size_t bytes, bool filled = false) {
      job_.held.push_back(owner_.pool_.take(bytes));
      void* host = job_.held.back().get();
      if (filled) bring(host, device, bytes);
      if (bytes > 0) job_.back.push_back({device, host, bytes});
      return host;
    }

    Work start(std::function<Work(CallOptions)> issue) {
      job_.arrived = owner_.down_->record();
      job_.issue = [issue = std::move(issue), options = options_] {
        CallOptions how = options;
        how.progress = CallOptions::Progress::kOnWait;  // the worker drives it
        return issue(std::move(how));
      };
      Work handle(job_.state);
      {
        const std::lock_guard lock(owner_.mutex_);
        owner_.queue_.push_back(std::move(job_));
      }
      owner_.changed_.notify_all();
      return handle;
    }

   private:
    StagedCommunicator& owner_;
    std::unique_lock<std::mutex> lock_;
    CallOptions options_;
    Job job_;
  };

  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(size()); }

  /// all_reduce (in_factor 1) and reduce_scatter (in_factor ranks).
  Work reduction(comm::Operation operation, std::span<const ReducePart> parts, std::size_t in_factor, Reduction op, CallOptions options) {
    Call call(*this, operation, options);
    std::vector<ReducePart> host;
    for (const ReducePart& part : parts) {
      const std::size_t in_bytes = in_factor * part.count * size_of(part.in.dtype);
      const std::size_t out_bytes = part.count * size_of(part.out.dtype);
      const bool in_place = in_factor == 1 && part.in.data == part.out.data && part.in.dtype == part.out.dtype;
      if (in_place) {
        void* data = call.output(part.out.data, out_bytes, true);
        host.push_back({{data, part.in.dtype}, {data, part.out.dtype}, part.count});
      } else {
        void* in = call.input(part.in.data, in_bytes);
        void* out = call.output(part.out.data, out_bytes, options.accumulate);
        host.push_back({{in, part.in.dtype}, {out, part.out.dtype}, part.count});
      }
    }
    return call.start([this, operation, op, host = std::move(host)](CallOptions how) {
      return operation == comm::Operation::kAllReduce ? host_->all_reduce(host, op, std::move(how)) : host_->reduce_scatter(host, op, std::move(how));
    });
  }

  static void check_deadline(const Job& job, const char* what) {
    if (Clock::now() < job.state->deadline) return;
    throw Error(ErrorKind::kTimeout, "a staged operation (call " + std::to_string(job.state->fingerprint.sequence) +
                                         (job.state->label.empty() ? "" : ", " + job.state->label) + ") waited " +
                                         std::to_string(job.state->timeout.count()) + " ms for " + what + ".");
  }

  /// Issues the first of the queue once its inputs came. True when it did.
  bool issue_first(std::list<Job>& flying) {
    Job* first = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) return false;
      first = &queue_.front();  // stays where it is: only this thread takes from the front
    }
    std::exception_ptr error;
    try {
      if (!first->arrived->passed()) {
        check_deadline(*first, "its inputs to leave the device");
        return false;
      }
      first->work = first->issue();
    } catch (const std::exception&) {
      error = own_error();
    }
    Job job;
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
  bool advance(Job& job, bool& moved) {
    std::exception_ptr error;
    try {
      if (!job.returned) {
        if (!job.work.test()) return false;
        moved = true;
        for (const Job::Back& back : job.back) up_->copy_to_device(back.device, back.host, back.bytes);
        job.returned = up_->record();
      }
      if (!job.returned->passed()) {
        check_deadline(job, "its results to reach the device");
        return false;
      }
    } catch (const std::exception&) {
      error = own_error();
    }
    finish(job, std::move(error));
    moved = true;
    return true;
  }

  static void finish(Job& job, std::exception_ptr error) noexcept {
    job.held.clear();
    job.state->complete(std::move(error));
  }

  void run() {
    using namespace std::chrono_literals;
    pthread_setname_np(pthread_self(), "wirewise-staged");
    device_->make_current();
    std::list<Job> flying;
    int idle = 0;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        if (flying.empty()) changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
        if (stop_) break;
      }
      bool moved = issue_first(flying);
      std::erase_if(flying, [&](Job& job) { return advance(job, moved); });
      idle = moved ? 0 : idle + 1;
      if (idle < 100) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(idle < 1000 ? 20us : 200us);
      }
    }
    const auto gone = [] {
      return std::make_exception_ptr(Error(ErrorKind::kAborted, "the communicator was closed while operations were in flight."));
    };
    if (!flying.empty()) host_->abort("a rank closed its communicator while operations were in flight");
    for (Job& job : flying) {
      try {
        job.work.wait();
      } catch (const std::exception&) {
        // It was aborted; its memory is free.
      }
      settle(job.returned);
      finish(job, gone());
    }
    for (Job& job : queue_) {
      settle(job.arrived);
      finish(job, gone());
    }
    queue_.clear();
  }

  /// Pinned memory must not be given back under a copy.
  static void settle(const std::unique_ptr<DeviceEvent>& event) noexcept {
    try {
      while (event && !event->passed()) std::this_thread::yield();
    } catch (const std::exception&) {
      // The device broke: nothing copies any more.
    }
  }

  std::unique_ptr<Communicator> host_;
  std::shared_ptr<Accelerator> device_;
  CommunicatorOptions options_;
  PinnedPool pool_;
  std::unique_ptr<DeviceStream> down_, up_;
  std::mutex call_mutex_;         // of callers: down_, sequence_
  std::uint64_t sequence_ = 0;
  std::mutex mutex_;              // of what follows
  std::condition_variable changed_, issued_;
  std::deque<Job> queue_;         // push_back leaves the front where it is
  std::set<void*> allocated_;
  bool stop_ = false;
  std::thread worker_;
};

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host, std::shared_ptr<Accelerator> device,
                                                       CommunicatorOptions options) {
  return std::make_unique<StagedCommunicator>(std::move(host), std::move(device), std::move(options));
}

}  // namespace wirewise
