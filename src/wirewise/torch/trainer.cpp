#include "wirewise/torch/trainer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/schedule/layout.h"
#include "wirewise/torch/dtype_torch.h"
#include "wirewise/torch/memory.h"
#include "wirewise/torch/module_segment.h"
#include "wirewise/torch/state.h"
#include "wirewise/torch/trainer_agreement.h"
#include "wirewise/torch/trainer_batch.h"

namespace wirewise {
namespace {

constexpr double kFirstLossScale = 65536;
constexpr int kLossScaleWindow = 1000;   // steps without overflow before the scale doubles

/// Buffers of nominal size: the first step measures what they really hold.
std::vector<SegmentCost> unknown_costs(std::size_t units) {
  SegmentCost cost;
  cost.saved = cost.in = cost.out = 1;
  return std::vector<SegmentCost>(units, cost);
}

Lanes join_lanes(const World& world, std::chrono::milliseconds timeout) {
  if (world.size == 1) return make_thread_lanes(1, timeout).front();
  return make_lanes(world.store, world.rank, world.size, timeout);
}

Bytes persistent_bytes(const Program& program) {
  Bytes bytes = 0;
  for (const BufferInfo& buffer : program.buffers) {
    if (buffer.persistent) bytes += own_bytes(buffer);
  }
  return bytes;
}

ModelState::Source values_of(const std::vector<CustomParameter>& parameters) {
  std::map<std::string, at::Tensor> by_name;
  for (const CustomParameter& parameter : parameters) by_name[parameter.name] = parameter.variable.detach().view(-1);
  return [by_name = std::move(by_name)](const TensorShape& tensor, std::uint64_t begin, std::uint64_t length, float* out) {
    const at::Tensor part = by_name.at(tensor.name).narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(length)).to(c10::kFloat);
    const float* data = part.const_data_ptr<float>();
    std::copy(data, data + length, out);
  };
}

}  // namespace

World join_world(std::chrono::milliseconds timeout) {
  const Environment environment = process_environment();
  const bool launched = environment("RANK") || environment("WORLD_SIZE");
  return launched ? rendezvous("env://", timeout) : World{};
}

class Trainer::Impl {
 public:
  Impl(Lanes lanes, std::vector<Unit> units, LossFunction loss, TrainerOptions options)
      : lanes_(std::move(lanes)), units_(std::move(units)), options_(std::move(options)) {
    if (!lanes_.device.is_cpu()) {
      throw bad_input("a Trainer of your own modules runs on the CPU only, but its lanes are of device " + lanes_.device.str() + ".",
                      "Give it lanes of the CPU, or train a built-in model with wirewise train --device cuda.");
    }
    memory::install();
    if (!loss) throw bad_input("the trainer has no loss function.", "Pass a function of output and targets.");
    if (!(options_.lr >= 0) || !(options_.clip >= 0)) throw bad_input("lr or clip is negative.", "Use 0 or more.");
    resolve(options_.strategy, lanes_.size());
    resolve_alias(options_.strategy, lanes_.gather->one_host() ? 1 : 2);  // how many more makes no difference
    parameters_ = parameters_of(units_);
    batch_.sequence = 1;
    batch_.param_dtype = options_.strategy.param_dtype;
    batch_.separate_gradient = wide_gradients(options_.strategy);
    model_ = build_custom_model(units_, parameters_, unknown_costs(units_.size()), batch_, options_.strategy.dp_shard);
    require_agreement(lanes_, model_, options_);
    schedule_ = build_train_schedule(model_, options_.strategy, lanes_.size(), train_options());
    broadcast_values(lanes_, parameters_);
    state_ = std::make_unique<ModelState>(model_, options_.strategy, schedule_.programs.front(), lanes_);
    state_->load(values_of(parameters_), {}, {});
    make_segments(std::move(loss));
    make_executor();
    if (options_.strategy.param_dtype == DType::kFloat16) loss_scale_ = kFirstLossScale;
  }

  StepResult step(std::span<const Batch> batches) {
    if (batches.size() != static_cast<std::size_t>(options_.strategy.accumulation)) {
      throw bad_input("step got " + std::to_string(batches.size()) + " micro-batches, but strategy.accumulation is " +
                          std::to_string(options_.strategy.accumulation) + ".",
                      "Pass that many, or set options.strategy.accumulation.");
    }
    std::vector<MicroBatch> micro_batches;
    Bytes input_bytes = 0;
    for (const Batch& batch : batches) {
      require_samples(batch.inputs, batch.targets, 1);
      micro_batches.push_back(micro_batch(batch.inputs, batch.targets));
      input_bytes += batch.targets.nbytes() + micro_batches.back().inputs.front().nbytes();
    }
    StepOptions options;
    options.step = steps_ + 1;
    options.lr = options_.lr;
    options.clip = options_.clip;
    options.loss_scale = loss_scale_;
    options.check_overflow = loss_scale_ != 1;
    const bool first = !measured_;
    for (ModuleSegment* segment : segments_) segment->measure(first);
    const Bytes before = memory::usage().live;
    memory::reset_peak();
    const StepResult result = guarded([&] { return executor_->train(micro_batches, options); });
    if (first) {
      take_measurements(micro_batches);
    } else {
      measured_peak_ = std::max(measured_peak_, memory::usage().peak - before + persistent_bytes(schedule_.programs.front()) + input_bytes);
    }
    follow(result);
    return result;
  }

