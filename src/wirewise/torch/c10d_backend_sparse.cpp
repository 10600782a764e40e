// Sums of sparse tensors: every rank gathers all ranks' elements, whose numbers differ, and adds them up in the canonical order.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
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

  // The handle keeps its tensors alive until the last of its operations is done, whatever is thrown on the way.
  const auto exchange = [&](const char* title, Tensors moved, c10::Device device, const std::vector<WirewiseWork::Issue>& issues) {
    WirewiseWork::Request request;
    request.type = c10d::OpType::_ALLREDUCE_SPARSE;
    request.title = title;
    request.outputs = std::move(moved);
    request.device = device;
    request.health = health_;
    request.callbacks = callbacks_;
    (void)WirewiseWork::start(getRank(), std::move(request), issues)->wait();
  };

  std::vector<std::int64_t> header{own._nnz(), own.sparse_dim()};
  for (const std::int64_t size : own.sizes()) header.push_back(size);
  const auto width = static_cast<std::int64_t>(header.size());
  const at::Tensor shape = at::empty({width}, at::kLong);
  const at::Tensor shapes = at::empty({getSize(), width}, at::kLong);
  std::copy(header.begin(), header.end(), shape.mutable_data_ptr<std::int64_t>());
  exchange("wirewise:all_gather", {shapes, shape}, c10::kCPU,
           {[&] { return communicator().all_gather(read_buffer(shape), write_buffer(shapes), header.size(), how); }});
  const std::int64_t* const all_shapes = shapes.const_data_ptr<std::int64_t>();
  // Of all ranks before anything is issued: either all of them go on, or none does, and the group stays usable.
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::int64_t* const theirs = all_shapes + rank * header.size();
    if (!std::equal(theirs + 1, theirs + header.size(), header.begin() + 1)) {
      throw Error(ErrorKind::kMismatch, "ranks disagree: in allreduce of sparse tensors, rank " + std::to_string(rank) +
                                            " has another shape than rank " + std::to_string(getRank()) + ".",
                  "Give all ranks tensors of one shape.");
    }
  }

  Tensors all_indices;
  Tensors all_values;
  Tensors moved;
  std::vector<WirewiseWork::Issue> broadcasts;
  Communicator& by = communicator(own.device());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const bool mine = static_cast<int>(rank) == getRank();
    const std::int64_t elements = all_shapes[rank * header.size()];
    auto value_sizes = values.sizes().vec();
    value_sizes[0] = elements;
    all_indices.push_back(mine ? indices : at::empty({own.sparse_dim(), elements}, indices.options()));
    all_values.push_back(mine ? values : at::empty(value_sizes, values.options()));
    for (const at::Tensor& tensor : {all_indices.back(), movable(all_values.back(), reduction.operation)}) {
      moved.push_back(tensor);
      broadcasts.push_back([&by, &how, tensor, root = static_cast<int>(rank)] { return by.broadcast(write_buffer(tensor), count_of(tensor), root, how); });
    }
  }
  exchange("wirewise:broadcast", std::move(moved), own.device(), broadcasts);

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
