#include "wirewise/comm/local_communicator.h"

#include <algorithm>
#include <array>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/base/units.h"
#include "wirewise/comm/calls.h"
#include "wirewise/comm/message_operation.h"
#include "wirewise/comm/move_operation.h"
#include "wirewise/comm/phase.h"
#include "wirewise/comm/reduce_operation.h"
#include "wirewise/comm/small_operation.h"

namespace wirewise::comm {
LocalCommunicator::LocalCommunicator(Link link, CommunicatorOptions options)
    : group_(std::make_shared<Group>(std::move(link), std::move(options))) {}

LocalCommunicator::~LocalCommunicator() {
  group_->close();
  for (void* const pointer : allocated_) group_->context().arena.free(pointer);
  for (const auto& [pointer, shared] : group_shared_) give_back(pointer, shared);
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

Work LocalCommunicator::all_gather(std::span<const AllGatherPart> parts, CallOptions options) {
  const auto ranks = static_cast<std::size_t>(size());
  const CallNumbers print = check_all_gather(caller(), parts, options);
  const auto make = [&](CallOptions&& how, bool copied) -> std::shared_ptr<Collective> {
    MovePlan plan;
    plan.outgoing.resize(1);
    plan.incoming.resize(ranks);
    for (const AllGatherPart& part : parts) {
      const std::size_t bytes = part.count * size_of(part.shard.dtype);
      plan.exposed.push_back({bytes_of(part.shard), bytes});
      for (std::size_t r = 0; r < ranks; ++r) plan.incoming[r].push_back({bytes_of(part.full) + r * bytes, bytes});
    }
    plan.outgoing[0] = plan.exposed;
    plan.fans = parts.size() == 1 && fans_out(print, plan.exposed[0].bytes, size());
    if (plan.fans) plan.filled = {bytes_of(parts[0].full), ranks * plan.exposed[0].bytes};
    plan.view = [own = plan.exposed](int, std::span<const std::byte* const> buffers, std::span<const std::uint64_t>) {
      std::vector<ConstSpan> spans;
      for (std::size_t i = 0; i < own.size(); ++i) spans.push_back({buffers[i], own[i].bytes});
      return spans;
    };
    return std::make_shared<MoveOperation>(group_, print, std::move(how), std::move(plan), copied);
  };
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
  return run(call, std::move(options), [&](CallOptions&& how, bool copied) -> std::shared_ptr<Collective> {
    MovePlan plan;
    plan.exposed = {{call.in, call.in_bytes}};
    plan.fans = fans_out(print, bytes, size());
    if (plan.fans && !is_root) plan.filled = {bytes_of(buffer), bytes};
    plan.outgoing = {plan.exposed};
    plan.incoming.resize(static_cast<std::size_t>(size()));
    if (!is_root) plan.incoming[static_cast<std::size_t>(root)] = {{bytes_of(buffer), bytes}};
    plan.view = [root, bytes](int source, std::span<const std::byte* const> buffers, std::span<const std::uint64_t>) {
      return std::vector<ConstSpan>{{buffers[0], source == root ? bytes : 0}};
    };
    return std::make_shared<MoveOperation>(group_, print, std::move(how), std::move(plan), copied);
  });
}

Work LocalCommunicator::gather(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options) {
  const CallNumbers print = check_gather(caller(), in, out, count, root, options);
  const auto ranks = static_cast<std::size_t>(size());
  const std::size_t bytes = count * size_of(in.dtype);
  MovePlan plan;
  plan.exposed = {{bytes_of(in), bytes}};
  plan.outgoing = {plan.exposed};
  plan.incoming.resize(ranks);
  if (root == rank()) {
    for (std::size_t r = 0; r < ranks; ++r) plan.incoming[r] = {{bytes_of(out) + r * bytes, bytes}};
  }
  plan.view = [bytes](int, std::span<const std::byte* const> buffers, std::span<const std::uint64_t>) {
    return std::vector<ConstSpan>{{buffers[0], bytes}};
  };
  return group_->issue(std::make_shared<MoveOperation>(group_, print, std::move(options), std::move(plan)));
}

Work LocalCommunicator::scatter(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options) {
  const CallNumbers print = check_scatter(caller(), in, out, count, root, options);
  const auto ranks = static_cast<std::size_t>(size());
  const std::size_t bytes = count * size_of(out.dtype);
  const bool is_root = root == rank();
  MovePlan plan;
  plan.shared = false;
  plan.exposed = {{is_root ? bytes_of(in) : nullptr, is_root ? ranks * bytes : 0}};
  plan.outgoing.resize(ranks);
  plan.incoming.resize(ranks);
  plan.incoming[static_cast<std::size_t>(root)] = {{bytes_of(out), bytes}};
  if (is_root) {
    for (std::size_t r = 0; r < ranks; ++r) plan.outgoing[r] = {{bytes_of(in) + r * bytes, bytes}};
  }
  plan.view = [at = static_cast<std::size_t>(rank()) * bytes, root, bytes](int source, std::span<const std::byte* const> buffers,
                                                                         std::span<const std::uint64_t>) {
    if (source != root || buffers[0] == nullptr) return std::vector<ConstSpan>{};
    return std::vector<ConstSpan>{{buffers[0] + at, bytes}};
  };
  return group_->issue(std::make_shared<MoveOperation>(group_, print, std::move(options), std::move(plan)));
}

Work LocalCommunicator::all_to_all(ConstBuffer in, std::span<const std::size_t> send_counts, Buffer out,
                                   std::span<const std::size_t> recv_counts, CallOptions options) {
  const CallNumbers print = check_all_to_all(caller(), in, send_counts, out, recv_counts, options);
  const std::size_t element = size_of(in.dtype);
  const std::size_t sent = std::accumulate(send_counts.begin(), send_counts.end(), std::size_t{0});
  const std::size_t received = std::accumulate(recv_counts.begin(), recv_counts.end(), std::size_t{0});
  const auto ranks = send_counts.size();
  const auto me = static_cast<std::size_t>(rank());
  QuickCall call;
  call.print = print;
  call.in = bytes_of(in);
  call.out = bytes_of(out);
  call.in_bytes = sent * element;
  call.out_bytes = received * element;
  call.send_counts = send_counts;
  call.recv_counts = recv_counts;
  return run(call, std::move(options), [&](CallOptions&& how, bool copied) -> std::shared_ptr<Collective> {
    MovePlan plan;
    plan.shared = false;
    plan.exposed = {{bytes_of(in), sent * element}};
    plan.counts.assign(send_counts.begin(), send_counts.end());
    std::size_t from = 0;
    std::size_t to = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      plan.outgoing.push_back({{bytes_of(in) + from, send_counts[r] * element}});
      plan.incoming.push_back({{bytes_of(out) + to, recv_counts[r] * element}});
      from += send_counts[r] * element;
      to += recv_counts[r] * element;
    }
    const std::vector<std::size_t> expected(recv_counts.begin(), recv_counts.end());
    plan.view = [group = group_.get(), me, element, expected](int source, std::span<const std::byte* const> buffers,
                                                              std::span<const std::uint64_t> counts) {
      const std::uint64_t given = counts[me];
      const std::size_t wanted = expected[static_cast<std::size_t>(source)];
      if (given != wanted) {
        throw Error(ErrorKind::kMismatch,
                    "ranks disagree: in all_to_all " + group->name_of_rank(source) + " sends " + std::to_string(given) + " elements to " +
                        group->name_of_rank(group->rank()) + ", which expects " + std::to_string(wanted) + ".",
                    "Make what each rank sends equal what its peer expects.");
      }
      const std::uint64_t before = std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(me), std::uint64_t{0});
      if (buffers[0] == nullptr) return std::vector<ConstSpan>{};
      return std::vector<ConstSpan>{{buffers[0] + before * element, wanted * element}};
    };
    return std::make_shared<MoveOperation>(group_, print, std::move(how), std::move(plan), copied);
  });
}

