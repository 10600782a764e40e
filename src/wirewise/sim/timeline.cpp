#include "wirewise/sim/timeline.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "wirewise/base/error.h"
#include "wirewise/sim/costs.h"

namespace wirewise {
namespace {

constexpr std::size_t kLanes = static_cast<std::size_t>(Lane::kCopy) + 1;
using Chain = std::vector<OpId>;  // ops that run one after another

const Op& op_of(const Program& program, OpId id) { return program.ops.at(static_cast<std::size_t>(id)); }

std::vector<Chain> chain_a_lane(const Program& program) {
  std::vector<Chain> chains(kLanes);
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) {
    chains[static_cast<std::size_t>(op_of(program, id).lane)].push_back(id);
  }
  return chains;
}

/// The order in which one core does a program's work: collectives that were issued move to where an op first needs them.
class CoreOrder {
 public:
  explicit CoreOrder(const Program& program) : program_(program), pending_(program.ops.size(), false) {
    for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) place(id);
    // What nobody waited for is waited for at the end, in the order of issue.
    for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) complete(id);
  }
  [[nodiscard]] Chain take() { return std::move(order_); }

 private:
  void place(OpId id) {
    const Op& op = op_of(program_, id);
    for (OpId earlier : op.after) complete(earlier);
    auto& issued = issued_[static_cast<std::size_t>(op.lane)];
    if (is_collective(op.kind) && op.lane != Lane::kCompute) {
      issued.push_back(id);
      pending_[static_cast<std::size_t>(id)] = true;
      return;
    }
    if (!issued.empty()) complete(issued.back());  // its lane's order holds for what isn't a collective too
    order_.push_back(id);
  }

  /// Lanes are first in, first out: all that was issued in the lane before `id` completes before it.
  void complete(OpId id) {
    if (!pending_.at(static_cast<std::size_t>(id))) return;
    auto& issued = issued_[static_cast<std::size_t>(op_of(program_, id).lane)];
    const auto last = std::find(issued.begin(), issued.end(), id);
    for (auto it = issued.begin(); it != last + 1; ++it) {
      pending_[static_cast<std::size_t>(*it)] = false;
      order_.push_back(*it);
    }
    issued.erase(issued.begin(), last + 1);
  }

  const Program& program_;
  std::vector<bool> pending_;
  std::array<std::vector<OpId>, kLanes> issued_;  // not yet complete, in order
  Chain order_;
};

/// Which collectives of different programs are one: the k-th of each program over the same dimension and roles.
class Meetings {
 public:
  explicit Meetings(const Schedule& schedule) {
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

  /// True when the op may start: all have come. `ready` becomes the time at which the last of them was.
  bool enter(std::size_t program, OpId op, Seconds& ready) {
    const auto which = meeting_of_[program][static_cast<std::size_t>(op)];
    if (which == kAlone) return true;
    auto& meeting = meetings_[which];
    if (meeting.arrived.insert(program).second) meeting.last = std::max(meeting.last, ready);
    if (meeting.arrived.size() < meeting.roles) return false;
    ready = meeting.last;
    return true;
  }

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

class Run {
 public:
  Run(const Schedule& schedule, bool lanes_share_core, const std::function<Seconds(const Program&, const Op&)>& cost)
      : schedule_(schedule), cost_(cost), meetings_(schedule) {
    for (const auto& program : schedule.programs) {
      check_dependencies(program);
      chains_.push_back(lanes_share_core ? std::vector<Chain>{CoreOrder(program).take()} : chain_a_lane(program));
      next_.emplace_back(chains_.back().size(), 0);
      free_.emplace_back(chains_.back().size(), 0.0);
      spans_.emplace_back(program.ops.size());
      done_.emplace_back(program.ops.size(), false);
    }
    while (advance_all()) {
    }
    check_finished();
  }
  [[nodiscard]] std::vector<std::vector<Span>> take() { return std::move(spans_); }

 private:
  static void check_dependencies(const Program& program) {
    for (const auto& op : program.ops) {
      for (OpId earlier : op.after) {
        if (earlier >= 0 && earlier < static_cast<OpId>(program.ops.size())) continue;
        throw Error(ErrorKind::kFailed, "an op of role " + program.role + " follows op " + std::to_string(earlier) +
                                            ", which its program doesn't have.");
      }
    }
  }

  /// Names the op that holds the others up: one whose group never comes, else (a cycle) the first that waits.
  void check_finished() const {
    std::string waiting;
    for (std::size_t p = 0; p < chains_.size(); ++p) {
      for (std::size_t c = 0; c < chains_[p].size(); ++c) {
        if (next_[p][c] == chains_[p][c].size()) continue;
        const OpId id = chains_[p][c][next_[p][c]];
        const Op& op = op_of(schedule_.programs[p], id);
        const bool held_up = std::any_of(op.after.begin(), op.after.end(), [&](OpId earlier) { return !done(p, earlier); });
        const std::string named = "op " + std::to_string(id) + " (" + std::string(name_of(op.kind)) + ") of role " +
                                  schedule_.programs[p].role + " can never start: ";
        if (!held_up) throw Error(ErrorKind::kFailed, named + "not all of its group come to it.", "Check the schedule.");
        if (waiting.empty()) waiting = named + "what it follows waits for it.";
      }
    }
    if (!waiting.empty()) throw Error(ErrorKind::kFailed, waiting, "Check the schedule.");
  }

  [[nodiscard]] bool done(std::size_t p, OpId id) const { return done_[p][static_cast<std::size_t>(id)]; }

  bool advance_all() {
    bool moved = false;
    for (std::size_t p = 0; p < chains_.size(); ++p) {
      for (std::size_t c = 0; c < chains_[p].size(); ++c) {
        while (next_[p][c] < chains_[p][c].size() && advance(p, c)) moved = true;
      }
    }
    return moved;
  }

  /// Runs the next op of a chain, if it can start.
  bool advance(std::size_t p, std::size_t c) {
    const auto& program = schedule_.programs[p];
    const OpId id = chains_[p][c][next_[p][c]];
    const Op& op = op_of(program, id);
    Seconds ready = free_[p][c];
    for (OpId earlier : op.after) {
      if (!done(p, earlier)) return false;
      ready = std::max(ready, spans_[p][static_cast<std::size_t>(earlier)].end);
    }
    if (!meetings_.enter(p, id, ready)) return false;
    const Seconds end = ready + cost_(program, op);
    spans_[p][static_cast<std::size_t>(id)] = {ready, end};
    done_[p][static_cast<std::size_t>(id)] = true;
    free_[p][c] = end;
    ++next_[p][c];
    return true;
  }

  const Schedule& schedule_;
  const std::function<Seconds(const Program&, const Op&)>& cost_;
  Meetings meetings_;
  std::vector<std::vector<Chain>> chains_;      // program, chain
  std::vector<std::vector<std::size_t>> next_;  // program, chain: its first op that hasn't run
  std::vector<std::vector<Seconds>> free_;      // program, chain: when its last op ended
  std::vector<std::vector<Span>> spans_;
  std::vector<std::vector<bool>> done_;
};

}  // namespace

std::vector<std::vector<Span>> run_lanes(const Schedule& schedule, bool lanes_share_core,
                                         const std::function<Seconds(const Program&, const Op&)>& cost) {
  return Run(schedule, lanes_share_core, cost).take();
}

}  // namespace wirewise
