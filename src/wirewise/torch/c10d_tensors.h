// From tensors to the raw buffers of a communicator: checks that name what is wrong, views as types that it knows, and staging of
// tensors that aren't one run of memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "wirewise/comm/communicator.h"

namespace wirewise {

/// Throws bad input unless the tensor is dense, of a type that can be moved, and in memory that a backend may reach. `operation` is named in the error.
void check_tensor(const at::Tensor& tensor, const std::string& operation);
/// The same for a list; all must be of one type and on one device.
void check_tensors(std::span<const at::Tensor> tensors, const std::string& operation);
/// Throws bad input that names both unless they are one.
void check_device(c10::Device one, c10::Device other, const std::string& operation);
/// The only tensor of a list, which c10d passes where one is meant.
[[nodiscard]] const at::Tensor& only_tensor(const std::vector<at::Tensor>& tensors, const std::string& operation);
/// The only list of lists, with one tensor for each of `size` ranks.
[[nodiscard]] const std::vector<at::Tensor>& tensor_per_rank(const std::vector<std::vector<at::Tensor>>& lists, int size,
                                                             const std::string& operation);

/// How tensors are reduced: PREMUL_SUM is a sum of the inputs times a factor.
struct ReduceHow {
  Reduction op = Reduction::kSum;
  at::Tensor factor;     // of one element, on the CPU or the device of the tensors; undefined: none
  std::string operation;  // for errors
};
/// Throws bad input that names what has no counterpart.
[[nodiscard]] ReduceHow to_reduction(const c10d::ReduceOp& op, const std::string& operation);

/// The same memory as elements that a communicator knows: pairs of reals for complex numbers; other types that it doesn't know as
/// integers of their size.
[[nodiscard]] at::Tensor movable(const at::Tensor& tensor, const std::string& operation);
[[nodiscard]] std::vector<at::Tensor> movable(std::span<const at::Tensor> tensors, const std::string& operation);

/// Views of contiguous tensors.
[[nodiscard]] ConstBuffer read_buffer(const at::Tensor& tensor);
[[nodiscard]] Buffer write_buffer(const at::Tensor& tensor);
[[nodiscard]] std::size_t count_of(const at::Tensor& tensor);
/// True when the two share memory.
[[nodiscard]] bool overlap(const at::Tensor& a, const at::Tensor& b);
/// True when all tensors have as many elements as the first.
[[nodiscard]] bool same_counts(std::span<const at::Tensor> tensors);

/// Keeps alive what an operation uses, and makes one run of memory where the user's tensors aren't. The tensors returned are
/// contiguous.
class Staging {
 public:
  /// The operation reads it.
  [[nodiscard]] at::Tensor input(const at::Tensor& tensor);
  /// Like input(), but always a copy: for inputs that the operation would overwrite.
  [[nodiscard]] at::Tensor input_copy(const at::Tensor& tensor);
  /// The operation writes it.
  [[nodiscard]] at::Tensor output(const at::Tensor& tensor);
  /// Like output(), but always memory of its own.
  [[nodiscard]] at::Tensor output_copy(const at::Tensor& tensor);
  /// The operation reads and writes it.
  [[nodiscard]] at::Tensor in_place(const at::Tensor& tensor);
  /// An input of a reduction: itself where the communicator can reduce its elements; a copy in float32 of 8-bit floats, a product where
  /// there is a factor. Throws bad input that names types for which the reduction has no meaning.
  [[nodiscard]] at::Tensor reduced_input(const at::Tensor& tensor, const ReduceHow& how);
  [[nodiscard]] std::vector<at::Tensor> reduced_inputs(std::span<const at::Tensor> tensors, const ReduceHow& how);
  /// What takes the result of such a reduction for `tensor`.
  [[nodiscard]] at::Tensor reduced_output(const at::Tensor& tensor, const ReduceHow& how);

  /// One-dimensional, all elements back to back; no copy where they already lie so.
  [[nodiscard]] at::Tensor packed_input(std::span<const at::Tensor> tensors);
  [[nodiscard]] at::Tensor packed_output(std::span<const at::Tensor> tensors);

  [[nodiscard]] bool has_copies() const noexcept { return !copies_.empty(); }
  /// Copies what was written elsewhere into the user's tensors, in the current stream where they are on a device.
  void write_back();
  /// Lets all tensors go.
  void clear() noexcept;

 private:
  std::vector<at::Tensor> kept_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // to, from
};

}  // namespace wirewise
