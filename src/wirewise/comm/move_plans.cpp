#include "wirewise/comm/move_plans.h"

#include <numeric>
#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/comm/fan.h"

namespace wirewise::comm {
namespace {

using Buffers = std::span<const std::byte* const>;
using Counts = std::span<const std::uint64_t>;

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

MovePlan plan_all_gather(int ranks, const CallNumbers& print, std::span<const AllGatherPart> parts) {
  MovePlan plan;
  plan.outgoing.resize(1);
  plan.incoming.resize(index(ranks));
  for (const AllGatherPart& part : parts) {
    const std::size_t bytes = part.count * size_of(part.shard.dtype);
    plan.exposed.push_back({bytes_of(part.shard), bytes});
    for (std::size_t r = 0; r < plan.incoming.size(); ++r) plan.incoming[r].push_back({bytes_of(part.full) + r * bytes, bytes});
  }
  plan.outgoing[0] = plan.exposed;
  plan.fans = parts.size() == 1 && fans_out(print, plan.exposed[0].bytes, ranks);
  if (plan.fans) plan.filled = {bytes_of(parts[0].full), plan.incoming.size() * plan.exposed[0].bytes};
  plan.view = [own = plan.exposed](int, Buffers buffers, Counts) {
    std::vector<ConstSpan> spans;
    for (std::size_t i = 0; i < own.size(); ++i) spans.push_back({buffers[i], own[i].bytes});
    return spans;
  };
  return plan;
}

MovePlan plan_broadcast(const Caller& caller, const CallNumbers& print, std::byte* buffer, std::size_t bytes, int root) {
  const bool is_root = root == caller.rank;
  MovePlan plan;
  plan.exposed = {{is_root ? buffer : nullptr, is_root ? bytes : 0}};
  plan.fans = fans_out(print, bytes, caller.size);
  if (plan.fans && !is_root) plan.filled = {buffer, bytes};
  plan.outgoing = {plan.exposed};
  plan.incoming.resize(index(caller.size));
  if (!is_root) plan.incoming[index(root)] = {{buffer, bytes}};
  plan.view = [root, bytes](int source, Buffers buffers, Counts) {
    return std::vector<ConstSpan>{{buffers[0], source == root ? bytes : 0}};
  };
  return plan;
}

MovePlan plan_gather(const Caller& caller, const std::byte* in, std::byte* out, std::size_t bytes, int root) {
  MovePlan plan;
  plan.exposed = {{in, bytes}};
  plan.outgoing = {plan.exposed};
  plan.incoming.resize(index(caller.size));
  for (std::size_t r = 0; r < plan.incoming.size() && root == caller.rank; ++r) plan.incoming[r] = {{out + r * bytes, bytes}};
  plan.view = [bytes](int, Buffers buffers, Counts) { return std::vector<ConstSpan>{{buffers[0], bytes}}; };
  return plan;
}

MovePlan plan_scatter(const Caller& caller, const std::byte* in, std::byte* out, std::size_t bytes, int root) {
  const std::size_t ranks = index(caller.size);
  const bool is_root = root == caller.rank;
  MovePlan plan;
  plan.shared = false;
  plan.exposed = {{is_root ? in : nullptr, is_root ? ranks * bytes : 0}};
  plan.outgoing.resize(ranks);
  plan.incoming.resize(ranks);
  plan.incoming[index(root)] = {{out, bytes}};
  for (std::size_t r = 0; r < ranks && is_root; ++r) plan.outgoing[r] = {{in + r * bytes, bytes}};
  plan.view = [at = index(caller.rank) * bytes, root, bytes](int source, Buffers buffers, Counts) {
    if (source != root || buffers[0] == nullptr) return std::vector<ConstSpan>{};
    return std::vector<ConstSpan>{{buffers[0] + at, bytes}};
  };
  return plan;
}

MovePlan plan_all_to_all(const Group& group, const std::byte* in, std::span<const std::size_t> send_counts, std::byte* out,
                         std::span<const std::size_t> recv_counts, std::size_t element) {
  MovePlan plan;
  plan.shared = false;
  plan.counts.assign(send_counts.begin(), send_counts.end());
  std::size_t from = 0;
  std::size_t to = 0;
  for (std::size_t r = 0; r < send_counts.size(); ++r) {
    plan.outgoing.push_back({{in + from, send_counts[r] * element}});
    plan.incoming.push_back({{out + to, recv_counts[r] * element}});
    from += send_counts[r] * element;
    to += recv_counts[r] * element;
  }
  plan.exposed = {{in, from}};
  const std::vector<std::size_t> expected(recv_counts.begin(), recv_counts.end());
  plan.view = [&group, me = index(group.rank()), element, expected](int source, Buffers buffers, Counts counts) {
    const std::uint64_t given = counts[me];
    const std::size_t wanted = expected[index(source)];
    if (given != wanted) {
      throw Error(ErrorKind::kMismatch,
                  "ranks disagree: in all_to_all " + group.name_of_rank(source) + " sends " + std::to_string(given) + " elements to " +
                      group.name_of_rank(group.rank()) + ", which expects " + std::to_string(wanted) + ".",
                  "Make what each rank sends equal what its peer expects.");
    }
    const std::uint64_t before = std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(me), std::uint64_t{0});
    if (buffers[0] == nullptr) return std::vector<ConstSpan>{};
    return std::vector<ConstSpan>{{buffers[0] + before * element, wanted * element}};
  };
  return plan;
}

MovePlan plan_barrier(int ranks) {
  MovePlan plan;
  plan.outgoing.resize(1);
  plan.incoming.resize(index(ranks));
  plan.view = [](int, Buffers, Counts) { return std::vector<ConstSpan>{}; };
  return plan;
}

}  // namespace wirewise::comm
