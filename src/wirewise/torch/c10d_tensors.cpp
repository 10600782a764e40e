// Only the copies that a tensor's layout or type forces: contiguous tensors and back-to-back slices of one buffer are used where they
// lie. Complex numbers are reduced as pairs; 8-bit floats in float32, since their own range holds hardly any sum.
#include "wirewise/torch/c10d_tensors.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/view_as_real.h>

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

bool known(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat:
    case c10::kDouble:
    case c10::kHalf:
    case c10::kBFloat16:
    case c10::kChar:
    case c10::kByte:
    case c10::kShort:
    case c10::kInt:
    case c10::kLong:
    case c10::kBool: return true;
    default: return false;
  }
}

bool is_unsigned(c10::ScalarType type) { return type == c10::kUInt16 || type == c10::kUInt32 || type == c10::kUInt64; }

c10::ScalarType integer_of_size(std::size_t bytes) {
  return bytes == 1 ? c10::kByte : bytes == 2 ? c10::kShort : bytes == 4 ? c10::kInt : c10::kLong;
}

const char* name_of(Reduction op) {
  switch (op) {
    case Reduction::kSum: return "sum";
    case Reduction::kAverage: return "average";
    case Reduction::kProduct: return "product";
    case Reduction::kMin: return "minimum";
    case Reduction::kMax: return "maximum";
    case Reduction::kBitAnd: return "bitwise and";
    case Reduction::kBitOr: return "bitwise or";
    case Reduction::kBitXor: return "bitwise xor";
  }
  return "reduction";
}

bool is_linear(Reduction op) { return op == Reduction::kSum || op == Reduction::kAverage; }
bool is_bitwise(Reduction op) { return op == Reduction::kBitAnd || op == Reduction::kBitOr || op == Reduction::kBitXor; }

[[noreturn]] void refuse_reduction(const at::Tensor& tensor, const ReduceHow& how) {
  throw bad_input(how.operation + ": a " + (how.factor.defined() ? "sum with a factor" : name_of(how.op)) + " of " +
                      c10::toString(tensor.scalar_type()) + " has no meaning.",
                  "Convert to another type first, or use another reduction.");
}

void check_reducible(const at::Tensor& tensor, const ReduceHow& how) {
  const c10::ScalarType type = tensor.scalar_type();
  const bool complex = c10::isComplexType(type);
  const bool small_float = c10::isFloat8Type(type);
  if (how.factor.defined() && !how.factor.device().is_cpu()) check_device(how.factor.device(), tensor.device(), how.operation);
  if (how.factor.defined() && !(complex || small_float || (known(type) && c10::isFloatingType(type)))) refuse_reduction(tensor, how);
  if (known(type)) return;
  const bool possible = complex ? is_linear(how.op) : small_float ? !is_bitwise(how.op)
                        : is_unsigned(type) && how.op != Reduction::kAverage && how.op != Reduction::kMin && how.op != Reduction::kMax;
  if (!possible) refuse_reduction(tensor, how);
}

}  // namespace

void check_tensor(const at::Tensor& tensor, const std::string& operation) {
  if (!tensor.defined()) throw bad_input(operation + " got an undefined tensor.");
  if (!tensor.device().is_cpu() && !tensor.device().is_cuda() && !tensor.device().is_privateuseone()) {
    throw bad_input(operation + " got a tensor on " + tensor.device().str() + ", but the wirewise backend moves memory of the CPU and of CUDA devices.",
                    "Move it to one of them.");
  }
  if (tensor.layout() != c10::kStrided) {
    throw bad_input(operation + " got a tensor that is not dense.", "Convert it with to_dense().");
  }
  if (c10::isQIntType(tensor.scalar_type())) {
    throw bad_input(operation + " got a quantized tensor, of type " + c10::toString(tensor.scalar_type()) + ".",
                    "Send its int_repr() and its scales.");
  }
  if (tensor.is_conj()) {
    throw bad_input(operation + " got a conjugate view.", "Pass resolve_conj() of it.");
  }
}

