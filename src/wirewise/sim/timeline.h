// When each op runs: lanes, dependencies, and collectives that wait for all roles in their group.
#pragma once

#include <functional>
#include <vector>

#include "wirewise/sim/simulate.h"

namespace wirewise {

struct Span {
  Seconds start = 0, end = 0;
};

/// Start and end of every op of every program, by the execution rule of schedule.h; `cost` gives an op's seconds.
/// Throws kFailed, naming the op, when some op can never start.
[[nodiscard]] std::vector<std::vector<Span>> run_lanes(const Schedule& schedule, bool lanes_share_core,
                                                       const std::function<Seconds(const Program&, const Op&)>& cost);

}  // namespace wirewise
