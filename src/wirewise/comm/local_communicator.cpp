#include "wirewise/comm/local_communicator.h"

#include <numeric>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/comm/calls.h"
#include "wirewise/comm/message_operation.h"
#include "wirewise/comm/move_plans.h"
#include "wirewise/comm/phase.h"
#include "wirewise/comm/reduce_operation.h"
#include "wirewise/comm/small_operation.h"
#include "wirewise/comm/split.h"

namespace wirewise::comm {
namespace {

/// The link of a part of `parent`: its `members`, whose first holds the control memory at `control`.
Link link_of_part(const Link& parent, const std::vector<int>& members, std::uint64_t control) {
  Link link;
  link.size = static_cast<int>(members.size());
  link.context = parent.context;
  link.liveness = parent.liveness;
  link.mappings = parent.mappings;
  link.flight = parent.flight;
  link.own_core = parent.own_core;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto r = static_cast<std::size_t>(members[i]);
    if (members[i] == parent.rank) link.rank = static_cast<int>(i);
    link.bases.push_back(parent.bases[r]);
    link.identities.push_back(parent.identities[r]);
    link.identities.back().number = static_cast<int>(i);
    link.liveness_ranks.push_back(parent.liveness_ranks[r]);
    if (!parent.job_ranks.empty()) link.job_ranks.push_back(parent.job_ranks[r]);
  }
  link.control_owner = 0;
  link.control = control;
  return link;
}

}  // namespace

LocalCommunicator::LocalCommunicator(Link link, CommunicatorOptions options)
    : group_(std::make_shared<Group>(std::move(link), std::move(options))), group_shared_(group_) {}

LocalCommunicator::~LocalCommunicator() {
  group_->close();
  for (void* const pointer : allocated_) group_->context().arena.free(pointer);
}

template <typename Make>
Work LocalCommunicator::run(QuickCall& call, CallOptions&& options, Make&& make) {
  call.label = options.label;
  const Attempt attempt = group_->attempt(call);
  if (attempt == Attempt::kComplete) return Work::completed(call.print.sequence);
  if (attempt == Attempt::kUntouched) return group_->issue(make(std::move(options), false));
  try {
    std::shared_ptr<Collective> operation;
    if (attempt == Attempt::kMoved) {
      operation = std::make_shared<TrailingCall>(group_, call.print, std::move(options));
    } else {
      operation = make(std::move(options), call.copied);
    }
    operation->continue_from(call.print.sequence);
    phase("taking over");
    return group_->issue_announced(std::move(operation));
  } catch (const std::exception& error) {
    // Peers count on the announced call.
    group_->abort(error.what());
    throw;
  }
}

Work LocalCommunicator::issue_reduction(Operation operation, std::span<const ReducePart> parts, int root, Reduction op,
                                        CallOptions options) {
  const auto make = [&](const CallNumbers& print, CallOptions&& how, std::vector<ReducePlanPart> plan) -> std::shared_ptr<Collective> {
    if (is_small_reduction(operation, input_bytes(operation, plan, size()), size())) {
      return std::make_shared<SmallReduction>(group_, print, std::move(how), std::move(plan));
    }
    return std::make_shared<ReduceOperation>(group_, print, std::move(how), std::move(plan));
  };
  if (parts.size() != 1 || operation == Operation::kReduce) {
    ReductionCall call = check_reduction(caller(), operation, parts, root, op, options);
    return group_->issue(make(call.print, std::move(options), std::move(call.parts)));
  }
  QuickCall call;
  call.print = reduction_numbers(operation, 1, root, op, options);
  const ReducePlanPart part = check_reduce_part(caller(), call.print, parts.front());
  call.in = part.in;
  call.out = part.out;
  call.count = part.count;
  call.block = part.count * size_of(part.kind.in);
  call.in_bytes = (operation == Operation::kReduceScatter ? static_cast<std::size_t>(size()) : 1) * call.block;
  call.out_bytes = part.count * size_of(part.kind.out);
  call.kind = part.kind;
  return run(call, std::move(options), [&](CallOptions&& how, bool) { return make(call.print, std::move(how), {part}); });
}

Work LocalCommunicator::all_reduce(std::span<const ReducePart> parts, Reduction op, CallOptions options) {
  return issue_reduction(Operation::kAllReduce, parts, -1, op, std::move(options));
}

Work LocalCommunicator::reduce_scatter(std::span<const ReducePart> parts, Reduction op, CallOptions options) {
  return issue_reduction(Operation::kReduceScatter, parts, -1, op, std::move(options));
}

Work LocalCommunicator::reduce(ConstBuffer in, Buffer out, std::size_t count, int root, Reduction op, CallOptions options) {
  const ReducePart part{in, out, count};
  return issue_reduction(Operation::kReduce, std::span(&part, 1), root, op, std::move(options));
}

std::shared_ptr<Collective> LocalCommunicator::make_move(const CallNumbers& print, CallOptions options, MovePlan plan, bool copied) {
  return std::make_shared<MoveOperation>(group_, print, std::move(options), std::move(plan), copied);
}

Work LocalCommunicator::all_gather(std::span<const AllGatherPart> parts, CallOptions options) {
  const auto ranks = static_cast<std::size_t>(size());
  const CallNumbers print = check_all_gather(caller(), parts, options);
  const auto make = [&](CallOptions&& how, bool copied) { return make_move(print, std::move(how), plan_all_gather(size(), print, parts), copied); };
  if (parts.size() != 1) return group_->issue(make(std::move(options), false));
  QuickCall call;
  call.print = print;
  call.in = bytes_of(parts[0].shard);
  call.out = bytes_of(parts[0].full);
  call.block = call.in_bytes = parts[0].count * size_of(parts[0].shard.dtype);
  call.out_bytes = ranks * call.block;
  return run(call, std::move(options), make);
}