  double evaluate(const Batch& batch) {
    require_samples(batch.inputs, batch.targets, 1);
    const MicroBatch micro = micro_batch(batch.inputs, batch.targets);
    return in_eval_mode([&] { return forward_executor().evaluate(micro); });
  }
  at::Tensor forward(const at::Tensor& inputs) {
    require_inputs(inputs);
    const MicroBatch micro = micro_batch(inputs, {});
    return in_eval_mode([&] { return forward_executor().logits(micro); });
  }

  void for_each_parameter(const std::function<void(const std::string&, const at::Tensor&)>& visit) {
    for (const ModelState::Named& named : state_->in_name_order()) {
      at::Tensor value = at::empty(named.tensor->shape, at::TensorOptions().dtype(c10::kFloat));
      state_->collect(lanes_, named, 0, named.tensor->numel(), value.mutable_data_ptr<float>());
      visit(named.tensor->name, value);
    }
  }

  [[nodiscard]] TrainerMemory memory() const {
    if (measured_peak_ == 0) throw bad_input("memory is known after two steps.", "Call step() first.");
    return {memory_walk(schedule_.programs.front()), measured_peak_};
  }

  void set_lr(double lr) {
    if (!(lr >= 0)) throw bad_input("lr is " + std::to_string(lr) + ".", "Use 0 or more.");
    options_.lr = lr;
  }
  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::string weights_sha256() const { return state_->weights_sha256(lanes_); }
  [[nodiscard]] const Model& model() const noexcept { return model_; }
  [[nodiscard]] const Schedule& schedule() const noexcept { return schedule_; }
  [[nodiscard]] const Timeline& timeline() const noexcept { return executor_->timeline(); }
  [[nodiscard]] int accumulation() const noexcept { return options_.strategy.accumulation; }

 private:
  [[nodiscard]] TrainOptions train_options() const {
    // The clip op always runs: it finds gradients that aren't finite, and gives the norm.
    return {.clip = true, .adam_moments = options_.optimizer.adamw};
  }