void check_tensors(std::span<const at::Tensor> tensors, const std::string& operation) {
  if (tensors.empty()) throw bad_input(operation + " got an empty list of tensors.");
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, operation);
    if (tensor.scalar_type() != tensors.front().scalar_type()) {
      throw bad_input(operation + " got tensors of different types: " + c10::toString(tensors.front().scalar_type()) + " and " +
                      c10::toString(tensor.scalar_type()) + ".");
    }
    check_device(tensor.device(), tensors.front().device(), operation);
  }
}

void check_device(c10::Device one, c10::Device other, const std::string& operation) {
  if (one == other) return;
  throw bad_input(operation + " got tensors on " + other.str() + " and on " + one.str() + ".", "Move them to one device.");
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

ReduceHow to_reduction(const c10d::ReduceOp& op, const std::string& operation) {
  ReduceHow how;
  how.operation = operation;
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return how;
    case c10d::ReduceOp::AVG: how.op = Reduction::kAverage; return how;
    case c10d::ReduceOp::PRODUCT: how.op = Reduction::kProduct; return how;
    case c10d::ReduceOp::MIN: how.op = Reduction::kMin; return how;
    case c10d::ReduceOp::MAX: how.op = Reduction::kMax; return how;
    case c10d::ReduceOp::BAND: how.op = Reduction::kBitAnd; return how;
    case c10d::ReduceOp::BOR: how.op = Reduction::kBitOr; return how;
    case c10d::ReduceOp::BXOR: how.op = Reduction::kBitXor; return how;
    case c10d::ReduceOp::PREMUL_SUM: {
      const auto* const supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      if (supplement == nullptr) throw bad_input(operation + " was asked for PREMUL_SUM without a factor.", "Give it one.");
      how.factor = supplement->tensor_factor.defined() ? supplement->tensor_factor.detach()
                                                       : at::scalar_tensor(supplement->double_factor, at::kDouble);
      if (how.factor.numel() != 1) {
        throw bad_input(operation + " was asked for PREMUL_SUM with a factor of " + std::to_string(how.factor.numel()) + " elements.",
                        "Give a number, or a tensor of one element.");
      }
      return how;
    }
    case c10d::ReduceOp::UNUSED: break;
  }
  throw bad_input(operation + " was asked for an unknown reduction.");
}

at::Tensor movable(const at::Tensor& tensor, const std::string& operation) {
  check_tensor(tensor, operation);
  const c10::ScalarType type = tensor.scalar_type();
  if (known(type)) return tensor;
  const at::Tensor plain = tensor.detach();
  if (c10::isComplexType(type)) return at::view_as_real(plain.dim() == 0 ? plain.view({1}) : plain);
  return plain.view(integer_of_size(plain.element_size()));
}

std::vector<at::Tensor> movable(std::span<const at::Tensor> tensors, const std::string& operation) {
  std::vector<at::Tensor> views;
  for (const at::Tensor& tensor : tensors) views.push_back(movable(tensor, operation));
  return views;
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

at::Tensor Staging::reduced_input(const at::Tensor& tensor, const ReduceHow& how) {
  check_tensor(tensor, how.operation);
  check_reducible(tensor, how);
  const at::NoGradGuard no_grad;
  const bool small_float = c10::isFloat8Type(tensor.scalar_type());
  if (!small_float && !how.factor.defined()) return input(movable(tensor, how.operation));
  at::Tensor copy = small_float ? tensor.detach().to(at::kFloat) : tensor.detach();
  if (how.factor.defined()) copy = at::mul(copy, how.factor.reshape(at::IntArrayRef{}).to(copy.scalar_type()));
  return kept_.emplace_back(movable(copy.contiguous(), how.operation));
}

std::vector<at::Tensor> Staging::reduced_inputs(std::span<const at::Tensor> tensors, const ReduceHow& how) {
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& tensor : tensors) inputs.push_back(reduced_input(tensor, how));
  return inputs;
}

at::Tensor Staging::reduced_output(const at::Tensor& tensor, const ReduceHow& how) {
  check_tensor(tensor, how.operation);
  check_reducible(tensor, how);
  if (!c10::isFloat8Type(tensor.scalar_type())) return output(movable(tensor, how.operation));
  const at::NoGradGuard no_grad;
  at::Tensor copy = at::empty(tensor.sizes(), tensor.options().dtype(at::kFloat).memory_format(at::MemoryFormat::Contiguous));
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
