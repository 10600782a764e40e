#include "wirewise/sim/meetings.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace wirewise {

Meetings::Meetings(const Schedule& schedule) {
  const Mesh mesh(schedule.strategy, schedule.ranks);
  std::vector<int> program_of(static_cast<std::size_t>(schedule.ranks), -1);
  for (std::size_t p = 0; p < schedule.programs.size(); ++p) {
    for (int rank : schedule.programs[p].ranks) program_of.at(static_cast<std::size_t>(rank)) = static_cast<int>(p);
  }
  std::map<std::tuple<Mesh::Dim, std::set<int>, int>, std::size_t> known;
  for (std::size_t p = 0; p < schedule.programs.size(); ++p) {
    const auto& program = schedule.programs[p];
    std::map<Mesh::Dim, std::set<int>> roles;
    std::map<Mesh::Dim, int> count;
    auto& meeting = meeting_of_.emplace_back(program.ops.size(), kAlone);
    for (std::size_t id = 0; id < program.ops.size(); ++id) {
      const Op& op = program.ops[id];
      if (!is_collective(op.kind)) continue;
      auto& met = roles[op.group];
      if (met.empty()) {
        for (int rank : mesh.group_of(program.ranks.front(), op.group)) met.insert(program_of[static_cast<std::size_t>(rank)]);
      }
      if (met.size() == 1) continue;
      const auto [found, fresh] = known.try_emplace({op.group, met, count[op.group]++}, meetings_.size());
      if (fresh) meetings_.push_back({met.size(), 0, {}});
      meeting[id] = found->second;
    }
  }
}

bool Meetings::enter(std::size_t program, OpId op, Seconds& ready) {
  const auto which = meeting_of_[program][static_cast<std::size_t>(op)];
  if (which == kAlone) return true;
  auto& meeting = meetings_[which];
  if (meeting.arrived.insert(program).second) meeting.last = std::max(meeting.last, ready);
  if (meeting.arrived.size() < meeting.roles) return false;
  ready = meeting.last;
  return true;
}

}  // namespace wirewise
