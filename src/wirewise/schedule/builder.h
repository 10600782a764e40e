// Writes the plain program of a data-parallel rank op by op. Plain: each gather stands before its use, each reduction behind the
// last backward that feeds it, each free at once. Passes do the rest.
#pragma once

#include <vector>

#include "wirewise/schedule/layout.h"
#include "wirewise/schedule/schedule.h"

namespace wirewise {

/// The plain training step.
[[nodiscard]] Program plain_train_program(const Model& model, const Strategy& strategy, const TrainOptions& options);
/// The plain forward pass.
[[nodiscard]] Program plain_forward_program(const Model& model, const Strategy& strategy);

/// A unit's turn for one micro-batch in one direction.
struct Turn {
  int unit = 0, micro_batch = 0;
  bool backward = false;
};

/// What both builders share: state of gathered groups and live gradients, and the ops of a unit's turn.
class Builder {
 public:
  Builder(const Model& model, const Strategy& strategy, const TrainOptions& options, Scope scope);

  /// Gathers, computes, frees and reduces through all turns.
  void run(const std::vector<Turn>& turns);
  void token_count();
  void clip();
  /// The optimizer's step of every group, each with the gather of its result where ranks stepped slices of it.
  void steps();
  void report();
  [[nodiscard]] Program finish();

 private:
  Op& push(OpKind kind, Lane lane);
  /// Groups whose parameters a turn's compute reads, ascending.
  [[nodiscard]] std::vector<int> needs(const Turn& turn) const;
  [[nodiscard]] bool recomputed(int unit) const;
  /// Ops of a unit's turn.
  void forward(const Turn& turn);
  void backward(const Turn& turn);
  void recompute(const Turn& turn);
  void forward_segment(std::size_t s, const Turn& turn);
  void backward_segment(std::size_t s, const Turn& turn);
  void read_weights(Op& op, const SegmentShape& segment) const;
  void write_gradients(Op& op, const SegmentShape& segment, const Turn& turn);
  /// ZeRO-3: gather what the turn needs, free what no later turn of `turns` keeps.
  void gather(const Turn& turn);
  void release(const std::vector<Turn>& turns, std::size_t done);
  /// Reduces the groups whose last backward this turn was.
  void reduce(const Turn& turn);

  [[nodiscard]] std::size_t first_link(int unit) const { return first_link_[Layout::at(unit)]; }
  [[nodiscard]] std::size_t end_link(int unit) const { return first_link_[Layout::at(unit) + 1]; }

  const Model& model_;
  const Strategy& strategy_;
  TrainOptions options_;
  Scope scope_;
  Layout layout_;
  std::vector<ChainLink> chain_;
  std::vector<std::size_t> first_link_;  // by unit, with an end
  std::vector<int> lowest_user_;         // by group: the unit whose backward is its last
  std::vector<bool> gathered_;           // by group
  std::vector<bool> grad_live_, reduced_live_;
  struct GradLife {
    int unit = -1, micro_batch = -1;
  };
  std::vector<GradLife> first_writer_;  // by group: who wrote first in the gradient's present life
  Program program_;
};

}  // namespace wirewise
