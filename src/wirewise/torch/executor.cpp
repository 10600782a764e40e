#include "wirewise/torch/executor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "wirewise/base/error.h"
#include "wirewise/torch/dtype_torch.h"
#include "wirewise/torch/kernels.h"
#include "wirewise/torch/kernels_aten.h"
#include "wirewise/torch/memory.h"

namespace wirewise {
namespace {

Seconds now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::size_t at(int index) { return static_cast<std::size_t>(index); }

bool contains(const std::vector<BufferId>& ids, BufferId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

at::Tensor view_of(const at::Tensor& flat, const TensorShape& shape) {
  return flat.narrow(0, static_cast<std::int64_t>(shape.offset), static_cast<std::int64_t>(shape.numel())).view(shape.shape);
}

/// Zeroes what lies between a group's tensors, so that norms and sums over the flat buffer count nothing twice.
void zero_gaps(at::Tensor& flat, const ParamGroup& group) {
  std::uint64_t end = 0;
  const auto zero = [&](std::uint64_t from, std::uint64_t to) {
    if (from < to) flat.narrow(0, static_cast<std::int64_t>(from), static_cast<std::int64_t>(to - from)).zero_();
  };
  for (const TensorShape& tensor : group.tensors) {
    zero(end, tensor.offset);
    end = tensor.offset + tensor.numel();
  }
  zero(end, group.padded);
}

}  // namespace

MicroBatch token_micro_batch(std::int64_t samples, std::int64_t sequence, std::span<const std::int32_t> tokens,
                             std::span<const std::int32_t> targets) {
  const memory::Scope scope(Category::kBuffers);
  const auto tensor_of = [&](std::span<const std::int32_t> ids) {
    at::Tensor tensor = at::empty({samples, sequence}, at::TensorOptions().dtype(c10::kLong));
    std::copy(ids.begin(), ids.end(), tensor.mutable_data_ptr<std::int64_t>());
    return tensor;
  };
  MicroBatch batch;
  batch.inputs = {tensor_of(tokens)};
  if (!targets.empty()) batch.targets = tensor_of(targets);
  batch.counted = std::count_if(targets.begin(), targets.end(), [](std::int32_t target) { return target >= 0; });
  return batch;
}

SegmentTable make_segment_table(const Model& model) {
  SegmentTable table;
  for (std::size_t unit = 0; unit < model.units.size(); ++unit) table.push_back(make_segments(model, static_cast<int>(unit)));
  return table;
}

Executor::Executor(const Model& model, const Program& program, const SegmentTable& segments, ModelState& state, const Lanes& lanes,
                   const OptimizerOptions& optimizer)
    : model_(model),
      program_(program),
      segments_(segments),
      state_(state),
      lanes_(lanes),
      optimizer_(optimizer),
      tensors_(program.buffers.size()),
      saved_(program.buffers.size()),
      weights_buffer_(model.groups.size(), -1),
      param_buffer_(model.groups.size(), -1),
      reduced_buffer_(model.groups.size(), -1) {
  if (!lanes.device.is_cpu()) clock_.emplace(lanes.device, program.ops.size());
  for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
    places_.emplace_back();
    for (std::size_t segment = 0; segment < segments[unit].size(); ++segment) {
      std::vector<WeightPlace> places;
      for (const std::string& name : segments[unit][segment]->weight_names()) {
        WeightPlace place;
        for (const int group : model.units[unit].segments[segment].groups) {
          for (const TensorShape& tensor : model.groups[at(group)].tensors) {
            if (tensor.name == name) place = {group, &tensor};
          }
        }
        if (place.shape == nullptr) {
          throw Error(ErrorKind::kFailed, "segment " + model.units[unit].name + " needs a tensor " + name + " that none of its groups holds.");
        }
        places.push_back(place);
      }
      places_.back().push_back(std::move(places));
    }
  }
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const BufferInfo& buffer = program.buffers[i];
    if (buffer.param_group < 0) continue;
    const auto id = static_cast<BufferId>(i);
    const GroupState& group = state.groups[at(buffer.param_group)];
    switch (buffer.role) {
      case BufferRole::kParam:
        tensors_[i] = group.param;
        param_buffer_[at(buffer.param_group)] = id;
        if (weights_buffer_[at(buffer.param_group)] < 0) weights_buffer_[at(buffer.param_group)] = id;
        break;
      case BufferRole::kFullParam:
        weights_buffer_[at(buffer.param_group)] = id;
        if (buffer.aliased) tensors_[i] = group.full;
        break;
      case BufferRole::kReducedGrad: reduced_buffer_[at(buffer.param_group)] = id; break;
      default: break;
    }
  }
}