  void make_segments(LossFunction loss) {
    std::vector<std::shared_ptr<ModuleParameter>> parameters;
    for (const CustomParameter& parameter : parameters_) {
      parameters.push_back(std::make_shared<ModuleParameter>(parameter));
      parameters.back()->release(to_scalar_type(options_.strategy.param_dtype));
    }
    for (std::size_t u = 0; u < units_.size(); ++u) {
      ModulePlace place;
      place.unit = static_cast<int>(u);
      place.rank = lanes_.rank();
      place.first = u == 0;
      place.last = u + 1 == units_.size();
      place.seed = options_.seed;
      place.reduction = options_.reduction;
      if (place.last) place.loss = loss;
      std::vector<std::shared_ptr<ModuleParameter>> mine;
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        const std::vector<int>& users = parameters_[p].users;
        if (std::find(users.begin(), users.end(), place.unit) != users.end()) mine.push_back(parameters[p]);
      }
      auto segment = std::make_unique<ModuleSegment>(units_[u], std::move(mine), std::move(place));
      segments_.push_back(segment.get());
      table_.emplace_back().push_back(std::move(segment));
    }
  }

  void make_executor() {
    executor_ = std::make_unique<Executor>(model_, schedule_.programs.front(), table_, *state_, lanes_, options_.optimizer);
  }

  Executor& forward_executor() {
    if (!forward_executor_) {
      forward_schedule_ = build_forward_schedule(model_, options_.strategy, lanes_.size());
      forward_executor_ =
          std::make_unique<Executor>(model_, forward_schedule_.programs.front(), table_, *state_, lanes_, options_.optimizer);
    }
    return *forward_executor_;
  }

  [[nodiscard]] MicroBatch micro_batch(const at::Tensor& inputs, const at::Tensor& targets) const {
    return make_micro_batch(inputs, targets, options_.strategy.param_dtype);
  }

  /// Runs collective work; when it fails here, peers must hear of it rather than wait.
  template <typename Body>
  auto guarded(Body body) -> decltype(body()) {
    try {
      return body();
    } catch (const std::exception& error) {
      const std::string reason = "rank " + std::to_string(lanes_.rank()) + " failed: " + error.what();
      for (const auto& lane : {lanes_.gather, lanes_.reduce, lanes_.control}) lane->abort(reason);
      throw;
    }
  }

  template <typename Body>
  auto in_eval_mode(Body body) -> decltype(body()) {
    std::vector<std::pair<torch::nn::Module*, bool>> modes;
    for (const Unit& unit : units_) {
      if (!unit.module) continue;
      for (const auto& module : unit.module->modules()) modes.emplace_back(module.get(), module->is_training());
    }
    for (const Unit& unit : units_) {
      if (unit.module) unit.module->eval();
    }
    const auto restore = [&] {
      // Parents come before their submodules, so each module's own mode is set last.
      for (const auto& [module, training] : modes) module->train(training);
    };
    try {
      auto result = guarded(body);
      restore();
      return result;
    } catch (...) {
      restore();
      throw;
    }
  }

  /// After the first step: what each unit really holds, so that the schedule predicts memory and time.
  void take_measurements(const std::vector<MicroBatch>& batches) {
    measured_ = true;
    std::vector<SegmentCost> costs;
    for (const ModuleSegment* segment : segments_) costs.push_back(segment->cost());
    costs.front().in = batches.front().inputs.front().nbytes() + batches.front().targets.nbytes();
    batch_.micro_batch = batches.front().inputs.front().size(0);
    executor_.reset();
    forward_executor_.reset();
    for (std::size_t u = 0; u < costs.size(); ++u) model_.units[u].segments.front().cost = costs[u];
    model_.batch = batch_;
    schedule_ = build_train_schedule(model_, options_.strategy, lanes_.size(), train_options());
    make_executor();
  }

  /// Counts the step, or says why there was none. float16 meets overflow by a smaller loss scale.
  void follow(const StepResult& result) {
    if (!result.skipped) {
      ++steps_;
      if (loss_scale_ != 1 && ++since_overflow_ % kLossScaleWindow == 0) loss_scale_ *= 2;
      return;
    }
    since_overflow_ = 0;
    if (options_.strategy.param_dtype == DType::kFloat16 && loss_scale_ > 2) {
      loss_scale_ /= 2;
      return;
    }
    throw Error(ErrorKind::kFailed, "step " + std::to_string(steps_ + 1) + " has gradients that are not finite; it began in " + result.overflow + ".",
                "No weight was changed. Lower lr, set clip, or look at the batch.");
  }

  Lanes lanes_;
  std::vector<Unit> units_;
  TrainerOptions options_;
  std::vector<CustomParameter> parameters_;
  BatchShape batch_;
  Model model_;
  Schedule schedule_, forward_schedule_;
  std::unique_ptr<ModelState> state_;
  SegmentTable table_;
  std::vector<ModuleSegment*> segments_;   // owned by the table
  std::unique_ptr<Executor> executor_, forward_executor_;
  std::int64_t steps_ = 0;
  double loss_scale_ = 1;
  int since_overflow_ = 0;
  bool measured_ = false;
  Bytes measured_peak_ = 0;
};

Trainer::Trainer(Lanes lanes, std::vector<Unit> units, LossFunction loss, TrainerOptions options)
    : impl_(std::make_unique<Impl>(std::move(lanes), std::move(units), std::move(loss), std::move(options))) {}
Trainer::Trainer(const World& world, std::vector<Unit> units, LossFunction loss, TrainerOptions options)
    : Trainer(join_lanes(world, options.timeout), std::move(units), std::move(loss), options) {}
Trainer::~Trainer() = default;

StepResult Trainer::step(const at::Tensor& inputs, const at::Tensor& targets) {
  const std::int64_t parts = impl_->accumulation();
  std::vector<Batch> batches;
  if (parts == 1) {
    batches.push_back({inputs, targets});
  } else {
    require_samples(inputs, targets, parts);
    const std::vector<at::Tensor> in = inputs.tensor_split(parts), out = targets.tensor_split(parts);
    for (std::size_t i = 0; i < in.size(); ++i) batches.push_back({in[i], out[i]});
  }
  return step(batches);
}

StepResult Trainer::step(std::span<const Batch> micro_batches) { return impl_->step(micro_batches); }
double Trainer::evaluate(const at::Tensor& inputs, const at::Tensor& targets) { return impl_->evaluate({inputs, targets}); }
at::Tensor Trainer::forward(const at::Tensor& inputs) { return impl_->forward(inputs); }
void Trainer::set_lr(double lr) { impl_->set_lr(lr); }
std::int64_t Trainer::steps() const noexcept { return impl_->steps(); }
void Trainer::for_each_parameter(const std::function<void(const std::string&, const at::Tensor&)>& visit) { impl_->for_each_parameter(visit); }
std::string Trainer::weights_sha256() const { return impl_->weights_sha256(); }
TrainerMemory Trainer::memory() const { return impl_->memory(); }
const Model& Trainer::model() const noexcept { return impl_->model(); }
const Schedule& Trainer::schedule() const noexcept { return impl_->schedule(); }
const Timeline& Trainer::timeline() const noexcept { return impl_->timeline(); }

}  // namespace wirewise
