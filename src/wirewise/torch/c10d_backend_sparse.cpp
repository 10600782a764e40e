// Sums of sparse tensors: every rank gathers all ranks' elements, whose numbers differ, and adds them up in the canonical order.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <bit>
#include <string>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/torch/c10d_backend.h"
#include "wirewise/torch/c10d_backend_call.h"

namespace wirewise {
namespace {

// Ranks first .. first + count - 1, split at the largest power of two below their number, as dense sums are.
at::Tensor canonical_sum(const std::vector<at::Tensor>& parts, std::size_t first, std::size_t count) {
  if (count == 1) return parts[first];
  const std::size_t left = std::bit_floor(count - 1);
  return at::add(canonical_sum(parts, first, left), canonical_sum(parts, first + left, count - left));
}

}  // namespace

WirewiseBackend::WorkPtr WirewiseBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  Call call(c10d::OpType::_ALLREDUCE_SPARSE, "wirewise:sparse_all_reduce", options.timeout, options.asyncOp);
  if (tensors.size() != 1 || tensors.front().layout() != c10::kSparse) {
    throw bad_input("allreduce_sparse takes one sparse COO tensor.");
  }
  const ReduceHow reduction = to_reduction(options.reduceOp, "allreduce of sparse tensors");
  if (reduction.op != Reduction::kSum || reduction.factor.defined()) {
    throw bad_input("allreduce of sparse tensors was asked for another reduction than SUM.", "Convert them with to_dense().");
  }
  const at::NoGradGuard no_grad;
  const at::Tensor own = tensors.front().detach().coalesce();
  const at::Tensor indices = own._indices().contiguous();
  const at::Tensor values = own._values().contiguous();
  const CallOptions how = call_options(call);
  const auto ranks = static_cast<std::size_t>(getSize());

  std::vector<std::int64_t> shape{own._nnz(), own.sparse_dim()};
  for (const std::int64_t size : own.sizes()) shape.push_back(size);
  std::vector<std::int64_t> shapes(shape.size() * ranks);
  communicator().all_gather(ConstBuffer{shape.data(), DType::kInt64}, Buffer{shapes.data(), DType::kInt64}, shape.size(), how).wait();
  Tensors all_indices;
  Tensors all_values;
  std::vector<wirewise::Work> works;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::int64_t* const theirs = shapes.data() + rank * shape.size();
    if (!std::equal(theirs + 1, theirs + shape.size(), shape.begin() + 1)) {
      throw Error(ErrorKind::kMismatch, "ranks disagree: in allreduce of sparse tensors, rank " + std::to_string(rank) +
                                            " has another shape than rank " + std::to_string(getRank()) + ".",
                  "Give all ranks tensors of one shape.");
    }
    const bool mine = static_cast<int>(rank) == getRank();
    auto value_sizes = values.sizes().vec();
    value_sizes[0] = theirs[0];
    all_indices.push_back(mine ? indices : at::empty({own.sparse_dim(), theirs[0]}, indices.options()));
    all_values.push_back(mine ? values : at::empty(value_sizes, values.options()));
    for (const at::Tensor& tensor : {all_indices.back(), movable(all_values.back(), reduction.operation)}) {
      works.push_back(communicator(own.device()).broadcast(write_buffer(tensor), count_of(tensor), static_cast<int>(rank), how));
    }
  }
  for (wirewise::Work& work : works) work.wait();

  const c10::ScalarType type = values.scalar_type();
  const bool widen = type == at::kHalf || type == at::kBFloat16;  // rounded once
  std::vector<at::Tensor> parts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const at::Tensor& theirs = all_values[rank];
    parts.push_back(at::_sparse_coo_tensor_unsafe(all_indices[rank], widen ? theirs.to(at::kFloat) : theirs, own.sizes())._coalesced_(true));
  }
  const at::Tensor sum = canonical_sum(parts, 0, ranks).coalesce();
  tensors.front().copy_(widen ? sum.to(type) : sum);
  if (!own.device().is_cpu()) {
    const c10::impl::VirtualGuardImpl device(own.device().type());
    device.synchronizeStream(device.getStream(own.device()));
  }
  call.request.outputs = tensors;
  return run(std::move(call), {});
}

}  // namespace wirewise
