// What each collective of a host's group moves, as a plan for MoveOperation: whose bytes, from where, to where.
#pragma once

#include <cstddef>
#include <span>

#include "wirewise/comm/calls.h"
#include "wirewise/comm/communicator.h"
#include "wirewise/comm/group.h"
#include "wirewise/comm/move_operation.h"

namespace wirewise::comm {

/// `bytes` are those of one rank's part.
[[nodiscard]] MovePlan plan_all_gather(int ranks, const CallNumbers& print, std::span<const AllGatherPart> parts);
[[nodiscard]] MovePlan plan_broadcast(const Caller& caller, const CallNumbers& print, std::byte* buffer, std::size_t bytes, int root);
[[nodiscard]] MovePlan plan_gather(const Caller& caller, const std::byte* in, std::byte* out, std::size_t bytes, int root);
[[nodiscard]] MovePlan plan_scatter(const Caller& caller, const std::byte* in, std::byte* out, std::size_t bytes, int root);
/// `group` lives as long as the plan: it names the ranks whose counts differ. Counts are of elements of `element` bytes.
[[nodiscard]] MovePlan plan_all_to_all(const Group& group, const std::byte* in, std::span<const std::size_t> send_counts, std::byte* out,
                                       std::span<const std::size_t> recv_counts, std::size_t element);
[[nodiscard]] MovePlan plan_barrier(int ranks);

}  // namespace wirewise::comm