StepResult Executor::train(std::span<const MicroBatch> batches, const StepOptions& options) {
  options_ = options;
  result_ = {};
  context_ = {};
  context_.step = options.step;
  factor_ = 1.0 / options.loss_scale;
  local_overflow_.clear();
  local_tokens_ = 0;
  for (const MicroBatch& batch : batches) {
    local_tokens_ += batch.counted;
  }
  run(batches);
  return result_;
}

double Executor::evaluate(const MicroBatch& batch) {
  result_ = {};
  context_ = {};
  run(std::span(&batch, 1));
  double sums[2] = {loss_sum(), static_cast<double>(batch.counted)};
  double totals[2] = {};
  lanes_.control->all_reduce({sums, DType::kFloat64}, {totals, DType::kFloat64}, 2).wait();
  return totals[0] / totals[1];
}

at::Tensor Executor::logits(const MicroBatch& batch) {
  context_ = {};
  run(std::span(&batch, 1));
  return context_.logits.cpu();
}

void Executor::run(std::span<const MicroBatch> batches) {
  const at::NoGradGuard no_grad;
  batches_ = batches;
  if (state_.take_unmet()) {
    CallOptions options;
    options.label = "barrier behind the loading of weights";
    lanes_.control->barrier(options).wait();
  }
  timeline_.ops.assign(program_.ops.size(), {});
  const Seconds begin = now();
  if (clock_) clock_->begin();
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    const auto id = static_cast<OpId>(i);
    const Op& op = program_.ops[i];
    if (clock_) clock_->arrive(i);
    awaited_ = -1;
    for (const OpId before : op.after) await_output(before);
    for (const auto* touched : {&op.frees, &op.writes, &op.adds}) {
      for (const BufferId buffer : *touched) await_release(buffer);
    }
    if (clock_) clock_->ready(i, awaited_);
    TimedOp& timed = timeline_.ops[i];
    const Seconds start = now();
    for (const BufferId buffer : op.allocates) allocate(buffer);
    execute(id, op);
    for (const BufferId buffer : op.frees) {
      tensor(buffer).reset();
      saved_[at(buffer)].clear();
    }
    if (clock_) {
      clock_->done(i);
      if (!pending_.empty()) {
        lanes_.gather->progress();
        lanes_.reduce->progress();
      }
      continue;
    }
    const Seconds end = now();
    timed.start = start - begin;
    timed.end = end - begin;
    timed.busy += end - start;
    if (!pending_.empty()) {
      lanes_.gather->progress();
      lanes_.reduce->progress();
      timeline_.ops[at(pending_.front().op)].busy += now() - end;
    }
  }
  await_all();
  lanes_.synchronize();
  if (clock_) {
    clock_->read(timeline_);
    return;
  }
  timeline_.step = now() - begin;
}