Work LocalCommunicator::barrier(CallOptions options) {
  const CallNumbers print = check_barrier(options);
  QuickCall call;
  call.print = print;
  return run(call, std::move(options), [&](CallOptions&& how, bool copied) -> std::shared_ptr<Collective> {
    MovePlan plan;
    plan.outgoing.resize(1);
    plan.incoming.resize(static_cast<std::size_t>(size()));
    plan.view = [](int, std::span<const std::byte* const>, std::span<const std::uint64_t>) { return std::vector<ConstSpan>{}; };
    return std::make_shared<MoveOperation>(group_, print, std::move(how), std::move(plan), copied);
  });
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
  const auto ranks = static_cast<std::size_t>(size());
  CallOptions call;
  call.label = "split into " + options.name;
  const auto gather_all = [&](const std::vector<std::int64_t>& own) {
    std::vector<std::int64_t> all(own.size() * ranks);
    Communicator::all_gather({own.data(), DType::kInt64}, {all.data(), DType::kInt64}, own.size(), call).wait();
    return all;
  };
  const std::vector<std::int64_t> choices = gather_all({colour, key});
  std::vector<int> members;
  for (int r = 0; r < size(); ++r) {
    if (colour >= 0 && choices[2 * static_cast<std::size_t>(r)] == colour) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return choices[2 * static_cast<std::size_t>(a) + 1] < choices[2 * static_cast<std::size_t>(b) + 1];
  });
  const Link& parent = group_->link();
  Arena& arena = parent.context->arena;
  void* memory = nullptr;
  std::int64_t place = 0;
  if (!members.empty() && members.front() == rank()) {
    const int count = static_cast<int>(members.size());
    memory = arena.allocate(Control::bytes(count));
    Control(static_cast<std::byte*>(memory), count).construct();
    place = static_cast<std::byte*>(memory) - arena.base();
  }
  std::vector<std::int64_t> places;
  try {
    places = gather_all({place});
  } catch (...) {
    arena.free(memory);
    throw;
  }
  if (colour < 0) return nullptr;

  Link link;
  link.size = static_cast<int>(members.size());
  link.context = parent.context;
  link.liveness = parent.liveness;
  link.mappings = parent.mappings;
  link.flight = parent.flight;
  link.own_core = parent.own_core;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto r = static_cast<std::size_t>(members[i]);
    if (members[i] == rank()) link.rank = static_cast<int>(i);
    link.bases.push_back(parent.bases[r]);
    link.identities.push_back(parent.identities[r]);
    link.identities.back().number = static_cast<int>(i);
    link.liveness_ranks.push_back(parent.liveness_ranks[r]);
    if (!parent.job_ranks.empty()) link.job_ranks.push_back(parent.job_ranks[r]);
  }
  link.control_owner = 0;
  link.control = static_cast<std::uint64_t>(places[static_cast<std::size_t>(members.front())]);
  return std::make_unique<LocalCommunicator>(std::move(link), std::move(options));
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
  std::optional<GroupShared> shared;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = group_shared_.find(pointer); found != group_shared_.end()) {
      shared = found->second;
      group_shared_.erase(found);
    } else if (allocated_.erase(pointer) == 0) {
      return;
    }
  }
  if (shared) return give_back(pointer, *shared);
  group_->context().arena.free(pointer);
}

