#include "wirewise/schedule/builder.h"

#include <algorithm>
#include <utility>

#include "wirewise/schedule/order.h"

namespace wirewise {
namespace {

bool contains(const std::vector<int>& values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

void insert_sorted(std::vector<int>& values, int value) {
  const auto place = std::lower_bound(values.begin(), values.end(), value);
  if (place == values.end() || *place != value) values.insert(place, value);
}

}  // namespace

Builder::Builder(const Model& model, const Strategy& strategy, const TrainOptions& options, Scope scope)
    : model_(model),
      strategy_(strategy),
      options_(options),
      scope_(scope),
      layout_(model, strategy, options, scope),
      chain_(chain_of(model)) {
  const auto groups = model.groups.size();
  gathered_.assign(groups, false);
  grad_live_.assign(groups, false);
  reduced_live_.assign(groups, false);
  first_writer_.assign(groups, {});
  lowest_user_.assign(groups, -1);
  for (const auto& unit : model.units) {
    first_link_.push_back(first_link_.empty() ? 0 : first_link_.back() + model.units[first_link_.size() - 1].segments.size());
    for (const auto& segment : unit.segments) {
      for (int group : segment.groups) {
        auto& lowest = lowest_user_[Layout::at(group)];
        if (lowest < 0) lowest = static_cast<int>(first_link_.size()) - 1;
      }
    }
  }
  first_link_.push_back(chain_.size());
  program_.role = "data-parallel";
  for (int rank = 0; rank < strategy.dp_shard; ++rank) program_.ranks.push_back(rank);
  program_.buffers = layout_.buffers;
}

Op& Builder::push(OpKind kind, Lane lane) {
  Op& op = program_.ops.emplace_back();
  op.kind = kind;
  op.lane = lane;
  return op;
}

Program Builder::finish() {
  derive_after(program_);
  return std::move(program_);
}

void Builder::run(const std::vector<Turn>& turns) {
  for (std::size_t t = 0; t < turns.size(); ++t) {
    gather(turns[t]);
    if (turns[t].backward) {
      backward(turns[t]);
    } else {
      forward(turns[t]);
    }
    release(turns, t);
    if (turns[t].backward) reduce(turns[t]);
  }
}

bool Builder::recomputed(int unit) const {
  if (scope_ != Scope::kTrain || strategy_.recompute != Recompute::kFull || unit + 1 == static_cast<int>(model_.units.size()))
    return false;
  // A lone segment that saves nothing besides its input costs nothing to keep.
  const auto& segments = model_.units[Layout::at(unit)].segments;
  return segments.size() > 1 || segments.front().cost.saved > 0;
}

std::vector<int> Builder::needs(const Turn& turn) const {
  std::vector<int> groups;
  const bool all = !turn.backward || recomputed(turn.unit);
  for (const auto& segment : model_.units[Layout::at(turn.unit)].segments) {
    if (!all && !segment.backward_reads_parameters) continue;
    for (int group : segment.groups) insert_sorted(groups, group);
  }
  return groups;
}

void Builder::gather(const Turn& turn) {
  if (layout_.stage != 3) return;
  std::vector<int> missing;
  for (int group : needs(turn)) {
    if (!gathered_[Layout::at(group)]) missing.push_back(group);
  }
  if (missing.empty()) return;
  Op& op = push(OpKind::kGather, Lane::kGather);
  op.unit = turn.unit;
  op.micro_batch = turn.micro_batch;
  for (int group : missing) {
    const auto g = Layout::at(group);
    op.reads.push_back(layout_.param[g]);
    op.writes.push_back(layout_.full[g]);
    op.allocates.push_back(layout_.full[g]);
    op.bytes += program_.buffers[Layout::at(layout_.full[g])].bytes;
    gathered_[g] = true;
  }
  op.param_groups = std::move(missing);
}

void Builder::release(const std::vector<Turn>& turns, std::size_t done) {
  if (layout_.stage != 3) return;
  std::vector<int> kept = done + 1 < turns.size() ? needs(turns[done + 1]) : std::vector<int>{};
  if (strategy_.keep_after_forward) {
    for (std::size_t t = done + 1; t < turns.size() && turns[t].micro_batch == turns[done].micro_batch; ++t) {
      for (int group : needs(turns[t])) insert_sorted(kept, group);
    }
  }
  std::vector<int> unused;
  for (int group = 0; group < static_cast<int>(gathered_.size()); ++group) {
    if (gathered_[Layout::at(group)] && !contains(kept, group)) unused.push_back(group);
  }
  if (unused.empty()) return;
  Op& op = push(OpKind::kFree, Lane::kCompute);
  op.unit = turns[done].unit;
  op.micro_batch = turns[done].micro_batch;
  for (int group : unused) {
    op.frees.push_back(layout_.full[Layout::at(group)]);
    gathered_[Layout::at(group)] = false;
  }
  op.param_groups = std::move(unused);
}

void Builder::reduce(const Turn& turn) {
  const bool last = turn.micro_batch + 1 == layout_.micro_batches;
  if (!last && strategy_.accumulation_policy != AccumulationPolicy::kReduceEach) return;
  std::vector<int> complete;
  for (int group = 0; group < static_cast<int>(lowest_user_.size()); ++group) {
    if (lowest_user_[Layout::at(group)] == turn.unit) complete.push_back(group);
  }
  if (complete.empty()) return;
  {
    Op& op = push(layout_.stage == 0 ? OpKind::kAllReduce : OpKind::kReduceScatter, Lane::kReduce);
    op.unit = turn.unit;
    op.micro_batch = turn.micro_batch;
    op.param_groups = complete;
    for (int group : complete) {
      const auto g = Layout::at(group);
      op.reads.push_back(layout_.grad[g]);
      op.bytes += program_.buffers[Layout::at(layout_.grad[g])].bytes;
      if (!reduced_live_[g]) op.allocates.push_back(layout_.reduced[g]);
      (reduced_live_[g] ? op.adds : op.writes).push_back(layout_.reduced[g]);
      reduced_live_[g] = true;
      first_writer_[g] = {};
    }
  }
  if (layout_.stage == 1) return;  // ZeRO-1 keeps whole gradients until their group has stepped
  Op& op = push(OpKind::kFree, Lane::kCompute);
  op.unit = turn.unit;
  op.micro_batch = turn.micro_batch;
  op.param_groups = complete;
  for (int group : complete) {
    op.frees.push_back(layout_.grad[Layout::at(group)]);
    grad_live_[Layout::at(group)] = false;
  }
}

void Builder::token_count() {
  Op& op = push(OpKind::kTokenCount, Lane::kCompute);
  op.bytes = size_of(DType::kInt64);
}

void Builder::clip() {
  Op& op = push(OpKind::kClip, Lane::kCompute);
  for (BufferId id : layout_.reduced) {
    op.reads.push_back(id);
    op.bytes += program_.buffers[Layout::at(id)].bytes;
  }
}

void Builder::steps() {
  for (int group = 0; group < static_cast<int>(model_.groups.size()); ++group) {
    const auto g = Layout::at(group);
    {
      Op& op = push(OpKind::kStep, Lane::kCompute);
      op.param_groups = {group};
      op.reads = {layout_.reduced[g]};
      for (BufferId id : {layout_.param[g], layout_.master[g], layout_.exp_avg[g], layout_.exp_avg_sq[g]}) {
        if (id >= 0) op.writes.push_back(id);
      }
      op.frees = {layout_.reduced[g]};
      if (layout_.stage == 1) op.frees.push_back(layout_.grad[g]);
      op.bytes = layout_.stepped(model_.groups[g]) * size_of(DType::kFloat32);
    }
    if (layout_.stage != 1 && layout_.stage != 2) continue;
    Op& op = push(OpKind::kGather, Lane::kGather);
    op.param_groups = {group};
    op.reads = {layout_.param[g]};
    op.writes = {layout_.param[g]};
    op.bytes = program_.buffers[Layout::at(layout_.param[g])].bytes;
  }
}

void Builder::report() {
  Op& op = push(OpKind::kReport, Lane::kCompute);
  op.reads = {layout_.loss};
  op.bytes = program_.buffers[Layout::at(layout_.loss)].bytes;
}

Program plain_train_program(const Model& model, const Strategy& strategy, const TrainOptions& options) {
  const int units = static_cast<int>(model.units.size());
  std::vector<Turn> turns;
  for (int m = 0; m < strategy.accumulation; ++m) {
    for (int u = 0; u < units; ++u) turns.push_back({u, m, false});
    for (int u = units - 1; u >= 0; --u) turns.push_back({u, m, true});
  }
  Builder builder(model, strategy, options, Scope::kTrain);
  builder.token_count();
  builder.run(turns);
  if (options.clip) builder.clip();
  builder.steps();
  builder.report();
  return builder.finish();
}

Program plain_forward_program(const Model& model, const Strategy& strategy) {
  std::vector<Turn> turns;
  for (int u = 0; u < static_cast<int>(model.units.size()); ++u) turns.push_back({u, 0, false});
  Builder builder(model, strategy, {}, Scope::kForwardOnly);
  builder.run(turns);
  return builder.finish();
}

}  // namespace wirewise