void Executor::execute(OpId id, const Op& op) {
  switch (op.kind) {
    case OpKind::kTokenCount: token_count(); break;
    case OpKind::kGather: gather(id, op); break;
    case OpKind::kForward: forward(op); break;
    case OpKind::kBackward: backward(op); break;
    case OpKind::kRecompute: recompute(op); break;
    case OpKind::kReduceScatter:
    case OpKind::kAllReduce: reduce(id, op); break;
    case OpKind::kFree: break;
    case OpKind::kClip: clip(op); break;
    case OpKind::kStep: step(op); break;
    case OpKind::kReport: report(); break;
    case OpKind::kBarrier: lanes_.control->barrier(call_options(op)).wait(); break;
  }
}

void Executor::allocate(BufferId id) {
  const BufferInfo& buffer = info(id);
  const auto elements = static_cast<std::int64_t>(buffer.bytes / size_of(buffer.dtype));
  switch (buffer.role) {
    case BufferRole::kFullParam:
    case BufferRole::kGrad:
    case BufferRole::kReducedGrad:
      if (buffer.shared) {
        tensor(id) = empty_shared(lanes_.reduce, static_cast<std::uint64_t>(elements), buffer.dtype, buffer.category, lanes_.device);
      } else {
        const memory::Scope scope(buffer.category);
        tensor(id) = at::empty({elements}, options_of(buffer.dtype));
      }
      if (buffer.role == BufferRole::kGrad) zero_gaps(tensor(id), model_.groups[at(buffer.param_group)]);
      break;
    case BufferRole::kInput: {
      const MicroBatch& batch = batches_[at(std::max(0, buffer.micro_batch))];
      saved_[at(id)] = batch.inputs;
      saved_[at(id)].push_back(batch.targets);
      if (!lanes_.device.is_cpu()) {
        for (at::Tensor& held : saved_[at(id)]) {
          if (held.defined()) held = held.to(lanes_.device);
        }
      }
      break;
    }
    default: break;  // segments bring their own boundaries and saved tensors
  }
}

void Executor::await_output(OpId id) {
  // A lane's ops are done in order, and `after` names only the last of those that an op needs.
  const Lane lane = program_.ops[at(id)].lane;
  for (Pending& pending : pending_) {
    if (pending.op > id || pending.output_done || program_.ops[at(pending.op)].lane != lane) continue;
    const Seconds start = now();
    pending.work.wait_output();
    pending.output_done = true;
    if (awaited_ < 0) awaited_ = pending.op;
    if (!clock_) timeline_.ops[at(pending.op)].busy += now() - start;
  }
}

void Executor::await_release(BufferId id) {
  std::erase_if(pending_, [&](Pending& pending) {
    if (!contains(pending.reads, id)) return false;
    const Seconds start = now();
    pending.work.wait();
    if (awaited_ < 0) awaited_ = pending.op;
    if (!clock_) timeline_.ops[at(pending.op)].busy += now() - start;
    return true;
  });
}

void Executor::await_all() {
  for (Pending& pending : pending_) {
    const Seconds start = now();
    pending.work.wait();
    if (!clock_) timeline_.ops[at(pending.op)].busy += now() - start;
  }
  pending_.clear();
}

double Executor::loss_sum() const {
  return context_.loss_sum + (context_.loss_on_device.defined() ? context_.loss_on_device.item<double>() : 0.0);
}

at::TensorOptions Executor::options_of(DType dtype) const {
  return at::TensorOptions().dtype(to_scalar_type(dtype)).device(lanes_.device);
}

CallOptions Executor::call_options(const Op& op) const {
  CallOptions options;
  options.progress = CallOptions::Progress::kOnWait;
  options.label = describe(op, model_);
  return options;
}

std::vector<Weight> Executor::weights_of(int unit, int segment) const {
  std::vector<Weight> weights;
  for (const WeightPlace& place : places_[at(unit)][at(segment)]) {
    const at::Tensor& flat = tensors_[at(weights_buffer_[at(place.group)])];
    weights.push_back({flat.defined() ? view_of(flat, *place.shape) : at::Tensor(), {}, false});
  }
  return weights;
}

