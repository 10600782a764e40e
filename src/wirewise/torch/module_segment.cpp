#include "wirewise/torch/module_segment.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/base/log.h"
#include "wirewise/base/philox.h"
#include "wirewise/base/text.h"
#include "wirewise/torch/layers.h"
#include "wirewise/torch/memory.h"

namespace wirewise {
namespace {

/// Lends the weights' memory to a segment's parameters for one pass.
class Attachment {
 public:
  Attachment(const std::vector<std::shared_ptr<ModuleParameter>>& parameters, std::vector<Weight>& weights) : parameters_(parameters) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i]->attach(weights[i].value);
      parameters[i]->expect_gradient(weights[i].grad.defined() ? &weights[i] : nullptr);
    }
  }
  ~Attachment() {
    for (const auto& parameter : parameters_) {
      parameter->expect_gradient(nullptr);
      parameter->detach();
    }
  }
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

 private:
  const std::vector<std::shared_ptr<ModuleParameter>>& parameters_;
};

/// libtorch's default generator on a stream of its own while a unit runs, then as it was: a unit that runs again draws the same numbers.
class RandomStream {
 public:
  explicit RandomStream(std::uint64_t seed) : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard lock(generator_.mutex());
    auto* cpu = at::check_generator<at::CPUGeneratorImpl>(generator_);
    engine_ = cpu->engine();
    normal_float_ = cpu->next_float_normal_sample();
    normal_double_ = cpu->next_double_normal_sample();
    cpu->set_current_seed(seed);
  }
  ~RandomStream() {
    const std::lock_guard lock(generator_.mutex());
    auto* cpu = at::check_generator<at::CPUGeneratorImpl>(generator_);
    cpu->set_engine(engine_);
    cpu->set_next_float_normal_sample(normal_float_);
    cpu->set_next_double_normal_sample(normal_double_);
  }
  RandomStream(const RandomStream&) = delete;
  RandomStream& operator=(const RandomStream&) = delete;

 private:
  at::Generator generator_;
  at::mt19937 engine_;
  std::optional<float> normal_float_;
  std::optional<double> normal_double_;
};

std::uint64_t stream_seed(const ModulePlace& place, const StepContext& step) {
  const std::string name = std::to_string(step.step) + "/" + std::to_string(step.micro_batch) + "/" + std::to_string(place.rank) + "/" +
                           std::to_string(place.unit);
  return random_bits(place.seed, stream_of(name), 0);
}

/// Bytes that a pass adds at its peak and at its end.
class Meter {
 public:
  explicit Meter(bool on) : on_(on) {
    if (!on_) return;
    before_ = memory::usage().live;
    memory::reset_peak();
  }
  [[nodiscard]] bool on() const noexcept { return on_; }
  struct Reading {
    std::int64_t kept = 0, peak = 0;
  };
  [[nodiscard]] Reading read() const {
    const memory::Usage usage = memory::usage();
    const auto before = static_cast<std::int64_t>(before_);
    return {static_cast<std::int64_t>(usage.live) - before, static_cast<std::int64_t>(usage.peak) - before};
  }

 private:
  bool on_;
  Bytes before_ = 0;
};

Bytes at_least(std::int64_t floor, std::int64_t bytes) { return static_cast<Bytes>(std::max(floor, bytes)); }

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// The storage of parameters that nothing is lent to: reading it is an error, not a crash.
c10::Storage unreadable() {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)), nullptr, /*resizable=*/false);
  storage.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
      "a parameter was read that has no memory now: only the unit that registers it can read it, while it runs; "
      "Trainer::for_each_parameter reads the weights.");
  storage.unsafeGetStorageImpl()->set_throw_on_mutable_data_ptr();
  return storage;
}

double rows_of_input(const at::Tensor& input) {
  const bool features_last = input.is_floating_point() && input.dim() > 1;
  return static_cast<double>(features_last ? input.numel() / std::max<std::int64_t>(1, input.size(-1)) : input.numel());
}

}  // namespace

/// Moves a gradient out of the parameter as soon as autograd has it, so that whole gradients of a unit never lie beside their buffer.
class ModuleParameter::GradientHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  void operator()(const at::Tensor& variable) override {
    reached = true;
    at::Tensor& grad = variable.mutable_grad();
    if (target) layers::store_gradient(*target, grad);
    grad.reset();
  }
  Weight* target = nullptr;
  bool reached = false;
};

