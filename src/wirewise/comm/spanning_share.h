// How the ranks of one host take from each other what each of them holds: the last stage of most collectives across hosts.
#pragma once

#include <cstddef>
#include <vector>

#include "wirewise/comm/move_operation.h"

namespace wirewise::comm {

/// A stretch of one of the buffers that all ranks of the host have, and who has its bytes.
struct Stretch {
  std::size_t part = 0;  // which buffer
  std::size_t at = 0;
  std::size_t bytes = 0;
  int owner = 0;  // place of the rank that has it
};

/// A call on the host's group by which its ranks take stretches from their owners. `takes`: this rank wants them.
[[nodiscard]] MovePlan share_stretches(const std::vector<Span>& buffers, const std::vector<Stretch>& stretches, int place, int places,
                                       bool takes);

}  // namespace wirewise::comm
