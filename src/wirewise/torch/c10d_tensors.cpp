// Only the copies that a tensor's layout forces: contiguous tensors and back-to-back slices of one buffer are used where they
// lie.
#include "wirewise/torch/c10d_tensors.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <optional>

#include "wirewise/base/error.h"
#include "wirewise/torch/dtype_torch.h"

namespace wirewise {
namespace {

// The tensors as one, when each starts where the one before it ends.
std::optional<at::Tensor> as_one_run(std::span<const at::Tensor> tensors) {
  std::int64_t count = 0;
  const auto* expected = static_cast<const char*>(tensors.front().const_data_ptr());
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_contiguous() || tensor.is_neg() || tensor.const_data_ptr() != expected ||
        !tensor.storage().is_alias_of(tensors.front().storage())) {
      return std::nullopt;
    }
    count += tensor.numel();
    expected += tensor.nbytes();
  }
  return tensors.front().detach().as_strided({count}, {1});
}

bool usable_in_place(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_neg(); }

}  // namespace

void check_tensor(const at::Tensor& tensor, const std::string& operation) {
  if (!tensor.defined()) throw bad_input(operation + " got an undefined tensor.");
  if (!tensor.device().is_cpu()) {
    throw bad_input(operation + " got a tensor on " + tensor.device().str() + ", but the wirewise backend moves CPU memory only.",
                    "Use backend=\"cpu:wirewise,cuda:nccl\", so that GPU tensors go by NCCL.");
  }
  if (tensor.layout() != c10::kStrided) {
    throw bad_input(operation + " got a tensor that is not dense.", "Convert it with to_dense().");
  }
  (void)to_dtype(tensor.scalar_type());
}

void check_tensors(std::span<const at::Tensor> tensors, const std::string& operation) {
  if (tensors.empty()) throw bad_input(operation + " got an empty list of tensors.");
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, operation);
    if (tensor.scalar_type() != tensors.front().scalar_type()) {
      throw bad_input(operation + " got tensors of different types: " + c10::toString(tensors.front().scalar_type()) + " and " +
                      c10::toString(tensor.scalar_type()) + ".");
    }
  }
}

const at::Tensor& only_tensor(const std::vector<at::Tensor>& tensors, const std::string& operation) {
  if (tensors.size() != 1) {
    throw bad_input(operation + " takes one tensor a call, but got " + std::to_string(tensors.size()) + ".",
                    "Call it for each, or use the coalesced form.");
  }
  check_tensor(tensors.front(), operation);
  return tensors.front();
}

const std::vector<at::Tensor>& tensor_per_rank(const std::vector<std::vector<at::Tensor>>& lists, int size,
                                               const std::string& operation) {
  if (lists.size() != 1 || lists.front().size() != static_cast<std::size_t>(size)) {
    throw bad_input(
        operation + " needs one list with a tensor for each of the " + std::to_string(size) + " ranks, but got " +
        (lists.size() == 1 ? std::to_string(lists.front().size()) + " tensors." : std::to_string(lists.size()) + " lists."));
  }
  check_tensors(lists.front(), operation);
  return lists.front();
}

Reduction to_reduction(const c10d::ReduceOp& op, const std::string& operation) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return Reduction::kSum;
    case c10d::ReduceOp::AVG: return Reduction::kAverage;
    case c10d::ReduceOp::PRODUCT: return Reduction::kProduct;
    case c10d::ReduceOp::MIN: return Reduction::kMin;
    case c10d::ReduceOp::MAX: return Reduction::kMax;
    case c10d::ReduceOp::BAND: return Reduction::kBitAnd;
    case c10d::ReduceOp::BOR: return Reduction::kBitOr;
    case c10d::ReduceOp::BXOR: return Reduction::kBitXor;
    case c10d::ReduceOp::PREMUL_SUM:
      throw bad_input(operation + " was asked for PREMUL_SUM, which the wirewise backend does not have.",
                      "Multiply before a SUM, or use AVG.");
    case c10d::ReduceOp::UNUSED: break;
  }
  throw bad_input(operation + " was asked for an unknown reduction.");
}

ConstBuffer read_buffer(const at::Tensor& tensor) { return {tensor.const_data_ptr(), to_dtype(tensor.scalar_type())}; }
Buffer write_buffer(const at::Tensor& tensor) { return {tensor.mutable_data_ptr(), to_dtype(tensor.scalar_type())}; }
std::size_t count_of(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  // The whole storages, since a strided tensor may span more than its elements.
  const auto begin = [](const at::Tensor& tensor) { return static_cast<const char*>(tensor.const_data_ptr()); };
  const auto end = [&](const at::Tensor& tensor) {
    std::int64_t last = 0;
    for (std::int64_t axis = 0; axis < tensor.dim(); ++axis) last += (tensor.size(axis) - 1) * tensor.stride(axis);
    return begin(tensor) + (last + 1) * static_cast<std::int64_t>(tensor.element_size());
  };
  return begin(a) < end(b) && begin(b) < end(a);
}

bool same_counts(std::span<const at::Tensor> tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& t) { return t.numel() == tensors.front().numel(); });
}

at::Tensor Staging::input(const at::Tensor& tensor) {
  return usable_in_place(tensor) ? kept_.emplace_back(tensor.detach()) : input_copy(tensor);
}

at::Tensor Staging::input_copy(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return kept_.emplace_back(tensor.resolve_neg().clone(at::MemoryFormat::Contiguous));
}

at::Tensor Staging::output(const at::Tensor& tensor) {
  return usable_in_place(tensor) ? kept_.emplace_back(tensor.detach()) : output_copy(tensor);
}

at::Tensor Staging::output_copy(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  at::Tensor copy = at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
  copies_.emplace_back(tensor.detach(), copy);
  return copy;
}

at::Tensor Staging::in_place(const at::Tensor& tensor) {
  if (usable_in_place(tensor)) return kept_.emplace_back(tensor.detach());
  at::Tensor copy = input_copy(tensor);
  copies_.emplace_back(tensor.detach(), copy);
  return copy;
}

at::Tensor Staging::packed_input(std::span<const at::Tensor> tensors) {
  const at::NoGradGuard no_grad;
  if (auto run = as_one_run(tensors)) return kept_.emplace_back(*std::move(run));
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  return kept_.emplace_back(at::cat(flat));
}

at::Tensor Staging::packed_output(std::span<const at::Tensor> tensors) {
  const at::NoGradGuard no_grad;
  if (auto run = as_one_run(tensors)) return kept_.emplace_back(*std::move(run));
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  const at::Tensor packed = at::empty({count}, tensors.front().options().memory_format(std::nullopt));
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    copies_.emplace_back(tensor.detach(), packed.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
  return packed;
}

void Staging::write_back() {
  const at::NoGradGuard no_grad;
  for (auto& [to, from] : copies_) to.copy_(from);
}

void Staging::clear() noexcept {
  kept_.clear();
  copies_.clear();
}

}  // namespace wirewise
