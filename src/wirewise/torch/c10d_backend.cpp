// The backend's life and the collectives on whole tensors; those on lists of tensors are in c10d_backend_lists.cpp, messages in
// c10d_backend_messages.cpp.
#include "wirewise/torch/c10d_backend.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <optional>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/torch/c10d_backend_call.h"
#include "wirewise/torch/store_c10d.h"

namespace wirewise {
WirewiseBackend::WirewiseBackend(std::unique_ptr<Communicator> communicator, Milliseconds timeout, OpenDevice open)
    : c10d::Backend(communicator->rank(), communicator->size()),
      devices_(std::make_shared<BackendDevices>(std::move(communicator), std::move(open))),
      timeout_ms_(timeout.count()) {
  init();
}

WirewiseBackend::~WirewiseBackend() = default;

c10::intrusive_ptr<WirewiseBackend> WirewiseBackend::create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                          Milliseconds timeout) {
  auto shared = std::make_shared<C10dStore>(store, "the process group's store");
  // A group may be made again in one store (torchrun's agent keeps its own for the whole run), so each rank counts.
  const auto round = shared->add("wirewise/round/" + std::to_string(rank), 1);
  CommunicatorOptions options;
  options.timeout = timeout;
  options.name = "wirewise/" + std::to_string(round);
  return c10::make_intrusive<WirewiseBackend>(make_communicator(std::move(shared), rank, size, options), timeout);
}

c10::intrusive_ptr<c10d::Backend::Options> WirewiseBackend::getBackendOptions() {
  return c10::make_intrusive<Options>("wirewise", Milliseconds(timeout_ms_.load()));
}

void WirewiseBackend::setTimeout(Milliseconds timeout) {
  if (timeout <= Milliseconds(0)) {
    throw bad_input("The timeout of a process group must be above 0, but is " + std::to_string(timeout.count()) + " ms.");
  }
  timeout_ms_ = timeout.count();
}

Communicator& WirewiseBackend::communicator(c10::Device device) const {
  if (!devices_) throw Error(ErrorKind::kAborted, "The wirewise process group was shut down.", "Make a new group first.");
  return devices_->communicator(device);
}

CallOptions WirewiseBackend::call_options(const Call& call) const {
  CallOptions options;
  options.timeout = call.timeout > Milliseconds(0) ? call.timeout : Milliseconds(timeout_ms_.load());
  options.label = getGroupDesc();
  // A synchronous call is driven by the thread that would wait anyway, and wakes no other.
  if (!call.async && !coalescing()) options.progress = CallOptions::Progress::kOnWait;
  return options;
}

bool WirewiseBackend::is_own_slice(const at::Tensor& full, const at::Tensor& shard) const {
  return shard.const_data_ptr() ==
         static_cast<const char*>(full.const_data_ptr()) + static_cast<std::size_t>(getRank()) * shard.nbytes();
}

void WirewiseBackend::check_rank(std::int64_t rank, const char* what, const char* operation) const {
  if (rank < 0 || rank >= getSize()) {
    throw bad_input(std::string(operation) + " names rank " + std::to_string(rank) + " as its " + what +
                    ", but the group has ranks 0 to " + std::to_string(getSize() - 1) + ".");
  }
}

WirewiseBackend::WorkPtr WirewiseBackend::run(Call call, const std::vector<Issue>& issues) {
  std::optional<c10::Device> device = call.device;
  for (const Tensors* tensors : {&call.request.inputs, &call.request.outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      if (!device) device = tensor.device();
      check_device(tensor.device(), *device, call.request.title);
    }
  }
  call.request.device = device.value_or(c10::kCPU);
  Communicator& by = communicator(call.request.device);
  std::vector<WirewiseWork::Issue> bound;
  bound.reserve(issues.size());
  for (const Issue& issue : issues) bound.emplace_back([&issue, &by] { return issue(by); });
  call.request.sequence = sequence_++;
  call.request.health = health_;
  call.request.callbacks = callbacks_;
  const auto work = WirewiseWork::start(getRank(), std::move(call.request), bound);
  if (coalescing()) {
    coalesced_.push_back(work);
  } else if (!call.async) {
    (void)work->wait();
  }
  return work;
}

