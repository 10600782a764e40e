// A device of PyTorch for tests, whose memory is the host's: tensors of it go through the dispatcher, its guards and futures as those of a real
// device do, and are computed by the CPU's kernels.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace wirewise::testing::pretend {

inline constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
inline constexpr c10::DeviceIndex kDevices = 2;
inline c10::Device device(int index = 0) { return {kType, static_cast<c10::DeviceIndex>(index)}; }

inline thread_local c10::DeviceIndex current_device = 0;
inline thread_local c10::StreamId current_stream[kDevices] = {0, 0};
inline std::atomic<int> synchronized{0};  // streams, by anyone

/// Streams are numbers, and what is queued in one is done at once.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device d) const override { return {kType, std::exchange(current_device, d.index())}; }
  c10::Device getDevice() const override { return {kType, current_device}; }
  void setDevice(c10::Device d) const override { current_device = d.index(); }
  void uncheckedSetDevice(c10::Device d) const noexcept override { current_device = d.index(); }
  c10::Stream getStream(c10::Device d) const override { return c10::Stream(c10::Stream::UNSAFE, d, current_stream[place(d)]); }
  c10::Stream getDefaultStream(c10::Device d) const override { return c10::Stream(c10::Stream::DEFAULT, d); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return c10::Stream(c10::Stream::UNSAFE, d, 1); }
  c10::Stream exchangeStream(c10::Stream s) const override {
    return c10::Stream(c10::Stream::UNSAFE, s.device(), std::exchange(current_stream[place(s.device())], s.id()));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override { *event = &mark_; }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { ++synchronized; }
  void synchronizeEvent(void*) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}

 private:
  static std::size_t place(c10::Device d) { return static_cast<std::size_t>(d.index()); }
  static inline char mark_ = 0;
};

class Memory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const pointer = bytes == 0 ? nullptr : std::malloc(bytes);
    return {pointer, pointer, &std::free, c10::Device(kType, current_device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};
inline Memory memory;

/// The same elements as a tensor of the CPU.
inline at::Tensor on_cpu(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.device().is_privateuseone()) return tensor;
  at::Tensor view = at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(), [tensor](void*) {},
                                  at::TensorOptions().dtype(tensor.scalar_type()));
  view._set_neg(tensor.is_neg());
  view._set_conj(tensor.is_conj());
  return view;
}

inline at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>, std::optional<at::Device> on,
                        std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(on.value_or(device()).has_index() ? on.value_or(device()) : device());
  return at::detail::empty_generic(sizes, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type.value_or(at::kFloat), format);
}
inline at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                                std::optional<at::Device> on, std::optional<bool>) {
  const c10::DeviceGuard guard(on.value_or(device()).has_index() ? on.value_or(device()) : device());
  return at::detail::empty_strided_generic(sizes, strides, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type.value_or(at::kFloat));
}
inline at::Tensor& copy_(at::Tensor& to, const at::Tensor& from, bool) {
  on_cpu(to).copy_(on_cpu(from));
  return to;
}

/// Any other operator: by the CPU's kernel on the same memory.
inline void by_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::size_t arguments = op.schema().arguments().size();
  const std::size_t begin = stack->size() - arguments;
  std::vector<at::Tensor> ours;
  c10::Device on = device();
  const auto replaced = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.device().is_privateuseone()) return tensor;
    ours.push_back(tensor);
    on = tensor.device();
    return on_cpu(tensor);
  };
  for (std::size_t i = begin; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor()) {
      value = replaced(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(replaced(tensor));
      value = list;
    } else if (value.isDevice() && value.toDevice().is_privateuseone()) {
      value = c10::Device(c10::kCPU);
    }
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (std::size_t i = begin; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor result = value.toTensor();
    at::Tensor back;
    for (const at::Tensor& tensor : ours) {  // in place, or into an argument
      if (result.numel() > 0 && tensor.const_data_ptr() == result.const_data_ptr() && tensor.sizes() == result.sizes()) back = tensor;
    }
    if (!back.defined()) {
      back = at::empty_strided(result.sizes(), result.strides(), result.options().device(on));
      copy_(back, result, false);
    }
    value = back;
  }
}

inline at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}

}  // namespace wirewise::testing::pretend

// One file of a program includes this header: it registers the device.
namespace c10::impl {
C10_REGISTER_GUARD_IMPL(PrivateUse1, wirewise::testing::pretend::Guard)
}
REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &wirewise::testing::pretend::memory)

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&wirewise::testing::pretend::by_cpu>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &wirewise::testing::pretend::empty);
  library.impl("empty_strided", &wirewise::testing::pretend::empty_strided);
  library.impl("copy_", &wirewise::testing::pretend::copy_);
  library.impl("as_strided", &wirewise::testing::pretend::as_strided);
  library.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(&at::native::view));
  library.impl("view_as_real", &at::native::view_as_real);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
}
