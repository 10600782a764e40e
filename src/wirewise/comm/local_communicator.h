// The communicator of ranks on one host: checks what callers pass, and turns calls into operations of its group.
#pragma once

#include <memory>
#include <mutex>
#include <set>

#include "wirewise/comm/calls.h"
#include "wirewise/comm/communicator.h"
#include "wirewise/comm/group.h"
#include "wirewise/comm/group_shared_memory.h"
#include "wirewise/comm/move_operation.h"

namespace wirewise::comm {

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(Link link, CommunicatorOptions options);
  ~LocalCommunicator() override;

  [[nodiscard]] int rank() const noexcept override { return group_->rank(); }
  [[nodiscard]] int size() const noexcept override { return group_->size(); }

  Work all_reduce(std::span<const ReducePart> parts, Reduction op, CallOptions options) override;
  Work all_gather(std::span<const AllGatherPart> parts, CallOptions options) override;
  Work reduce_scatter(std::span<const ReducePart> parts, Reduction op, CallOptions options) override;
  Work broadcast(Buffer buffer, std::size_t count, int root, CallOptions options) override;
  Work reduce(ConstBuffer in, Buffer out, std::size_t count, int root, Reduction op, CallOptions options) override;
  Work gather(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options) override;
  Work scatter(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options) override;
  Work all_to_all(ConstBuffer in, std::span<const std::size_t> send_counts, Buffer out, std::span<const std::size_t> recv_counts,
                  CallOptions options) override;
  Work send(ConstBuffer in, std::size_t count, int peer, int tag, CallOptions options) override;
  Work recv(Buffer out, std::size_t count, int peer, int tag, CallOptions options) override;
  Work barrier(CallOptions options) override;

  void progress() override { group_->progress(); }
  [[nodiscard]] std::unique_ptr<Communicator> split(int colour, int key, CommunicatorOptions options) override;
  void abort(const std::string& reason) noexcept override { group_->abort(reason); }
  std::filesystem::path dump_flight(const std::filesystem::path& folder) override;
  [[nodiscard]] void* allocate_shared(std::size_t bytes) override;
  void free_shared(void* pointer) noexcept override;
  [[nodiscard]] bool one_host() const noexcept override { return true; }
  [[nodiscard]] void* allocate_group_shared(std::size_t bytes, int owner) override;

  [[nodiscard]] const std::shared_ptr<Group>& group() const noexcept { return group_; }

  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::reduce_scatter;

 private:
  Work issue_reduction(Operation operation, std::span<const ReducePart> parts, int root, Reduction op, CallOptions options);
  /// Runs the call at once if that goes, else issues what `make` makes (given whether peers read a copy of this rank's input).
  template <typename Make>
  Work run(QuickCall& call, CallOptions&& options, Make&& make);
  [[nodiscard]] Caller caller() const noexcept { return {rank(), size()}; }
  [[nodiscard]] std::shared_ptr<Collective> make_move(const CallNumbers& print, CallOptions options, MovePlan plan, bool copied);

  std::shared_ptr<Group> group_;
  GroupSharedMemory group_shared_;
  std::mutex mutex_;
  std::set<void*> allocated_;
};

}  // namespace wirewise::comm
