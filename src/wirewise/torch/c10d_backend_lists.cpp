// Collectives on lists of tensors, one for each rank: packed into one buffer unless they lie back to back already. Lists whose
// tensors differ in size (which every rank sees alike) go as one operation for each rank.
#include <algorithm>
#include <numeric>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/torch/c10d_backend.h"
#include "wirewise/torch/c10d_backend_call.h"

namespace wirewise {
namespace {

// Elements for each rank when `tensor` is cut along its first dimension by `splits`, evenly when there are none.
std::vector<std::size_t> split_counts(const at::Tensor& tensor, const std::vector<std::int64_t>& splits, int size,
                                      const char* name) {
  const std::string which = std::string("alltoall_base: the ") + name;
  const auto ranks = static_cast<std::size_t>(size);
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const auto per_row = static_cast<std::size_t>(rows == 0 ? 0 : tensor.numel() / rows);
  if (splits.empty()) {
    if (rows % size != 0) {
      throw bad_input(which + "'s first dimension of " + std::to_string(rows) + " can't be split evenly over " +
                          std::to_string(size) + " ranks.",
                      "Give split sizes.");
    }
    return std::vector<std::size_t>(ranks, static_cast<std::size_t>(rows / size) * per_row);
  }
  const bool negative = std::any_of(splits.begin(), splits.end(), [](std::int64_t split) { return split < 0; });
  if (splits.size() != ranks || negative || std::accumulate(splits.begin(), splits.end(), std::int64_t{0}) != rows) {
    throw bad_input(which + " splits must be " + std::to_string(size) +
                    " sizes of at least 0 that add up to its first dimension, " + std::to_string(rows) + ".");
  }
  std::vector<std::size_t> counts;
  for (const std::int64_t split : splits) counts.push_back(static_cast<std::size_t>(split) * per_row);
  return counts;
}

std::vector<std::size_t> counts_of(std::span<const at::Tensor> tensors) {
  std::vector<std::size_t> counts;
  for (const at::Tensor& tensor : tensors) counts.push_back(count_of(tensor));
  return counts;
}

void check_same_type(const at::Tensor& a, const at::Tensor& b, const char* operation) {
  const at::Tensor both[] = {a, b};
  check_tensors(both, operation);
}

void check_same_count(const at::Tensor& listed, const at::Tensor& own, const char* operation) {
  check_same_type(listed, own, operation);
  if (listed.numel() != own.numel()) {
    throw bad_input(std::string(operation) + ": the list holds " + std::to_string(listed.numel()) +
                    " elements for this rank, but its own tensor has " + std::to_string(own.numel()) + ".");
  }
}

// allgather_coalesced has a list for each rank, with an output for each input.
void check_lists(const std::vector<std::vector<at::Tensor>>& outputs, const std::vector<at::Tensor>& inputs, int size) {
  if (inputs.empty() || outputs.size() != static_cast<std::size_t>(size)) {
    throw bad_input("allgather_coalesced needs inputs and a list of outputs for each of the " + std::to_string(size) + " ranks, but got " +
                    std::to_string(inputs.size()) + " inputs and " + std::to_string(outputs.size()) + " lists.");
  }
  for (const auto& list : outputs) {
    if (list.size() != inputs.size()) {
      throw bad_input("allgather_coalesced got a list of " + std::to_string(list.size()) + " outputs for " + std::to_string(inputs.size()) +
                      " inputs.");
    }
    for (std::size_t i = 0; i < list.size(); ++i) check_same_count(list[i], inputs[i], "allgather_coalesced");
  }
}

}  // namespace

void check_pairs(const std::string& operation, std::span<const at::Tensor> fulls, std::span<const at::Tensor> shards,
                 const std::string& full_name, const std::string& shard_name, int size) {
  if (fulls.empty() || fulls.size() != shards.size()) {
    throw bad_input(operation + " got " + std::to_string(fulls.size()) + " " + full_name + "s and " +
                    std::to_string(shards.size()) + " " + shard_name + "s.");
  }
  for (std::size_t i = 0; i < fulls.size(); ++i) {
    const at::Tensor pair[] = {fulls[i], shards[i]};
    check_tensors(pair, operation);
    if (fulls[i].numel() != shards[i].numel() * size) {
      throw bad_input(operation + ": the " + full_name + " has " + std::to_string(fulls[i].numel()) + " elements, but needs " +
                      std::to_string(size) + " (ranks) times the " + std::to_string(shards[i].numel()) + " of the " + shard_name +
                      ".");
    }
  }
}

WirewiseBackend::WorkPtr WirewiseBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& options) {
  Call call(c10d::OpType::ALLGATHER, "wirewise:all_gather", options.timeout, options.asyncOp);
  const at::Tensor& input = only_tensor(inputs, "allgather");
  const Tensors& list = tensor_per_rank(outputs, getSize(), "allgather");
  check_same_count(list[static_cast<std::size_t>(getRank())], input, "allgather");
  call.request.inputs = inputs;
  call.request.outputs = list;
  if (!same_counts(list)) return gather_uneven(std::move(call), list, input);
  const at::Tensor full = call.request.staging.packed_output(movable(list, "allgather"));
  at::Tensor shard = call.request.staging.input(movable(input, "allgather"));
  if (overlap(full, shard) && !is_own_slice(full, shard)) shard = call.request.staging.input_copy(shard);
  const CallOptions how = call_options(call);
  return run(std::move(call),
             {[&](Communicator& by) { return by.all_gather(read_buffer(shard), write_buffer(full), count_of(shard), how); }});
}

