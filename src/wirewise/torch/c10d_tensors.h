// From tensors to the raw buffers of a communicator: checks that name what is wrong, and staging of tensors that aren't one run
// of memory.
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

/// Throws bad input unless the tensor is dense, on the CPU and of a type that collectives know. `operation` is named in the
/// error.
void check_tensor(const at::Tensor& tensor, const std::string& operation);
/// The same for a list; all must be of one type.
void check_tensors(std::span<const at::Tensor> tensors, const std::string& operation);
/// The only tensor of a list, which c10d passes where one is meant.
[[nodiscard]] const at::Tensor& only_tensor(const std::vector<at::Tensor>& tensors, const std::string& operation);
/// The only list of lists, with one tensor for each of `size` ranks.
[[nodiscard]] const std::vector<at::Tensor>& tensor_per_rank(const std::vector<std::vector<at::Tensor>>& lists, int size,
                                                             const std::string& operation);
/// Throws bad input that names PREMUL_SUM and what else has no counterpart.
[[nodiscard]] Reduction to_reduction(const c10d::ReduceOp& op, const std::string& operation);

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
  /// One-dimensional, all elements back to back; no copy where they already lie so.
  [[nodiscard]] at::Tensor packed_input(std::span<const at::Tensor> tensors);
  [[nodiscard]] at::Tensor packed_output(std::span<const at::Tensor> tensors);

  /// Copies what was written elsewhere into the user's tensors.
  void write_back();
  /// Lets all tensors go.
  void clear() noexcept;

 private:
  std::vector<at::Tensor> kept_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // to, from
};

}  // namespace wirewise