void Executor::attach_gradients(std::vector<Weight>& weights, int unit, int segment, const Op& op) {
  const auto& places = places_[at(unit)][at(segment)];
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (const auto* list : {&op.writes, &op.adds}) {
      for (const BufferId id : *list) {
        if (info(id).role != BufferRole::kGrad || info(id).param_group != places[i].group) continue;
        weights[i].grad = view_of(tensor(id), *places[i].shape);
        weights[i].add = list == &op.adds;
      }
    }
  }
}

Boundary Executor::input_of(const Op& op, int unit, int segment) const {
  const bool first = unit == 0 && segment == 0;
  for (const BufferId id : op.reads) {
    if (first && info(id).role == BufferRole::kInput) return {saved_[at(id)].begin(), saved_[at(id)].end() - 1};
    if (!first && info(id).role == BufferRole::kBoundary) return saved_[at(id)];
  }
  return {};
}

void Executor::forward(const Op& op) {
  const memory::Scope scope(Category::kActivations);
  context_.micro_batch = op.micro_batch;
  const bool last = op.unit + 1 == static_cast<int>(segments_.size()) && op.segment + 1 == static_cast<int>(segments_[at(op.unit)].size());
  if (last) {
    for (const BufferId id : op.reads) {
      if (info(id).role == BufferRole::kInput) context_.targets = saved_[at(id)].back();
    }
  }
  std::vector<Weight> weights = weights_of(op.unit, op.segment);
  Saved saved;
  Boundary out = segments_[at(op.unit)][at(op.segment)]->forward(input_of(op, op.unit, op.segment), weights, op.save ? &saved : nullptr, context_);
  for (const BufferId id : op.writes) {
    if (info(id).role == BufferRole::kBoundary) saved_[at(id)] = std::move(out);
    if (info(id).role == BufferRole::kSaved) saved_[at(id)] = std::move(saved);
  }
  context_.targets.reset();
}

void Executor::recompute(const Op& op) {
  const memory::Scope scope(Category::kActivations);
  context_.micro_batch = op.micro_batch;
  Boundary boundary = input_of(op, op.unit, 0);
  const auto& segments = segments_[at(op.unit)];
  for (std::size_t s = 0; s < segments.size(); ++s) {
    std::vector<Weight> weights = weights_of(op.unit, static_cast<int>(s));
    Saved saved;
    // The unit's own output is not needed again, so its last segment could stop early; it is computed whole to keep one forward path.
    Boundary out = segments[s]->forward(boundary, weights, &saved, context_);
    for (const BufferId id : op.writes) {
      if (info(id).segment != static_cast<int>(s)) continue;
      if (info(id).role == BufferRole::kBoundary) saved_[at(id)] = out;
      if (info(id).role == BufferRole::kSaved) saved_[at(id)] = std::move(saved);
    }
    boundary = std::move(out);
  }
}

void Executor::backward(const Op& op) {
  const memory::Scope scope(Category::kTemporaries);
  std::vector<Weight> weights = weights_of(op.unit, op.segment);
  attach_gradients(weights, op.unit, op.segment, op);
  Saved saved;
  Boundary grad_out;
  for (const BufferId id : op.reads) {
    const BufferRole role = info(id).role;
    if (role == BufferRole::kSaved) saved = std::move(saved_[at(id)]);
    if (role == BufferRole::kBoundaryGrad) grad_out = saved_[at(id)];
    if (role == BufferRole::kInput) context_.targets = saved_[at(id)].back();
  }
  Boundary grad_in = segments_[at(op.unit)][at(op.segment)]->backward(input_of(op, op.unit, op.segment), grad_out, weights, saved, context_);
  for (const BufferId id : op.writes) {
    if (info(id).role == BufferRole::kBoundaryGrad) saved_[at(id)] = std::move(grad_in);
  }
  context_.targets.reset();
}