WirewiseBackend::WorkPtr WirewiseBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  Call call(c10d::OpType::ALLGATHER_COALESCED, "wirewise:all_gather", options.timeout, options.asyncOp);
  check_lists(outputs, inputs, getSize());
  call.request.inputs = inputs;
  std::vector<AllGatherPart> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors list;
    for (const Tensors& of_rank : outputs) list.push_back(of_rank[i]);
    call.request.outputs.insert(call.request.outputs.end(), list.begin(), list.end());
    const at::Tensor full = call.request.staging.packed_output(movable(list, "allgather_coalesced"));
    at::Tensor shard = call.request.staging.input(movable(inputs[i], "allgather_coalesced"));
    if (overlap(full, shard) && !is_own_slice(full, shard)) shard = call.request.staging.input_copy(shard);
    parts.push_back({read_buffer(shard), write_buffer(full), count_of(shard)});
  }
  const CallOptions how = call_options(call);
  return run(std::move(call), {[&](Communicator& by) { return by.all_gather(parts, how); }});
}

WirewiseBackend::WorkPtr WirewiseBackend::gather_uneven(Call call, const Tensors& outputs, const at::Tensor& input) {
  Tensors staged;
  for (int rank = 0; rank < getSize(); ++rank) {
    const at::Tensor output = movable(outputs[static_cast<std::size_t>(rank)], "allgather");
    staged.push_back(call.request.staging.output(output));
    if (rank == getRank()) staged.back().copy_(movable(input.detach(), "allgather").reshape(staged.back().sizes()));
  }
  const CallOptions how = call_options(call);
  std::vector<Issue> issues;
  for (int rank = 0; rank < getSize(); ++rank) {
    const at::Tensor& tensor = staged[static_cast<std::size_t>(rank)];
    issues.emplace_back([&, rank](Communicator& by) { return by.broadcast(write_buffer(tensor), count_of(tensor), rank, how); });
  }
  return run(std::move(call), issues);
}

WirewiseBackend::WorkPtr WirewiseBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                         const c10d::ReduceScatterOptions& options) {
  Call call(c10d::OpType::REDUCE_SCATTER, "wirewise:reduce_scatter", options.timeout, options.asyncOp);
  const at::Tensor& output = only_tensor(outputs, "reduce_scatter");
  const Tensors& list = tensor_per_rank(inputs, getSize(), "reduce_scatter");
  check_same_count(list[static_cast<std::size_t>(getRank())], output, "reduce_scatter");
  const ReduceHow reduction = to_reduction(options.reduceOp, "reduce_scatter");
  call.request.inputs = list;
  call.request.outputs = outputs;
  if (!same_counts(list)) return reduce_scatter_uneven(std::move(call), output, list, reduction);
  const at::Tensor full = call.request.staging.packed_input(call.request.staging.reduced_inputs(list, reduction));
  at::Tensor shard = call.request.staging.reduced_output(output, reduction);
  if (overlap(full, shard) && !is_own_slice(full, shard)) shard = call.request.staging.output_copy(movable(output, "reduce_scatter"));
  const CallOptions how = call_options(call);
  return run(std::move(call),
             {[&](Communicator& by) { return by.reduce_scatter(read_buffer(full), write_buffer(shard), count_of(shard), reduction.op, how); }});
}

WirewiseBackend::WorkPtr WirewiseBackend::reduce_scatter_uneven(Call call, const at::Tensor& output, const Tensors& inputs,
                                                                const ReduceHow& reduction) {
  const Tensors staged = call.request.staging.reduced_inputs(inputs, reduction);
  at::Tensor shard = call.request.staging.reduced_output(output, reduction);
  const auto overlaps = [&](const at::Tensor& input) { return overlap(input, shard); };
  if (std::any_of(staged.begin(), staged.end(), overlaps)) shard = call.request.staging.output_copy(movable(output, "reduce_scatter"));
  const CallOptions how = call_options(call);
  std::vector<Issue> issues;
  for (int rank = 0; rank < getSize(); ++rank) {
    const at::Tensor& tensor = staged[static_cast<std::size_t>(rank)];
    issues.emplace_back([&, rank](Communicator& by) {
      const Buffer out = rank == getRank() ? write_buffer(shard) : Buffer{nullptr, read_buffer(tensor).dtype};
      return by.reduce(read_buffer(tensor), out, count_of(tensor), rank, reduction.op, how);
    });
  }
  return run(std::move(call), issues);
}