void* LocalCommunicator::allocate_group_shared(std::size_t bytes, int owner) {
  check_rank(owner, size(), "owner", "allocate_group_shared");
  using Mark = std::atomic<std::uint32_t>;
  static_assert(Mark::is_always_lock_free);
  const std::size_t marks_at = round_up(bytes, alignof(Mark));
  const auto ranks = static_cast<std::size_t>(size());
  Arena& arena = group_->context().arena;
  void* memory = nullptr;
  std::optional<Error> failure;
  if (rank() == owner) {
    group_->context().collect();
    try {
      memory = arena.allocate(marks_at + ranks * sizeof(Mark));
      for (std::size_t r = 0; r < ranks; ++r) ::new (static_cast<std::byte*>(memory) + marks_at + r * sizeof(Mark)) Mark{0};
    } catch (const Error& error) {
      failure = error;
    }
  }
  const std::uint64_t place = memory == nullptr ? 0 : static_cast<std::uint64_t>(static_cast<std::byte*>(memory) - arena.base());
  const std::array<std::int64_t, 3> mine{static_cast<std::int64_t>(bytes), owner, static_cast<std::int64_t>(place)};
  std::vector<std::int64_t> all(mine.size() * ranks);
  CallOptions call;
  call.label = "allocate_group_shared";
  try {
    Communicator::all_gather({mine.data(), DType::kInt64}, {all.data(), DType::kInt64}, mine.size(), call).wait();
    for (std::size_t r = 1; r < ranks; ++r) {
      if (all[3 * r] == all[0] && all[3 * r + 1] == all[1]) continue;
      throw Error(ErrorKind::kMismatch,
                  "ranks disagree: in allocate_group_shared " + group_->name_of_rank(0) + " asks for " + std::to_string(all[0]) + " bytes of rank " +
                      std::to_string(all[1]) + ", " + group_->name_of_rank(static_cast<int>(r)) + " for " + std::to_string(all[3 * r]) +
                      " bytes of rank " + std::to_string(all[3 * r + 1]) + ".",
                  "Call it with equal arguments on all ranks.");
    }
    if (failure) throw *failure;
    if (all[3 * static_cast<std::size_t>(owner) + 2] == 0) {
      throw Error(ErrorKind::kFailed,
                  "shared memory: " + group_->name_of_rank(owner) + " has no room for " + format_bytes(bytes) + " that all ranks were to share.",
                  "Free memory, use smaller buffers, or shard further.");
    }
  } catch (...) {
    arena.free(memory);
    throw;
  }
  std::byte* const seen = group_->at(owner, static_cast<std::uint64_t>(all[3 * static_cast<std::size_t>(owner) + 2]));
  const std::lock_guard lock(mutex_);
  group_shared_.emplace(seen, GroupShared{reinterpret_cast<Mark*>(seen + marks_at), owner});
  return seen;
}

void LocalCommunicator::give_back(void* pointer, const GroupShared& shared) noexcept {
  shared.given_back[rank()].store(1, std::memory_order_release);
  if (shared.owner != rank()) return;
  const Link& link = group_->link();
  const auto unused = [marks = shared.given_back, size = link.size, liveness = link.liveness, numbers = link.liveness_ranks] {
    const std::vector<int> dead = liveness ? liveness->dead() : std::vector<int>{};
    for (int r = 0; r < size; ++r) {
      if (marks[r].load(std::memory_order_acquire) != 0) continue;
      if (std::find(dead.begin(), dead.end(), liveness ? numbers[static_cast<std::size_t>(r)] : -1) == dead.end()) return false;
    }
    return true;
  };
  try {
    group_->context().free_when(unused, {pointer});
  } catch (...) {
    // It stays until the process ends.
  }
}

}  // namespace wirewise::comm
