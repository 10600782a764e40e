// What an executed step measured: when each op ran, and for how long it kept this rank's core.
#pragma once

#include <map>
#include <vector>

#include "wirewise/schedule/schedule.h"

namespace wirewise {

struct TimedOp {
  Seconds start = 0;   // since the step began
  Seconds end = 0;
  Seconds busy = 0;    // time the rank spent on it, waiting for peers included; a collective's may lie after `end` of its issue
};

struct Timeline {
  std::vector<TimedOp> ops;   // by op id
  Seconds step = 0;

  [[nodiscard]] std::map<OpKind, Seconds> by_kind(const Program& program) const {
    std::map<OpKind, Seconds> sums;
    for (std::size_t i = 0; i < ops.size(); ++i) sums[program.ops[i].kind] += ops[i].busy;
    return sums;
  }
};

}  // namespace wirewise
