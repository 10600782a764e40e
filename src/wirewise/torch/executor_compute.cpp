// The ops that compute: segments forward, again, and backward, on the weights and the gradients that the program's buffers hold.
#include "wirewise/torch/executor_common.h"
#include "wirewise/torch/memory.h"

namespace wirewise {

using executor::at;

namespace {

at::Tensor view_of(const at::Tensor& flat, const TensorShape& shape) {
  return flat.narrow(0, static_cast<std::int64_t>(shape.offset), static_cast<std::int64_t>(shape.numel())).view(shape.shape);
}

}  // namespace

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

}  // namespace wirewise