Work LocalCommunicator::broadcast(Buffer buffer, std::size_t count, int root, CallOptions options) {
  const CallNumbers print = check_broadcast(caller(), buffer, count, root, options);
  const std::size_t bytes = count * size_of(buffer.dtype);
  const bool is_root = root == rank();
  QuickCall call;
  call.print = print;
  call.in = is_root ? bytes_of(buffer) : nullptr;
  call.in_bytes = is_root ? bytes : 0;
  call.out = bytes_of(buffer);
  call.out_bytes = is_root ? 0 : bytes;
  return run(call, std::move(options), [&](CallOptions&& how, bool copied) {
    return make_move(print, std::move(how), plan_broadcast(caller(), print, bytes_of(buffer), bytes, root), copied);
  });
}

Work LocalCommunicator::gather(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options) {
  const CallNumbers print = check_gather(caller(), in, out, count, root, options);
  return group_->issue(make_move(print, std::move(options), plan_gather(caller(), bytes_of(in), bytes_of(out), count * size_of(in.dtype), root), false));
}

Work LocalCommunicator::scatter(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options) {
  const CallNumbers print = check_scatter(caller(), in, out, count, root, options);
  return group_->issue(make_move(print, std::move(options), plan_scatter(caller(), bytes_of(in), bytes_of(out), count * size_of(out.dtype), root), false));
}

Work LocalCommunicator::all_to_all(ConstBuffer in, std::span<const std::size_t> send_counts, Buffer out,
                                   std::span<const std::size_t> recv_counts, CallOptions options) {
  const CallNumbers print = check_all_to_all(caller(), in, send_counts, out, recv_counts, options);
  const std::size_t element = size_of(in.dtype);
  QuickCall call;
  call.print = print;
  call.in = bytes_of(in);
  call.out = bytes_of(out);
  call.in_bytes = element * std::accumulate(send_counts.begin(), send_counts.end(), std::size_t{0});
  call.out_bytes = element * std::accumulate(recv_counts.begin(), recv_counts.end(), std::size_t{0});
  call.send_counts = send_counts;
  call.recv_counts = recv_counts;
  return run(call, std::move(options), [&](CallOptions&& how, bool copied) {
    return make_move(print, std::move(how), plan_all_to_all(*group_, call.in, send_counts, call.out, recv_counts, element), copied);
  });
}

Work LocalCommunicator::barrier(CallOptions options) {
  const CallNumbers print = check_barrier(options);
  QuickCall call;
  call.print = print;
  return run(call, std::move(options), [&](CallOptions&& how, bool copied) { return make_move(print, std::move(how), plan_barrier(size()), copied); });
}

Work LocalCommunicator::send(ConstBuffer in, std::size_t count, int peer, int tag, CallOptions options) {
  const CallNumbers print = check_message(caller(), Operation::kSend, in, count, peer, tag, options);
  return group_->issue(std::make_shared<SendOperation>(group_, print, std::move(options), in.data));
}

Work LocalCommunicator::recv(Buffer out, std::size_t count, int peer, int tag, CallOptions options) {
  const CallNumbers print = check_message(caller(), Operation::kRecv, out, count, peer, tag, options);
  return group_->issue(std::make_shared<RecvOperation>(group_, print, std::move(options), out.data));
}

std::unique_ptr<Communicator> LocalCommunicator::split(int colour, int key, CommunicatorOptions options) {
  CallOptions call;
  call.label = "split into " + options.name;
  const std::vector<int> members = choose_part(*this, colour, key, call);
  Arena& arena = group_->context().arena;
  void* memory = nullptr;
  std::int64_t place = 0;
  if (!members.empty() && members.front() == rank()) {
    const int count = static_cast<int>(members.size());
    memory = arena.allocate(Control::bytes(count));
    Control(static_cast<std::byte*>(memory), count).construct();
    place = static_cast<std::byte*>(memory) - arena.base();
  }
  std::vector<std::int64_t> places(static_cast<std::size_t>(size()));
  try {
    Communicator::all_gather({&place, DType::kInt64}, {places.data(), DType::kInt64}, 1, call).wait();
  } catch (...) {
    arena.free(memory);
    throw;
  }
  if (colour < 0) return nullptr;
  const auto control = static_cast<std::uint64_t>(places[static_cast<std::size_t>(members.front())]);
  return std::make_unique<LocalCommunicator>(link_of_part(group_->link(), members, control), std::move(options));
}

std::filesystem::path LocalCommunicator::dump_flight(const std::filesystem::path& folder) {
  if (!group_->link().flight) return Communicator::dump_flight(folder);
  return group_->link().flight->dump(folder);
}

void* LocalCommunicator::allocate_shared(std::size_t bytes) {
  group_->context().collect();
  void* const pointer = group_->context().arena.allocate(bytes);
  const std::lock_guard lock(mutex_);
  allocated_.insert(pointer);
  return pointer;
}

void LocalCommunicator::free_shared(void* pointer) noexcept {
  if (group_shared_.give_back(pointer)) return;
  {
    const std::lock_guard lock(mutex_);
    if (allocated_.erase(pointer) == 0) return;
  }
  group_->context().arena.free(pointer);
}

void* LocalCommunicator::allocate_group_shared(std::size_t bytes, int owner) { return group_shared_.allocate(*this, bytes, owner); }

}  // namespace wirewise::comm