ModuleParameter::ModuleParameter(CustomParameter parameter) : name_(std::move(parameter.name)), variable_(std::move(parameter.variable)) {}

ModuleParameter::~ModuleParameter() {
  if (hook_ != nullptr) torch::autograd::impl::set_post_acc_grad_hooks(variable_, nullptr);
}

void ModuleParameter::release(c10::ScalarType type) {
  at::Tensor lent = at::empty({0}, variable_.options().dtype(type).requires_grad(false));
  storage_ = c10::Storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)), nullptr,
                          /*resizable=*/false);
  nothing_ = unreadable();
  lent.unsafeGetTensorImpl()->set_storage_keep_dtype(nothing_);
  lent.unsafeGetTensorImpl()->set_sizes_contiguous(variable_.sizes());
  variable_.mutable_grad().reset();
  variable_.set_data(lent);
  variable_.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(true);
  auto hook = std::make_unique<GradientHook>();
  hook_ = hook.get();
  torch::autograd::impl::set_post_acc_grad_hooks(variable_, std::move(hook));
}

void ModuleParameter::attach(const at::Tensor& value) {
  c10::StorageImpl* storage = storage_.unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::DataPtr(value.data_ptr(), c10::Device(c10::DeviceType::CPU)));
  storage->set_nbytes(value.nbytes());
  variable_.unsafeGetTensorImpl()->set_storage_keep_dtype(storage_);
}

void ModuleParameter::detach() noexcept {
  c10::StorageImpl* storage = storage_.unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)));
  storage->set_nbytes(0);
  variable_.unsafeGetTensorImpl()->set_storage_keep_dtype(nothing_);
}

void ModuleParameter::expect_gradient(Weight* weight) noexcept {
  hook_->target = weight;
  if (weight != nullptr) hook_->reached = false;
}

bool ModuleParameter::reached() const noexcept { return hook_->reached; }

ModuleSegment::ModuleSegment(Unit unit, std::vector<std::shared_ptr<ModuleParameter>> parameters, ModulePlace place)
    : unit_(std::move(unit)), parameters_(std::move(parameters)), place_(std::move(place)) {
  for (const auto& parameter : parameters_) names_.push_back(parameter->name());
}

at::Tensor ModuleSegment::call(const at::Tensor& input) const {
  at::Tensor output;
  try {
    output = unit_.forward(input);
  } catch (const c10::Error& error) {
    throw Error(ErrorKind::kFailed, "unit " + unit_.name + " failed in forward: " + first_line(error.what_without_backtrace()));
  }
  if (!output.defined()) throw bad_input("unit " + unit_.name + " returned an undefined tensor.", "Return its output.");
  // A view of a parameter would lose its memory with the weights.
  for (const auto& parameter : parameters_) {
    if (output.is_alias_of(parameter->variable())) return output.clone();
  }
  return output.is_same(input) ? output.view_as(output) : output;
}

at::Tensor ModuleSegment::loss_of(const at::Tensor& output, const at::Tensor& targets) const {
  at::Tensor loss;
  try {
    loss = place_.loss(output.element_size() == 2 && output.is_floating_point() ? output.to(c10::kFloat) : output, targets);
  } catch (const c10::Error& error) {
    throw Error(ErrorKind::kFailed, "the loss function failed: " + first_line(error.what_without_backtrace()),
                "Check the shapes and types of the last unit's output and of the targets.");
  }
  if (!loss.defined() || loss.numel() != 1 || !loss.is_floating_point()) {
    throw bad_input("the loss function returned no scalar.", "Return the mean or the sum over the counted targets, as TrainerOptions::reduction says.");
  }
  return loss;
}

