// Collectives among ranks of different roles: one op of each role's program, which start together.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

#include "wirewise/schedule/schedule.h"

namespace wirewise {

/// Matches the k-th collective of each program over the same mesh dimension and roles, and keeps who has come to it.
class Meetings {
 public:
  explicit Meetings(const Schedule& schedule);

  /// `program` is at `op`, `ready` since then. True when the op may start because all have come; `ready` becomes the time at
  /// which the last of them was.
  bool enter(std::size_t program, OpId op, Seconds& ready);

 private:
  static constexpr auto kAlone = static_cast<std::size_t>(-1);
  struct Meeting {
    std::size_t roles;
    Seconds last;
    std::set<std::size_t> arrived;
  };
  std::vector<std::vector<std::size_t>> meeting_of_;  // program, op
  std::vector<Meeting> meetings_;
};

}  // namespace wirewise