void Executor::gather(OpId id, const Op& op) {
  std::vector<AllGatherPart> parts;
  for (std::size_t i = 0; i < op.param_groups.size(); ++i) {
    const int group = op.param_groups[i];
    at::Tensor& param = tensor(param_buffer_[at(group)]);
    at::Tensor& full = tensor(weights_buffer_[at(group)]);
    const DType dtype = to_dtype(param.scalar_type());
    const std::uint64_t count = model_.groups[at(group)].padded / static_cast<std::uint64_t>(lanes_.size());
    const bool in_place = full.is_same(param);
    auto* shard = static_cast<char*>(param.data_ptr()) + (in_place ? count * size_of(dtype) * static_cast<std::uint64_t>(lanes_.rank()) : 0);
    parts.push_back({{shard, dtype}, {full.data_ptr(), dtype}, count});
  }
  pending_.push_back({lanes_.gather->all_gather(parts, call_options(op)), op.reads, {}, id, false});
}

void Executor::reduce(OpId id, const Op& op) {
  const bool scatter = op.kind == OpKind::kReduceScatter;
  std::vector<ReducePart> parts;
  std::vector<at::Tensor> held;
  bool accumulate = false;
  if (options_.check_overflow) note_overflow(op);
  for (const BufferId read : op.reads) {
    const BufferInfo& buffer = info(read);
    if (buffer.role != BufferRole::kGrad) continue;
    at::Tensor& out = tensor(reduced_buffer_[at(buffer.param_group)]);
    at::Tensor in = tensor(read);
    if (in.scalar_type() != out.scalar_type() && !(out.scalar_type() == c10::kFloat && in.element_size() == 2)) {
      // The wire carries the reduce dtype where it is not the gradient's.
      const memory::Scope scope(Category::kTemporaries);
      at::Tensor staged = lanes_.size() > 1 ? empty_shared(lanes_.reduce, static_cast<std::uint64_t>(in.numel()), to_dtype(out.scalar_type()),
                                                           Category::kTemporaries, lanes_.device)
                                            : at::empty_like(in, out.options());
      staged.copy_(in);
      in = staged;
      held.push_back(staged);
    }
    accumulate = accumulate || contains(op.adds, reduced_buffer_[at(buffer.param_group)]);
    const std::uint64_t count = static_cast<std::uint64_t>(in.numel()) / (scatter ? static_cast<std::uint64_t>(lanes_.size()) : 1);
    parts.push_back({{in.data_ptr(), to_dtype(in.scalar_type())}, {out.data_ptr(), to_dtype(out.scalar_type())}, count});
  }
  CallOptions options = call_options(op);
  options.accumulate = accumulate;
  Work work = scatter ? lanes_.reduce->reduce_scatter(parts, Reduction::kSum, options) : lanes_.reduce->all_reduce(parts, Reduction::kSum, options);
  pending_.push_back({std::move(work), op.reads, std::move(held), id, false});
}

void Executor::note_overflow(const Op& op) {
  if (!local_overflow_.empty()) return;
  for (const int group : op.param_groups) {
    for (const BufferId id : op.reads) {
      if (info(id).param_group != group) continue;
      const std::int64_t first = kernels::first_not_finite(tensor(id));
      if (first < 0) continue;
      for (const TensorShape& shape : model_.groups[at(group)].tensors) {
        if (shape.offset <= static_cast<std::uint64_t>(first)) local_overflow_ = shape.name;
      }
      return;
    }
  }
}

void Executor::token_count() {
  std::int64_t total = 0;
  lanes_.control->all_reduce({&local_tokens_, DType::kInt64}, {&total, DType::kInt64}, 1).wait();
  if (total == 0) {
    throw bad_input("step " + std::to_string(options_.step) + " has no target token on any rank.", "Check the data: every target is masked.");
  }
  result_.tokens = total;
  context_.gradient_scale = options_.loss_scale / static_cast<double>(total);
}

