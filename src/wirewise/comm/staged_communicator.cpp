#include "wirewise/comm/staged_communicator.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/comm/operation.h"
#include "wirewise/comm/pinned_pool.h"
#include "wirewise/comm/staged_worker.h"

namespace wirewise {
namespace {

using comm::PinnedPool;

class Staged final : public StagedCommunicator {
 public:
  Staged(std::shared_ptr<Communicator> host, std::shared_ptr<Accelerator> device, CommunicatorOptions options)
      : host_(std::move(host)),
        device_(std::move(device)),
        options_(std::move(options)),
        pool_(*host_, *device_),
        down_(device_->make_stream()),
        worker_(std::make_unique<comm::StagedWorker>(*host_, *device_)) {}

  ~Staged() override {
    worker_.reset();
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

  void wait_issued() override { worker_->wait_issued(); }
  void progress() override {}  // the worker's

  [[nodiscard]] std::unique_ptr<Communicator> split(int colour, int key, CommunicatorOptions options) override {
    wait_issued();  // calls before the split come before it on the host, too
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
    Call(Staged& owner, comm::Operation operation, const CallOptions& options)
        : owner_(owner), lock_(owner.call_mutex_), options_(options) {
      comm::Fingerprint print;
      print.operation = operation;
      print.sequence = owner.sequence_++;
      job_.state = std::make_shared<comm::StagedState>(print, options_, owner.options_.timeout);
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
      owner_.worker_->push(std::move(job_));
      return handle;
    }

   private:
    Staged& owner_;
    std::unique_lock<std::mutex> lock_;
    CallOptions options_;
    comm::StagedJob job_;
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

  std::shared_ptr<Communicator> host_;
  std::shared_ptr<Accelerator> device_;
  CommunicatorOptions options_;
  PinnedPool pool_;
  std::unique_ptr<DeviceStream> down_;
  std::mutex call_mutex_;      // of callers: down_, sequence_
  std::uint64_t sequence_ = 0;
  std::mutex mutex_;           // of allocated_
  std::set<void*> allocated_;
  std::unique_ptr<comm::StagedWorker> worker_;
};

}  // namespace

std::unique_ptr<StagedCommunicator> make_staged_communicator(std::shared_ptr<Communicator> host, std::shared_ptr<Accelerator> device,
                                                             CommunicatorOptions options) {
  return std::make_unique<Staged>(std::move(host), std::move(device), std::move(options));
}

}  // namespace wirewise
