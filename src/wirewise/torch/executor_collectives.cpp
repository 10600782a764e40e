// The ops in which ranks meet: weights gathered, gradients reduced, the numbers that all must agree on (tokens, the gradients' norm and whether
// they overflowed, the loss), and the optimizer's step that follows from them.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>

#include <cmath>

#include "wirewise/base/error.h"
#include "wirewise/torch/dtype_torch.h"
#include "wirewise/torch/executor_common.h"
#include "wirewise/torch/kernels.h"
#include "wirewise/torch/kernels_aten.h"
#include "wirewise/torch/memory.h"

namespace wirewise {

using executor::at;
using executor::contains;

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
