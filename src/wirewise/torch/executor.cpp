// A rank's program, op by op: what each waits for, the buffers that come and go with it, and when it started and ended. How the ops are
// done stands in executor_compute.cpp and executor_collectives.cpp.
#include "wirewise/torch/executor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>

#include "wirewise/base/error.h"
#include "wirewise/torch/dtype_torch.h"
#include "wirewise/torch/executor_common.h"
#include "wirewise/torch/memory.h"

namespace wirewise {

using executor::at;
using executor::contains;

namespace {

Seconds now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

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

}  // namespace wirewise
