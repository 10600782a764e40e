// Passes: each rewrites a plain program into an equal one that hides or batches communication. Order of ops is all they decide;
// edges are derived anew afterwards, and the checker proves the result.
#pragma once

#include <vector>

#include "wirewise/schedule/schedule.h"

namespace wirewise {

/// Moves each gather of a unit's parameters `depth` units up in execution order, across the turn from forward to backward and
/// across micro-batches, so that it has so many units' time to finish. Never above the free of the group's previous use: where it
/// would have to stand right behind that free, both go, as the parameters are still there. Memory grows by the parameters of
/// `depth` units.
[[nodiscard]] Program prefetch(Program program, int depth);

/// Joins the reductions of consecutive units into one coalesced call, until their gradients reach `bytes`; the call stands where
/// the last of them stood, and the gradients are freed after it. A micro-batch's reductions never wait for the next one's. 0: a
/// call a unit.
[[nodiscard]] Program bucket(Program program, Bytes bytes);

/// Moves each free of unreduced gradients behind the next unit, so that their reduction has one unit's time to finish.
[[nodiscard]] Program overlap(Program program);

/// Lets all ranks of a host use one buffer for each gathered group (ZeRO-3): the ranks' shards are its parts, so a step writes into it and
/// nothing is gathered or freed. One barrier before the first step keeps a rank from writing what a peer still reads, one behind the
/// last keeps it from reading what a peer has yet to write.
[[nodiscard]] Program alias(Program program);

/// A unit's run of compute ops for one micro-batch in one direction: first and last op.
struct Visit {
  int unit = -1, micro_batch = -1;
  bool backward = false;
  std::size_t first = 0, last = 0;
};

/// The visits of a program in execution order.
[[nodiscard]] std::vector<Visit> visits_of(const Program& program);

/// Rebuilds a program's op list: `op` moves or disappears, everything else keeps its order. Ids in `after` are remapped by
/// deriving the edges anew.
class Reordering {
 public:
  explicit Reordering(Program program)
      : program_(std::move(program)), before_(program_.ops.size() + 1), keep_(program_.ops.size(), true) {}

  [[nodiscard]] Program& program() noexcept { return program_; }
  [[nodiscard]] Op& op(std::size_t index) { return program_.ops[index]; }
  void drop(std::size_t index) { keep_[index] = false; }
  /// Takes the op out and puts it directly before op `place` (the end, for the number of ops). Ops put before one place keep the
  /// order of the calls.
  void move_before(std::size_t index, std::size_t place) {
    before_[place].push_back(std::move(program_.ops[index]));
    keep_[index] = false;
  }
  [[nodiscard]] Program finish();

 private:
  Program program_;
  std::vector<std::vector<Op>> before_;
  std::vector<bool> keep_;
};

}  // namespace wirewise
