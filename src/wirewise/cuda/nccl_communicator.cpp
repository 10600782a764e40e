#include "wirewise/cuda/nccl_communicator.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/comm/operation.h"
#include "wirewise/comm/split.h"
#include "wirewise/cuda/nccl_group.h"
#include "wirewise/cuda/nccl_tensors.h"
#include "wirewise/cuda/nccl_work.h"
#include "wirewise/cuda/own_store.h"

namespace wirewise::cuda {
namespace {

using Handle = NcclWork::Handle;

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Store> store, int device, int rank, int size, CommunicatorOptions options)
      : store_(store != nullptr ? std::move(store) : std::make_shared<OwnStore>()),
        device_(static_cast<c10::DeviceIndex>(device)),
        rank_(rank),
        size_(size),
        options_(std::move(options)),
        group_(make_nccl_group(std::make_shared<PrefixStore>(options_.name + "/nccl/", store_), device, rank, size, options_.timeout)) {}

  ~NcclCommunicator() override {
    if (aborter_.joinable()) aborter_.join();
    for (void* const pointer : allocated_) c10::cuda::CUDACachingAllocator::raw_delete(pointer);
  }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }

  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::reduce_scatter;

  Work all_reduce(std::span<const ReducePart> parts, Reduction op, CallOptions options) override {
    return reduction("all_reduce", comm::Operation::kAllReduce, parts, op, std::move(options));
  }
  Work reduce_scatter(std::span<const ReducePart> parts, Reduction op, CallOptions options) override {
    return reduction("reduce_scatter", comm::Operation::kReduceScatter, parts, op, std::move(options));
  }

  Work all_gather(std::span<const AllGatherPart> parts, CallOptions options) override {
    std::vector<at::Tensor> shards, fulls;
    for (const AllGatherPart& part : parts) {
      if (part.count == 0) continue;
      shards.push_back(tensor(part.shard, part.count));
      fulls.push_back(tensor(part.full, part.count * ranks()));
    }
    return issue("all_gather", comm::Operation::kAllGather, std::move(options), [&]() -> Handle {
      if (shards.empty()) return {};
      c10d::AllgatherOptions how;
      if (shards.size() == 1) return group_->_allgather_base(fulls.front(), shards.front(), how);
      return group_->allgather_into_tensor_coalesced(fulls, shards, how);
    });
  }

  Work broadcast(Buffer buffer, std::size_t count, int root, CallOptions options) override {
    check_rank(root, "root", "broadcast");
    return issue("broadcast", comm::Operation::kBroadcast, std::move(options), [&]() -> Handle {
      if (count == 0) return {};
      std::vector<at::Tensor> tensors{tensor(buffer, count)};
      c10d::BroadcastOptions how;
      how.rootRank = root;
      return group_->broadcast(tensors, how);
    });
  }

  Work reduce(ConstBuffer in, Buffer out, std::size_t count, int root, Reduction op, CallOptions options) override {
    check_rank(root, "root", "reduce");
    const auto reduce_op = to_reduce_op(op, "reduce");
    if (options.accumulate) throw bad_input("reduce with accumulation is not in the NCCL communicator.", "Use all_reduce or reduce_scatter.");
    if (in.dtype != out.dtype) throw bad_input("reduce to another dtype is not in the NCCL communicator.", "Use all_reduce or reduce_scatter.");
    return issue("reduce", comm::Operation::kReduce, std::move(options), [&]() -> Handle {
      if (count == 0) return {};
      at::Tensor from = tensor(in, count);
      at::Tensor to = rank_ == root ? tensor(out, count) : from;
      c10d::ReduceOptions how;
      how.reduceOp = reduce_op;
      how.rootRank = root;
      return group_->_reduce_oop(to, from, how);
    });
  }

  Work gather(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options) override {
    check_rank(root, "root", "gather");
    return issue("gather", comm::Operation::kGather, std::move(options), [&]() -> Handle {
      if (count == 0) return {};
      std::vector<at::Tensor> inputs{tensor(in, count)};
      std::vector<std::vector<at::Tensor>> outputs;
      if (rank_ == root) outputs.push_back(slices(out, count));
      c10d::GatherOptions how;
      how.rootRank = root;
      return group_->gather(outputs, inputs, how);
    });
  }

  Work scatter(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options) override {
    check_rank(root, "root", "scatter");
    return issue("scatter", comm::Operation::kScatter, std::move(options), [&]() -> Handle {
      if (count == 0) return {};
      std::vector<at::Tensor> outputs{tensor(out, count)};
      std::vector<std::vector<at::Tensor>> inputs;
      if (rank_ == root) inputs.push_back(slices(in, count));
      c10d::ScatterOptions how;
      how.rootRank = root;
      return group_->scatter(outputs, inputs, how);
    });
  }

  Work all_to_all(ConstBuffer in, std::span<const std::size_t> send_counts, Buffer out, std::span<const std::size_t> recv_counts,
                  CallOptions options) override {
    if (send_counts.size() != ranks() || recv_counts.size() != ranks()) {
      throw bad_input("all_to_all: counts for " + std::to_string(send_counts.size()) + " and " + std::to_string(recv_counts.size()) + " ranks, but there are " +
                      std::to_string(size_) + ".");
    }
    return issue("all_to_all", comm::Operation::kAllToAll, std::move(options), [&]() -> Handle {
      std::vector<std::int64_t> sends(send_counts.begin(), send_counts.end());
      std::vector<std::int64_t> recvs(recv_counts.begin(), recv_counts.end());
      at::Tensor from = tensor(in, static_cast<std::size_t>(std::accumulate(sends.begin(), sends.end(), std::int64_t{0})));
      at::Tensor to = tensor(out, static_cast<std::size_t>(std::accumulate(recvs.begin(), recvs.end(), std::int64_t{0})));
      return group_->alltoall_base(to, from, recvs, sends, {});
    });
  }

  Work send(ConstBuffer in, std::size_t count, int peer, int tag, CallOptions options) override {
    check_message(peer, tag, "send");
    return issue("send", comm::Operation::kSend, std::move(options), [&]() -> Handle {
      if (count == 0) return {};
      std::vector<at::Tensor> tensors{tensor(in, count)};
      return group_->send(tensors, peer, 0);
    });
  }

  Work recv(Buffer out, std::size_t count, int peer, int tag, CallOptions options) override {
    check_message(peer, tag, "recv");
    return issue("recv", comm::Operation::kRecv, std::move(options), [&]() -> Handle {
      if (count == 0) return {};
      std::vector<at::Tensor> tensors{tensor(out, count)};
      return group_->recv(tensors, peer, 0);
    });
  }

  Work barrier(CallOptions options) override {
    return issue("barrier", comm::Operation::kBarrier, std::move(options), [&]() -> Handle {
      c10d::BarrierOptions how;
      how.device_ids = {device_};
      how.device = at::Device(c10::DeviceType::CUDA, device_);
      return group_->barrier(how);
    });
  }

  /// Throws the first failure among the operations in flight.
  void progress() override {
    std::vector<std::shared_ptr<NcclWork>> flying;
    {
      const std::lock_guard lock(mutex_);
      flying = flying_;
    }
    for (const auto& state : flying) state->settle();
    std::shared_ptr<NcclWork> failed;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& state : flying) {
        if (!failed && state->retired()) {
          try {
            state->rethrow();
          } catch (...) {
            failed = state;
          }
        }
      }
      std::erase_if(flying_, [](const auto& state) { return state->retired(); });
    }
    if (failed) failed->rethrow();
  }

  [[nodiscard]] std::unique_ptr<Communicator> split(int colour, int key, CommunicatorOptions options) override {
    const std::string place = options_.name + "/split/" + std::to_string(splits_++) + "/";
    store_->set(place + std::to_string(rank_), std::to_string(colour) + " " + std::to_string(key));
    std::vector<std::int64_t> choices;
    for (int r = 0; r < size_; ++r) {
      const std::string theirs = store_->get(place + std::to_string(r), options_.timeout);
      choices.insert(choices.end(), {std::stoi(theirs), std::stoi(theirs.substr(theirs.find(' ') + 1))});
    }
    if (colour < 0) return nullptr;
    const std::vector<int> members = comm::split_members(colour, choices);
    const auto own = std::find(members.begin(), members.end(), rank_);
    options.name = place + "of/" + std::to_string(colour) + "/" + options.name;
    return std::make_unique<NcclCommunicator>(store_, device_, static_cast<int>(own - members.begin()), static_cast<int>(members.size()),
                                              std::move(options));
  }

  /// Ends what is in flight on this rank; peers meet their deadline.
  void abort(const std::string& reason) noexcept override {
    try {
      const std::lock_guard lock(mutex_);
      if (!aborted_.empty()) return;
      aborted_ = reason.empty() ? "aborted" : reason;
      aborter_ = std::thread([group = group_] {
        try {
          group->abort();
        } catch (const std::exception&) {
          // It was ending already.
        }
      });
    } catch (const std::exception&) {
      // No thread to be had: the deadline ends it.
    }
  }

  [[nodiscard]] void* allocate_shared(std::size_t bytes) override {
    const c10::cuda::CUDAGuard guard(device_);
    void* pointer = c10::cuda::CUDACachingAllocator::raw_alloc(bytes);
    const std::lock_guard lock(mutex_);
    allocated_.insert(pointer);
    return pointer;
  }
  void free_shared(void* pointer) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      if (allocated_.erase(pointer) == 0) return;
    }
    try {
      c10::cuda::CUDACachingAllocator::raw_delete(pointer);
    } catch (const std::exception&) {
      // The device broke, and its memory with it.
    }
  }

 private:
  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(size_); }

  [[nodiscard]] at::Tensor tensor(ConstBuffer buffer, std::size_t count) const { return tensor_of(buffer, count, device_); }
  [[nodiscard]] std::vector<at::Tensor> slices(ConstBuffer buffer, std::size_t count) const {
    return tensor(buffer, count * ranks()).chunk(size_);
  }

  void check_rank(int rank, const char* what, const char* operation) const {
    if (rank >= 0 && rank < size_) return;
    throw bad_input(std::string(operation) + " names rank " + std::to_string(rank) + " as its " + what + ", but the ranks are 0 to " +
                    std::to_string(size_ - 1) + ".");
  }
  void check_message(int peer, int tag, const char* operation) const {
    check_rank(peer, "peer", operation);
    if (tag != 0) {
      throw bad_input(std::string(operation) + " with tag " + std::to_string(tag) + ": NCCL's messages have no tags.",
                      "Use tag 0; messages of two ranks match in the order of their calls.");
    }
  }

  template <typename F>
  Work issue(const char* what, comm::Operation operation, CallOptions options, F&& call, std::function<void()> after = {}) {
    {
      const std::lock_guard lock(mutex_);
      if (!aborted_.empty()) throw Error(ErrorKind::kAborted, std::string(what) + ": the communicator was aborted: " + aborted_);
    }
    progress();
    comm::Fingerprint print;
    print.operation = operation;
    print.sequence = sequence_++;
    auto state = std::make_shared<NcclWork>(print, std::move(options), options_.timeout, std::string("NCCL's ") + what);
    const c10::cuda::CUDAGuard guard(device_);
    try {
      state->begin(call(), std::move(after));
    } catch (const c10::Error&) {
      throw nccl_error(std::string("NCCL's ") + what, std::current_exception());
    }
    const std::lock_guard lock(mutex_);
    flying_.push_back(state);
    return Work(state);
  }

  Work reduction(const char* what, comm::Operation operation, std::span<const ReducePart> parts, Reduction op, CallOptions options) {
    const c10d::ReduceOp reduce_op = to_reduce_op(op, what);
    const c10::cuda::CUDAGuard guard(device_);
    const bool scatter = operation == comm::Operation::kReduceScatter;
    ReductionTensors tensors(parts, options.accumulate, !scatter, scatter ? ranks() : 1, device_);
    return issue(what, operation, std::move(options), [&]() -> Handle {
      if (tensors.outs.empty()) return {};
      return scatter ? call_reduce_scatter(tensors, reduce_op) : call_all_reduce(tensors, reduce_op);
    }, tensors.after());
  }

  Handle call_reduce_scatter(ReductionTensors& tensors, const c10d::ReduceOp& op) {
    c10d::ReduceScatterOptions how;
    how.reduceOp = op;
    if (tensors.outs.size() == 1) return group_->_reduce_scatter_base(tensors.outs.front(), tensors.ins.front(), how);
    return group_->reduce_scatter_tensor_coalesced(tensors.outs, tensors.ins, how);
  }

  Handle call_all_reduce(ReductionTensors& tensors, const c10d::ReduceOp& op) {
    if (tensors.outs.size() == 1) {
      c10d::AllreduceOptions how;
      how.reduceOp = op;
      return group_->allreduce(tensors.outs, how);
    }
    c10d::AllreduceCoalescedOptions how;
    how.reduceOp = op;
    return group_->allreduce_coalesced(tensors.outs, how);
  }

  std::shared_ptr<Store> store_;
  c10::DeviceIndex device_;
  int rank_;
  int size_;
  CommunicatorOptions options_;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
  std::uint64_t sequence_ = 0;
  int splits_ = 0;
  std::mutex mutex_;
  std::vector<std::shared_ptr<NcclWork>> flying_;
  std::set<void*> allocated_;
  std::string aborted_;
  std::thread aborter_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::shared_ptr<Store> store, int device, int rank, int size, CommunicatorOptions options) {
  if (store == nullptr && size > 1) throw bad_input("NCCL: there is no store for " + std::to_string(size) + " ranks.", "Pass the store that the ranks meet in.");
  return std::make_unique<NcclCommunicator>(std::move(store), device, rank, size, std::move(options));
}

}  // namespace wirewise::cuda
