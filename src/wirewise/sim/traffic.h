// How many bytes a collective moves, and where: in the memory of each host, and over the link of each host to the others. Hosts do it
// hierarchically, as comm/ does: each byte crosses a link once each way at most, and sums of 16-bit numbers cross it in float32.
#pragma once

#include <span>
#include <vector>

#include "wirewise/schedule/schedule.h"

namespace wirewise {

struct Traffic {
  double inside = 0;   // bytes that a rank's link to its host's memory carries, one way
  double between = 0;  // bytes that a host's link to the network carries, one way
  int hosts = 1;
};

/// Of `op`, a collective of `program`, entered by ranks on these hosts (one entry a rank). Uneven hosts: of the one that has most to do.
[[nodiscard]] Traffic traffic_of(const Program& program, const Op& op, std::span<const int> host_of_ranks);

/// Bytes that each host sends to others in one step of the schedule, by the host that sends most; rank r is on host_of[r].
[[nodiscard]] double sent_between_hosts(const Schedule& schedule, const std::vector<int>& host_of);

}  // namespace wirewise