WirewiseBackend::WorkPtr WirewiseBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                        std::vector<std::int64_t>& output_splits,
                                                        std::vector<std::int64_t>& input_splits,
                                                        const c10d::AllToAllOptions& options) {
  Call call(c10d::OpType::ALLTOALL_BASE, "wirewise:all_to_all", options.timeout, options.asyncOp);
  check_same_type(output, input, "alltoall_base");
  const at::Tensor output_view = movable(output, "alltoall_base");
  const at::Tensor input_view = movable(input, "alltoall_base");
  const auto send_counts = split_counts(input_view, input_splits, getSize(), "input");
  const auto recv_counts = split_counts(output_view, output_splits, getSize(), "output");
  call.request.inputs = {input};
  call.request.outputs = {output};
  const at::Tensor out = call.request.staging.output(output_view);
  at::Tensor in = call.request.staging.input(input_view);
  if (overlap(out, in)) in = call.request.staging.input_copy(in);
  const CallOptions how = call_options(call);
  return run(std::move(call),
             {[&](Communicator& by) { return by.all_to_all(read_buffer(in), send_counts, write_buffer(out), recv_counts, how); }});
}

WirewiseBackend::WorkPtr WirewiseBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  Call call(c10d::OpType::ALLTOALL, "wirewise:all_to_all", options.timeout, options.asyncOp);
  const TensorLists in_lists{inputs};
  const TensorLists out_lists{outputs};
  (void)tensor_per_rank(in_lists, getSize(), "alltoall");
  (void)tensor_per_rank(out_lists, getSize(), "alltoall");
  check_same_type(inputs.front(), outputs.front(), "alltoall");
  const Tensors input_views = movable(inputs, "alltoall");
  const Tensors output_views = movable(outputs, "alltoall");
  const auto send_counts = counts_of(input_views);
  const auto recv_counts = counts_of(output_views);
  call.request.inputs = inputs;
  call.request.outputs = outputs;
  const at::Tensor out = call.request.staging.packed_output(output_views);
  at::Tensor in = call.request.staging.packed_input(input_views);
  if (overlap(out, in)) in = call.request.staging.input_copy(in);
  const CallOptions how = call_options(call);
  return run(std::move(call),
             {[&](Communicator& by) { return by.all_to_all(read_buffer(in), send_counts, write_buffer(out), recv_counts, how); }});
}

WirewiseBackend::WorkPtr WirewiseBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  Call call(c10d::OpType::GATHER, "wirewise:gather", options.timeout, options.asyncOp);
  const at::Tensor& input = only_tensor(inputs, "gather");
  check_rank(options.rootRank, "root", "gather");
  const bool is_root = options.rootRank == getRank();
  call.request.inputs = inputs;
  at::Tensor shard = call.request.staging.input(movable(input, "gather"));
  Buffer full{nullptr, read_buffer(shard).dtype};
  if (is_root) {
    const Tensors& list = tensor_per_rank(outputs, getSize(), "gather");
    for (const at::Tensor& tensor : list) check_same_count(tensor, input, "gather");
    call.request.outputs = list;
    const at::Tensor packed = call.request.staging.packed_output(movable(list, "gather"));
    if (overlap(packed, shard) && !is_own_slice(packed, shard)) shard = call.request.staging.input_copy(shard);
    full = write_buffer(packed);
  } else if (!outputs.empty()) {
    throw bad_input("gather: rank " + std::to_string(getRank()) + " is not the root, so it must give no outputs.");
  }
  const CallOptions how = call_options(call);
  return run(std::move(call), {[&](Communicator& by) {
               return by.gather(read_buffer(shard), full, count_of(shard), static_cast<int>(options.rootRank), how);
             }});
}

WirewiseBackend::WorkPtr WirewiseBackend::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) {
  Call call(c10d::OpType::SCATTER, "wirewise:scatter", options.timeout, options.asyncOp);
  const at::Tensor& output = only_tensor(outputs, "scatter");
  check_rank(options.rootRank, "root", "scatter");
  const bool is_root = options.rootRank == getRank();
  at::Tensor shard = call.request.staging.output(movable(output, "scatter"));
  ConstBuffer full{nullptr, read_buffer(shard).dtype};
  call.request.outputs = outputs;
  if (is_root) {
    const Tensors& list = tensor_per_rank(inputs, getSize(), "scatter");
    call.request.inputs = list;
    for (const at::Tensor& tensor : list) check_same_count(tensor, output, "scatter");
    const at::Tensor packed = call.request.staging.packed_input(movable(list, "scatter"));
    if (overlap(packed, shard) && !is_own_slice(packed, shard)) shard = call.request.staging.output_copy(movable(output, "scatter"));
    full = read_buffer(packed);
  } else if (!inputs.empty()) {
    throw bad_input("scatter: rank " + std::to_string(getRank()) + " is not the root, so it must give no inputs.");
  }
  const CallOptions how = call_options(call);
  return run(std::move(call), {[&](Communicator& by) {
               return by.scatter(full, write_buffer(shard), count_of(shard), static_cast<int>(options.rootRank), how);
             }});
}

}  // namespace wirewise
