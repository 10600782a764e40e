// What a run tells at its end: predicted beside measured, for memory and for time by op kind.
#pragma once

#include <string>
#include <vector>

#include "wirewise/sim/simulate.h"
#include "wirewise/torch/memory.h"
#include "wirewise/torch/timeline.h"
#include "wirewise/train/prepare.h"

namespace wirewise {

/// Means over the steps of a run, the first left out (its caches are cold).
class TimeSums {
 public:
  void add(const Timeline& timeline, const Program& program);
  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }
  [[nodiscard]] Seconds step() const noexcept { return steps_ > 0 ? step_ / static_cast<double>(steps_) : 0; }
  [[nodiscard]] Seconds of(OpKind kind) const;

 private:
  std::int64_t seen_ = 0;
  std::int64_t steps_ = 0;
  Seconds step_ = 0;
  std::map<OpKind, Seconds> sums_;
};

/// The table that ends a run, several lines.
[[nodiscard]] std::string report_text(const Prepared& prepared, const memory::Usage& measured, const SimReport& predicted, const TimeSums& time);
/// The same as one JSON line with event "report".
[[nodiscard]] std::string report_json(const Prepared& prepared, const memory::Usage& measured, const SimReport& predicted, const TimeSums& time,
                                      const Link& network);
/// Of ranks on several hosts, a line: how many, and what joins them.
[[nodiscard]] std::string hosts_text(const Prepared& prepared, const Link& network);

}  // namespace wirewise