WirewiseBackend::WorkPtr WirewiseBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Call call(c10d::OpType::BROADCAST, "wirewise:broadcast", options.timeout, options.asyncOp);
  const at::Tensor& tensor = only_tensor(tensors, "broadcast");
  check_rank(options.rootRank, "root", "broadcast");
  call.request.inputs = call.request.outputs = tensors;
  const at::Tensor staged = call.request.staging.in_place(movable(tensor, "broadcast"));
  const CallOptions how = call_options(call);
  return run(std::move(call), {[&](Communicator& by) {
               return by.broadcast(write_buffer(staged), count_of(staged), static_cast<int>(options.rootRank), how);
             }});
}

WirewiseBackend::WorkPtr WirewiseBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (options.sparseIndices) {
    throw bad_input("allreduce got the indices of a sparse tensor apart from it, which the wirewise backend does not take.",
                    "Pass the sparse tensor itself.");
  }
  if (tensors.size() == 1 && tensors.front().defined() && tensors.front().layout() == c10::kSparse) return allreduce_sparse(tensors, options);
  (void)only_tensor(tensors, "allreduce");
  c10d::AllreduceCoalescedOptions coalesced;
  static_cast<c10d::AllreduceOptions&>(coalesced) = options;
  return allreduce_coalesced(tensors, coalesced);
}

WirewiseBackend::WorkPtr WirewiseBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  Call call(tensors.size() == 1 ? c10d::OpType::ALLREDUCE : c10d::OpType::ALLREDUCE_COALESCED, "wirewise:all_reduce",
            options.timeout, options.asyncOp);
  if (tensors.empty()) throw bad_input("allreduce_coalesced got an empty list of tensors.");
  const ReduceHow reduction = to_reduction(options.reduceOp, "allreduce");
  std::vector<ReducePart> parts;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor in = call.request.staging.reduced_input(tensor, reduction);
    const at::Tensor out = call.request.staging.reduced_output(tensor, reduction);
    parts.push_back({read_buffer(in), write_buffer(out), count_of(out)});
  }
  call.request.inputs = call.request.outputs = tensors;
  const CallOptions how = call_options(call);
  return run(std::move(call), {[&](Communicator& by) { return by.all_reduce(parts, reduction.op, how); }});
}

WirewiseBackend::WorkPtr WirewiseBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Call call(c10d::OpType::REDUCE, "wirewise:reduce", options.timeout, options.asyncOp);
  const at::Tensor& tensor = only_tensor(tensors, "reduce");
  check_rank(options.rootRank, "root", "reduce");
  const ReduceHow reduction = to_reduction(options.reduceOp, "reduce");
  const bool is_root = options.rootRank == getRank();
  call.request.inputs = call.request.outputs = tensors;
  const at::Tensor in = call.request.staging.reduced_input(tensor, reduction);
  const Buffer out = is_root ? write_buffer(call.request.staging.reduced_output(tensor, reduction)) : Buffer{nullptr, read_buffer(in).dtype};
  const CallOptions how = call_options(call);
  return run(std::move(call), {[&](Communicator& by) {
               return by.reduce(read_buffer(in), out, count_of(in), static_cast<int>(options.rootRank), reduction.op, how);
             }});
}

WirewiseBackend::WorkPtr WirewiseBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                          const c10d::AllgatherOptions& options) {
  return gather_into(Call(c10d::OpType::_ALLGATHER_BASE, "wirewise:all_gather", options.timeout, options.asyncOp), {output},
                     {input});
}

WirewiseBackend::WorkPtr WirewiseBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                          const c10d::AllgatherOptions& options) {
  return gather_into(Call(c10d::OpType::COALESCED, "wirewise:all_gather", options.timeout, options.asyncOp), outputs, inputs);
}

WirewiseBackend::WorkPtr WirewiseBackend::gather_into(Call call, const Tensors& outputs, const Tensors& inputs) {
  check_pairs("all_gather", outputs, inputs, "output", "input", getSize());
  std::vector<AllGatherPart> parts;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor full = call.request.staging.output(movable(outputs[i], "all_gather"));
    at::Tensor shard = call.request.staging.input(movable(inputs[i], "all_gather"));
    // Any other overlap would be overwritten while peers read it.
    if (overlap(full, shard) && !is_own_slice(full, shard)) shard = call.request.staging.input_copy(shard);
    parts.push_back({read_buffer(shard), write_buffer(full), count_of(shard)});
  }
  call.request.inputs = inputs;
  call.request.outputs = outputs;
  const CallOptions how = call_options(call);
  return run(std::move(call), {[&](Communicator& by) { return by.all_gather(parts, how); }});
}