Boundary ModuleSegment::forward(const Boundary& in, std::vector<Weight>& weights, Saved* saved, StepContext& step) {
  const Meter meter(measuring_ && saved != nullptr);
  const Attachment attachment(parameters_, weights);
  const RandomStream random(stream_seed(place_, step));
  const c10::AutoGradMode grad_mode(saved != nullptr);
  at::Tensor input = in[0].detach();
  if (saved != nullptr && !place_.first) input.requires_grad_(true);
  at::Tensor output = call(input);
  Boundary out;
  if (!place_.last) {
    if (!output.is_floating_point()) {
      throw bad_input("unit " + unit_.name + " returned a tensor of type " + c10::toString(output.scalar_type()) + ".",
                      "Gradients need a floating-point output: join it with the unit that follows.");
    }
    out = {output.detach()};
    if (saved != nullptr) {
      // Keep the graph, not the output: the boundary owns that, and frees it as the schedule says.
      if (output.requires_grad()) output.set_data(at::empty({0}, output.options().requires_grad(false)));
      *saved = {input, output};
    }
  } else if (!step.targets.defined()) {
    step.logits = output.detach();
  } else {
    // A micro-batch in which nothing counts has no mean.
    const std::int64_t counted = counted_targets(step.targets);
    if (counted > 0) {
      at::Tensor loss = loss_of(output, step.targets);
      const double weight = place_.reduction == LossReduction::kMean ? static_cast<double>(counted) : 1.0;
      step.loss_sum += loss.item<double>() * weight;
      if (saved != nullptr) *saved = {input, loss};
    } else if (saved != nullptr) {
      *saved = {input, at::zeros({}, at::TensorOptions().dtype(c10::kFloat))};
    }
  }
  if (meter.on()) {
    output.reset();
    const Meter::Reading reading = meter.read();
    const std::int64_t out_bytes = out.empty() ? 0 : static_cast<std::int64_t>(out[0].nbytes());
    cost_.in = static_cast<Bytes>(in[0].nbytes());
    cost_.out = at_least(1, out_bytes);
    cost_.saved = at_least(1, reading.kept - out_bytes);
    cost_.temporary_forward = at_least(0, reading.peak - reading.kept);
    double parameters = 0;
    for (const Weight& weight : weights) parameters += static_cast<double>(weight.value.numel());
    cost_.forward = 2 * parameters * rows_of_input(in[0]);
    cost_.backward = 2 * cost_.forward;
  }
  return out;
}

Boundary ModuleSegment::backward(const Boundary& in, const Boundary& grad_out, std::vector<Weight>& weights, Saved& saved, StepContext& step) {
  const Meter meter(measuring_);
  const Attachment attachment(parameters_, weights);
  at::Tensor input = std::move(saved[0]);
  at::Tensor output = std::move(saved[1]);
  saved.clear();
  const bool anything = output.requires_grad();
  if (anything) {
    at::Tensor gradient;
    if (place_.last) {
      const double counted = place_.reduction == LossReduction::kMean ? static_cast<double>(counted_targets(step.targets)) : 1.0;
      gradient = at::full(output.sizes(), step.gradient_scale * counted, output.options().requires_grad(false));
    } else {
      gradient = grad_out[0];
    }
    try {
      torch::autograd::backward({std::move(output)}, {std::move(gradient)});
    } catch (const c10::Error& error) {
      throw Error(ErrorKind::kFailed, "unit " + unit_.name + " failed in backward: " + first_line(error.what_without_backtrace()));
    }
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i]->reached() && !weights[i].add) weights[i].grad.zero_();
  }
  if (anything) warn_of_unused();
  Boundary grad_in;
  if (!place_.first) {
    at::Tensor gradient = input.grad();
    input.mutable_grad().reset();
    grad_in = {gradient.defined() ? std::move(gradient) : at::zeros_like(in[0])};
  }
  if (meter.on()) {
    const std::int64_t in_bytes = grad_in.empty() ? 0 : static_cast<std::int64_t>(grad_in[0].nbytes());
    cost_.temporary_backward = at_least(0, meter.read().peak - in_bytes);
  }
  return grad_in;
}

void ModuleSegment::warn_of_unused() {
  if (warned_) return;
  std::vector<std::string> unused;
  for (const auto& parameter : parameters_) {
    if (!parameter->reached()) unused.push_back(parameter->name());
  }
  if (unused.empty()) return;
  warned_ = true;
  log_warn("unit " + unit_.name + " did not use " + join(unused, ", ") + " in this step: the gradient is zero. (Said once.)");
}

}  // namespace wirewise
