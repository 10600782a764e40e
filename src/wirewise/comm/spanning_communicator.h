// The communicator of ranks on several hosts: checks what callers pass, and turns calls into operations of its group.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "wirewise/comm/choice.h"
#include "wirewise/comm/collective.h"
#include "wirewise/comm/communicator.h"
#include "wirewise/comm/spanning_group.h"

namespace wirewise::comm {

class SpanningCommunicator final : public Communicator {
 public:
  /// `local`: the communicator of this host's ranks, its link marked as inner. `make_end` makes the wires of splits. `parent`: what the
  /// communicator that this one is split from goes by, for these hosts; without it the network is measured. Collective: waits up to
  /// `start_timeout` until all ranks have heard from each other. Throws Mismatch where ranks would choose
  /// differently, BadInput where WIREWISE_ALGO can't be done. `overseer`: of a split, asked until then.
  SpanningCommunicator(HostMap hosts, int rank, std::vector<RankIdentity> identities, std::unique_ptr<LocalCommunicator> local, Wires wires,
                       MakeWireEnd make_end, FlightTicket flight, CommunicatorOptions options,
                       std::chrono::milliseconds start_timeout, std::optional<ChoiceBasis> parent = std::nullopt,
                       const std::shared_ptr<Overseer>& overseer = nullptr);
  ~SpanningCommunicator() override;

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

  void progress() override;
  [[nodiscard]] std::unique_ptr<Communicator> split(int colour, int key, CommunicatorOptions options) override;
  void abort(const std::string& reason) noexcept override { group_->abort(reason); }
  std::filesystem::path dump_flight(const std::filesystem::path& folder) override;
  [[nodiscard]] void* allocate_shared(std::size_t bytes) override { return group_->local().allocate_shared(bytes); }
  void free_shared(void* pointer) noexcept override { group_->local().free_shared(pointer); }

  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::reduce_scatter;

 private:
  Work issue_reduction(Operation operation, std::span<const ReducePart> parts, int root, Reduction op, CallOptions options);
  Work issue_exchange(const Fingerprint& print, CallOptions options, std::vector<ConstSpan> to, std::vector<Span> from);
  /// Options of a message within this host, which the host's group runs: its errors speak of this communicator.
  [[nodiscard]] CallOptions local_options(const Fingerprint& print, CallOptions options) const;
  [[nodiscard]] bool is_here(int r) const noexcept { return group_->hosts().host_of(r) == group_->host(); }
  /// Every rank's text, by rank. Collective.
  [[nodiscard]] std::vector<std::string> gather_texts(const std::string& text);

  // spanning_split.cpp
  struct Part;
  /// The part of a split that spans hosts, from what it has on this one.
  [[nodiscard]] std::unique_ptr<Communicator> connect_part(Part part, std::unique_ptr<LocalCommunicator> local, WireEnd& end,
                                                           const std::vector<std::string>& cards);

  // spanning_agreement.cpp
  void agree(std::optional<ChoiceBasis> parent);
  void report(bool inherited) const;
  /// The algorithm of a call; logged once for each operation and size class.
  [[nodiscard]] Algorithm choose(const CollectiveShape& shape);

  std::shared_ptr<SpanningGroup> group_;
  MakeWireEnd make_end_;
  std::shared_ptr<const AlgorithmTable> table_;
  std::mutex told_mutex_;
  std::set<std::pair<Operation, int>> told_;
};

}  // namespace wirewise::comm