WirewiseBackend::WorkPtr WirewiseBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                               const c10d::ReduceScatterOptions& options) {
  return scatter_from(Call(c10d::OpType::_REDUCE_SCATTER_BASE, "wirewise:reduce_scatter", options.timeout, options.asyncOp),
                      {output}, {input}, options.reduceOp);
}

WirewiseBackend::WorkPtr WirewiseBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                          const c10d::ReduceScatterOptions& options) {
  return scatter_from(Call(c10d::OpType::COALESCED, "wirewise:reduce_scatter", options.timeout, options.asyncOp), outputs, inputs,
                      options.reduceOp);
}

WirewiseBackend::WorkPtr WirewiseBackend::scatter_from(Call call, const Tensors& outputs, const Tensors& inputs,
                                                       const c10d::ReduceOp& reduce_op) {
  check_pairs("reduce_scatter", inputs, outputs, "input", "output", getSize());
  const ReduceHow reduction = to_reduction(reduce_op, "reduce_scatter");
  std::vector<ReducePart> parts;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor full = call.request.staging.reduced_input(inputs[i], reduction);
    at::Tensor shard = call.request.staging.reduced_output(outputs[i], reduction);
    // Peers still read the rest of the input while the result is written.
    if (overlap(full, shard) && !is_own_slice(full, shard)) shard = call.request.staging.output_copy(movable(outputs[i], "reduce_scatter"));
    parts.push_back({read_buffer(full), write_buffer(shard), count_of(shard)});
  }
  call.request.inputs = inputs;
  call.request.outputs = outputs;
  const CallOptions how = call_options(call);
  return run(std::move(call), {[&](Communicator& by) { return by.reduce_scatter(parts, reduction.op, how); }});
}

WirewiseBackend::WorkPtr WirewiseBackend::barrier(const c10d::BarrierOptions& options) {
  if (options.device_ids.size() > 1) {
    throw bad_input("barrier got " + std::to_string(options.device_ids.size()) + " device_ids.", "Give the one of this rank.");
  }
  Call call(c10d::OpType::BARRIER, "wirewise:barrier", options.timeout, options.asyncOp);
  call.device = options.device;
  // torch.distributed hands the index on, but not the type.
  if (!options.device_ids.empty()) {
    const auto type = call.device && !call.device->is_cpu() ? call.device->type() : c10::kCUDA;
    call.device = c10::Device(type, static_cast<c10::DeviceIndex>(options.device_ids.front()));
  }
  const CallOptions how = call_options(call);
  return run(std::move(call), {[&](Communicator& by) { return by.barrier(how); }});
}

void WirewiseBackend::startCoalescing() {
  std::thread::id nobody{};
  if (!coalescing_thread_.compare_exchange_strong(nobody, std::this_thread::get_id())) {
    throw bad_input("Coalescing was started twice in one process group.", "End it before the next start.");
  }
}

WirewiseBackend::WorkPtr WirewiseBackend::endCoalescing() {
  if (!coalescing()) throw bad_input("Coalescing was ended by a thread that had not started it.");
  const auto works = std::exchange(coalesced_, {});
  coalescing_thread_ = std::thread::id{};
  return WirewiseWork::join(getRank(), c10d::OpType::COALESCED, "wirewise:coalesced", works);
}

void WirewiseBackend::abort() {
  if (devices_) devices_->host()->abort("the process group was aborted");
}

void WirewiseBackend::shutdown() { devices_.reset(); }

at::Tensor WirewiseBackend::allocateTensor(long size, at::TensorOptions options) {
  if (size < 0) throw bad_input("allocateTensor was asked for " + std::to_string(size) + " elements.");
  if (options.device_opt() && !options.device().is_cpu()) {
    (void)communicator(options.device());  // or it says why not
    return at::empty({size}, options);
  }
  (void)communicator();
  const std::size_t bytes = static_cast<std::size_t>(size) * options.dtype().itemsize();
  const auto owner = devices_->host();
  void* memory = bytes == 0 ? nullptr : owner->allocate_shared(bytes);
  // The tensor keeps the communicator alive.
  const auto release = [owner](void* pointer) {
    if (pointer != nullptr) owner->free_shared(pointer);
  };
  return at::from_blob(memory, {size}, release, options.device(c10::kCPU));
}

}  // namespace wirewise
