#include "wirewise/sim/timeline.h"

#include <algorithm>
#include <string>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/sim/chains.h"
#include "wirewise/sim/meetings.h"

namespace wirewise {
namespace {

const Op& op_of(const Program& program, OpId id) { return program.ops.at(static_cast<std::size_t>(id)); }

class Run {
 public:
  Run(const Schedule& schedule, bool lanes_share_core, const std::function<Seconds(const Program&, const Op&)>& cost)
      : schedule_(schedule), cost_(cost), meetings_(schedule) {
    for (const auto& program : schedule.programs) {
      check_dependencies(program);
      chains_.push_back(lanes_share_core ? std::vector<Chain>{core_order(program)} : chain_a_lane(program));
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
