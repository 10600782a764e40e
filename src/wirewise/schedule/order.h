// What happens before what. The execution rule gives two kinds of order: a lane's own, and `after`. As each lane is a chain, the
// last op of each lane that is surely done says all about an op's past: a clock of one entry a lane.
#pragma once

#include <array>
#include <vector>

#include "wirewise/schedule/schedule.h"

namespace wirewise {

inline constexpr std::size_t kLanes = 5;

/// For each lane the last op that is done before an op starts; -1: none.
using LaneClock = std::array<OpId, kLanes>;
inline constexpr LaneClock kNothingDone{-1, -1, -1, -1, -1};

[[nodiscard]] inline std::size_t lane_index(const Op& op) { return static_cast<std::size_t>(op.lane); }

/// Clocks of a program's ops, in program order. `after` may only name earlier ops.
class HappensBefore {
 public:
  /// Adds the next op.
  void add(const Op& op);
  /// True when op `first` is done before op `second` starts.
  [[nodiscard]] bool before(OpId first, OpId second) const {
    return clocks_[static_cast<std::size_t>(second)][lanes_[static_cast<std::size_t>(first)]] >= first;
  }
  /// What is done before an op that would come next in `lane`, were its `after` empty.
  [[nodiscard]] LaneClock clock_of_next(Lane lane) const;
  [[nodiscard]] std::size_t lane_of(OpId op) const { return lanes_[static_cast<std::size_t>(op)]; }
  /// Joins what is done when `op` is done into `clock`.
  void join(LaneClock& clock, OpId op) const;

 private:
  std::vector<LaneClock> clocks_;
  std::vector<std::size_t> lanes_;
  LaneClock last_in_lane_ = kNothingDone;
};

/// Writes every op's `after` anew, from what it reads, writes, adds to, allocates and frees: the fewest edges under which lanes
/// can't race.
/// - A read follows the writes before it; a write, add, allocation or free follows every use before it.
/// - An op outside the compute lane that allocates follows the compute op before it: otherwise it could run ahead, and the memory
/// walk,
///   which goes in program order, would be too low.
/// - The report ends the step: it follows the last op of every lane.
/// Builders and passes arrange ops and leave `after` to this.
void derive_after(Program& program);

}  // namespace wirewise