void Executor::clip(const Op& op) {
  // One float64 partial a rank, over the finest slices whatever the sharding, then the canonical tree over ranks.
  double partial = 0;
  std::vector<at::Tensor> on_device;   // read at once: each look at a device waits for it
  for (const BufferId id : op.reads) {
    const BufferInfo& buffer = info(id);
    if (buffer.role != BufferRole::kReducedGrad) continue;
    const at::Tensor& grad = tensor(id);
    const auto slice = static_cast<std::int64_t>(model_.groups[at(buffer.param_group)].padded) / lanes_.size();
    const at::Tensor mine = grad.numel() == slice ? grad : grad.narrow(0, lanes_.rank() * slice, slice);
    if (kernels::on_aten(mine)) {
      on_device.push_back(kernels::aten::sum_of_squares(mine));
    } else {
      partial += kernels::sum_of_squares(mine);
    }
  }
  if (!on_device.empty()) partial += at::stack(on_device).sum().item<double>();
  double total = 0;
  lanes_.control->all_reduce({&partial, DType::kFloat64}, {&total, DType::kFloat64}, 1).wait();
  if (!std::isfinite(total)) {
    result_.skipped = true;
    name_overflow();
    return;
  }
  result_.grad_norm = std::sqrt(total) / options_.loss_scale;
  if (options_.clip > 0) factor_ = std::min(1.0, options_.clip / (result_.grad_norm + 1e-6)) / options_.loss_scale;
}

void Executor::name_overflow() {
  // Where it began on this rank, if it did: as an index over all tensors, so that ranks can exchange it.
  std::vector<const TensorShape*> all;
  for (const ParamGroup& group : model_.groups) {
    for (const TensorShape& tensor : group.tensors) all.push_back(&tensor);
  }
  std::int64_t mine = -1;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i]->name == local_overflow_) mine = static_cast<std::int64_t>(i);
  }
  if (mine < 0 && !options_.check_overflow) {
    for (std::size_t group = 0, first = 0; group < model_.groups.size(); first += model_.groups[group].tensors.size(), ++group) {
      if (mine >= 0 || reduced_buffer_[group] < 0) continue;
      const at::Tensor& grad = tensor(reduced_buffer_[group]);
      const std::int64_t index = kernels::first_not_finite(grad);
      if (index < 0) continue;
      const std::uint64_t begin = static_cast<std::uint64_t>(grad.numel()) == model_.groups[group].padded ? 0 : state_.groups[group].master_begin;
      for (std::size_t t = 0; t < model_.groups[group].tensors.size(); ++t) {
        if (model_.groups[group].tensors[t].offset <= begin + static_cast<std::uint64_t>(index)) mine = static_cast<std::int64_t>(first + t);
      }
    }
  }
  std::vector<std::int64_t> everyone(at(lanes_.size()), -1);
  lanes_.control->all_gather({&mine, DType::kInt64}, {everyone.data(), DType::kInt64}, 1).wait();
  for (std::size_t rank = 0; rank < everyone.size(); ++rank) {
    if (everyone[rank] < 0) continue;
    result_.overflow = all[at(static_cast<int>(everyone[rank]))]->name + " on rank " + std::to_string(rank);
    return;
  }
  result_.overflow = "the sum over ranks, though each rank's own gradients were finite";
}

void Executor::step(const Op& op) {
  if (result_.skipped) return;
  for (const int group : op.param_groups) {
    optimizer_step(state_.groups[at(group)], model_.groups[at(group)], tensor(reduced_buffer_[at(group)]), factor_, options_.lr, options_.step,
                   optimizer_);
  }
}

void Executor::report() {
  const double mine[2] = {loss_sum(), options_.stop ? 1.0 : 0.0};
  double sums[2] = {};
  lanes_.control->all_reduce({mine, DType::kFloat64}, {sums, DType::kFloat64}, 2).wait();
  result_.loss = sums[0] / static_cast<double>(result_.tokens);
  result_.stop = sums[1] > 0;
}

}  // namespace wirewise
