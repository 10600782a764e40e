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
#include <vector>

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

/// What ranks tell each other first: how many elements they have, and the shape.
std::vector<std::int64_t> header_of(const at::Tensor& own) {
  std::vector<std::int64_t> header{own._nnz(), own.sparse_dim()};
  for (const std::int64_t size : own.sizes()) header.push_back(size);
  return header;
}

/// `all`: the headers of all ranks, in rank order.
void require_one_shape(const std::int64_t* all, const std::vector<std::int64_t>& own, std::size_t ranks, int me) {
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::int64_t* const theirs = all + rank * own.size();
    if (std::equal(theirs + 1, theirs + own.size(), own.begin() + 1)) continue;
    throw Error(ErrorKind::kMismatch, "ranks disagree: in allreduce of sparse tensors, rank " + std::to_string(rank) + " has another shape than rank " +
                                          std::to_string(me) + ".",
                "Give all ranks tensors of one shape.");
  }
}

/// 16-bit values are added in float32, and rounded once.
at::Tensor sum_of(const std::vector<at::Tensor>& indices, const std::vector<at::Tensor>& values, at::IntArrayRef sizes) {
  const c10::ScalarType type = values.front().scalar_type();
  const bool widen = type == at::kHalf || type == at::kBFloat16;
  std::vector<at::Tensor> parts;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    parts.push_back(at::_sparse_coo_tensor_unsafe(indices[rank], widen ? values[rank].to(at::kFloat) : values[rank], sizes)._coalesced_(true));
  }
  const at::Tensor sum = canonical_sum(parts, 0, parts.size()).coalesce();
  return widen ? sum.to(type) : sum;
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

  const std::vector<std::int64_t> header = header_of(own);
  const auto width = static_cast<std::int64_t>(header.size());
  const at::Tensor shape = at::empty({width}, at::kLong);
  const at::Tensor shapes = at::empty({getSize(), width}, at::kLong);
  std::copy(header.begin(), header.end(), shape.mutable_data_ptr<std::int64_t>());
  exchange("wirewise:all_gather", {shapes, shape}, c10::kCPU,
           {[&] { return communicator().all_gather(read_buffer(shape), write_buffer(shapes), header.size(), how); }});
  const std::int64_t* const all_shapes = shapes.const_data_ptr<std::int64_t>();
  // Of all ranks before anything is issued: either all of them go on, or none does, and the group stays usable.
  require_one_shape(all_shapes, header, ranks, getRank());

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

  tensors.front().copy_(sum_of(all_indices, all_values, own.sizes()));
  if (!own.device().is_cpu()) {
    const c10::impl::VirtualGuardImpl device(own.device().type());
    device.synchronizeStream(device.getStream(own.device()));
  }
  call.request.outputs = tensors;
  return run(std::move(call), {});
}

}  // namespace wirewise
