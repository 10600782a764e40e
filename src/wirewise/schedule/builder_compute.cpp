// The compute ops of a unit's turn: forward, backward and recompute of its segments, with the activations that each allocates and
// frees.
#include <algorithm>

#include "wirewise/schedule/builder.h"

namespace wirewise {
namespace {

void add_unique(std::vector<BufferId>& ids, BufferId id) {
  if (id >= 0 && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

void take(std::vector<BufferId>& ids, BufferId id) {
  if (id >= 0) ids.push_back(id);
}

}  // namespace

void Builder::forward(const Turn& turn) {
  for (std::size_t s = first_link(turn.unit); s < end_link(turn.unit); ++s) forward_segment(s, turn);
}

void Builder::backward(const Turn& turn) {
  if (recomputed(turn.unit)) recompute(turn);
  for (std::size_t s = end_link(turn.unit); s-- > first_link(turn.unit);) backward_segment(s, turn);
}

void Builder::read_weights(Op& op, const SegmentShape& segment) const {
  for (int group : segment.groups) add_unique(op.reads, layout_.weights(group));
}

void Builder::forward_segment(std::size_t s, const Turn& turn) {
  const auto m = Layout::at(turn.micro_batch);
  const bool first = s == 0, last = s + 1 == chain_.size();
  const bool forward_only = scope_ == Scope::kForwardOnly;
  Op& op = push(OpKind::kForward, Lane::kCompute);
  op.unit = turn.unit;
  op.segment = chain_[s].segment;
  op.micro_batch = turn.micro_batch;
  op.flops = chain_[s].shape->cost.forward;
  op.temporary = chain_[s].shape->cost.temporary_forward;
  op.save = !forward_only && !recomputed(turn.unit);

  if (first) op.allocates.push_back(layout_.input[m]);
  if (first || last) op.reads.push_back(layout_.input[m]);  // ids; targets
  if (!first) op.reads.push_back(layout_.boundary[m][s - 1]);
  read_weights(op, *chain_[s].shape);

  if (last) {
    op.adds.push_back(layout_.loss);
  } else {
    op.allocates.push_back(layout_.boundary[m][s]);
    op.writes.push_back(layout_.boundary[m][s]);
  }
  if (op.save && layout_.saved[m][s] >= 0) {
    op.allocates.push_back(layout_.saved[m][s]);
    op.writes.push_back(layout_.saved[m][s]);
  }
  const bool inner = s > first_link(turn.unit);
  if (!first && (forward_only || (!op.save && inner))) op.frees.push_back(layout_.boundary[m][s - 1]);
  if (forward_only && last) op.frees.push_back(layout_.input[m]);
}

void Builder::recompute(const Turn& turn) {
  const auto m = Layout::at(turn.micro_batch);
  const auto begin = first_link(turn.unit), end = end_link(turn.unit);
  Op& op = push(OpKind::kRecompute, Lane::kCompute);
  op.unit = turn.unit;
  op.micro_batch = turn.micro_batch;
  op.reads.push_back(begin == 0 ? layout_.input[m] : layout_.boundary[m][begin - 1]);
  for (std::size_t s = begin; s < end; ++s) {
    const auto& segment = *chain_[s].shape;
    op.flops += segment.cost.forward;
    op.temporary = std::max(op.temporary, segment.cost.temporary_forward);
    read_weights(op, segment);
    if (s + 1 < end) take(op.allocates, layout_.boundary[m][s]);
    take(op.allocates, layout_.saved[m][s]);
  }
  op.writes = op.allocates;
}

void Builder::backward_segment(std::size_t s, const Turn& turn) {
  const auto m = Layout::at(turn.micro_batch);
  const bool first = s == 0, last = s + 1 == chain_.size();
  const auto& segment = *chain_[s].shape;
  Op& op = push(OpKind::kBackward, Lane::kCompute);
  op.unit = turn.unit;
  op.segment = chain_[s].segment;
  op.micro_batch = turn.micro_batch;
  op.flops = segment.cost.backward;
  op.temporary = segment.cost.temporary_backward;

  if (first || last) op.reads.push_back(layout_.input[m]);
  if (!first) op.reads.push_back(layout_.boundary[m][s - 1]);
  take(op.reads, layout_.saved[m][s]);
  take(op.reads, layout_.boundary_grad[m][s]);
  if (segment.backward_reads_parameters) read_weights(op, segment);

  if (!first) {
    op.allocates.push_back(layout_.boundary_grad[m][s - 1]);
    op.writes.push_back(layout_.boundary_grad[m][s - 1]);
    op.frees.push_back(layout_.boundary[m][s - 1]);
  }
  take(op.frees, layout_.boundary_grad[m][s]);
  take(op.frees, layout_.saved[m][s]);
  if (first) op.frees.push_back(layout_.input[m]);
  write_gradients(op, segment, turn);
}

void Builder::write_gradients(Op& op, const SegmentShape& segment, const Turn& turn) {
  for (int group : segment.groups) {
    const auto g = Layout::at(group);
    if (!grad_live_[g]) op.allocates.push_back(layout_.grad[g]);
    grad_live_[g] = true;
    auto& life = first_writer_[g];
    if (life.unit < 0) life = {turn.unit, turn.micro_batch};
    // Segments of one unit own different tensors of a group; another unit's use of it, or a later micro-batch, meets values to
    // add to.
    const bool fresh = life.unit == turn.unit && life.micro_batch == turn.micro_batch;
    (fresh ? op.writes : op.adds).push_back(layout_.grad[g]);
  }
}

}  // namespace wirewise
