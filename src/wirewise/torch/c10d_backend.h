// The wirewise backend of torch.distributed: c10d's collectives over a Communicator, one class for C++ and Python.
//
// Tensors are dense (sums also sparse), of any type: 8-bit floats are reduced in float32, complex numbers as pairs. They lie on the CPU or on
// CUDA devices; those travel through host memory, so ranks may share a device. Operations are issued in the order of the calls, whatever the
// device; all ranks must call alike. Contiguous
// tensors, and lists of tensors that lie back to back, are used where they are; others are copied. Sums follow the communicator's
// canonical order. What a call can't do is refused with an error that names it: nothing is accepted and silently not done.
#pragma once

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "wirewise/comm/communicator.h"
#include "wirewise/torch/c10d_devices.h"
#include "wirewise/torch/c10d_work.h"

// Later releases replace the supports… predicates by a set of capabilities.
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR <= 12
#define WIREWISE_OVERRIDE_PREDICATE override
#else
#define WIREWISE_OVERRIDE_PREDICATE
#endif

namespace wirewise {

class WirewiseBackend final : public c10d::Backend {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  /// Takes a communicator over. `timeout` bounds each operation that brings none of its own. `open` opens devices whose tensors come.
  WirewiseBackend(std::unique_ptr<Communicator> communicator, Milliseconds timeout = kBackendDefaultTimeout, OpenDevice open = open_cuda);
  ~WirewiseBackend() override;

  /// Joins the ranks of a c10d group, as torch.distributed asks a backend to: `store` is the group's own (already prefixed).
  static c10::intrusive_ptr<WirewiseBackend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                  Milliseconds timeout);

  const std::string getBackendName() const override { return "wirewise"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(Milliseconds timeout) override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  /// A sum of sparse COO tensors, whose numbers of elements may differ. Returns when it is done.
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr send(Tensors& tensors, int peer, int tag) override;
  WorkPtr recv(Tensors& tensors, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  /// With a device: also behind what that device's current stream holds.
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  /// Waits; rank 0 throws an error that names the first rank that didn't come in time, or all of them, and the group ends.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  /// Calls of this thread until endCoalescing() are one Work, which endCoalescing() returns.
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  bool supportsCoalescing() const WIREWISE_OVERRIDE_PREDICATE { return true; }

  /// Ranks count their calls from 0, so there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return sequence_.load(); }

  /// Fails pending and later operations on all ranks.
  void abort() override;
  /// Leaves the group: later calls are refused. Operations that are still in flight fail, here and on the other ranks.
  void shutdown() override;
  c10d::ErrorType getError() override { return health_->load(); }

  /// One dimension of `size` elements, on the CPU in memory that peers on this host map: collectives on it copy nothing twice. On a device it
  /// is memory like any other there.
  at::Tensor allocateTensor(long size, at::TensorOptions options = {}) override;
  bool supportsTensorAlloc(c10::DeviceIndex) WIREWISE_OVERRIDE_PREDICATE { return true; }

 private:
  struct Call;
  using Issue = std::function<wirewise::Work(Communicator&)>;
  /// For memory of `device`, once all earlier calls have been issued.
  [[nodiscard]] Communicator& communicator(c10::Device device = c10::kCPU) const;
  [[nodiscard]] CallOptions call_options(const Call& call) const;
  [[nodiscard]] bool is_own_slice(const at::Tensor& full, const at::Tensor& shard) const;
  void check_rank(std::int64_t rank, const char* what, const char* operation) const;
  WorkPtr run(Call call, const std::vector<Issue>& issues);
  WorkPtr gather_into(Call call, const Tensors& outputs, const Tensors& inputs);
  WorkPtr scatter_from(Call call, const Tensors& outputs, const Tensors& inputs, const c10d::ReduceOp& reduce_op);
  WorkPtr gather_uneven(Call call, const Tensors& outputs, const at::Tensor& input);
  WorkPtr reduce_scatter_uneven(Call call, const at::Tensor& output, const Tensors& inputs, const ReduceHow& how);
  WorkPtr receive(const char* title, c10d::OpType type, Tensors& tensors, int peer, int tag);
  [[nodiscard]] bool coalescing() const { return coalescing_thread_.load() == std::this_thread::get_id(); }
  void count_in(Milliseconds timeout, bool all);
  void wait_for_rank_0(Milliseconds timeout);

  std::shared_ptr<BackendDevices> devices_;  // null after shutdown()
  std::shared_ptr<BackendHealth> health_ = std::make_shared<BackendHealth>(c10d::ErrorType::SUCCESS);
  std::shared_ptr<CallbackThreads> callbacks_ = std::make_shared<CallbackThreads>();
  std::atomic<Milliseconds::rep> timeout_ms_;
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<std::thread::id> coalescing_thread_{};
  std::vector<c10::intrusive_ptr<WirewiseWork>> coalesced_;  // that thread's
};

}  // namespace wirewise
