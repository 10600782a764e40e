#include "wirewise/train/loop.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <iostream>

#include "wirewise/base/error.h"
#include "wirewise/comm/flight_recorder.h"
#include "wirewise/sim/costs.h"
#include "wirewise/sim/simulate.h"
#include "wirewise/torch/dtype_torch.h"
#include "wirewise/torch/executor.h"
#include "wirewise/torch/kernels_aten.h"
#include "wirewise/torch/measure.h"
#include "wirewise/torch/memory.h"
#include "wirewise/train/data.h"
#include "wirewise/train/loop_checkpoint.h"
#include "wirewise/train/loop_report.h"
#include "wirewise/train/loop_reporter.h"
#include "wirewise/train/loop_sample.h"
#include "wirewise/train/loop_scaler.h"
#include "wirewise/train/loop_signals.h"
#include "wirewise/train/loop_start.h"
#include "wirewise/train/metrics.h"

namespace wirewise {
namespace {

constexpr std::chrono::minutes kDeadline{10};

Seconds now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Lanes join(const Rank& rank, const std::filesystem::path& out) {
  if (rank.size == 1 && !rank.device) return make_thread_lanes(1, kDeadline).front();
  if (const auto flight = comm::FlightRecorder::of_process(); rank.size > 1 && flight && !out.empty()) flight->set_folder(out / "flight");
  if (rank.device) return make_device_lanes(rank.store, rank.rank, rank.size, kDeadline, rank.device, rank.comm);
  return make_lanes(rank.store, rank.rank, rank.size, kDeadline);
}

OptimizerOptions optimizer_of(const TrainConfig& config) {
  return {config.optimizer == Optimizer::kAdamW, config.beta1, config.beta2, config.epsilon, config.weight_decay};
}

/// The run of one rank, from its first step to its last.
class Run {
 public:
  Run(const Prepared& prepared, const Rank& rank, const LoopOptions& options)
      : prepared_(prepared),
        config_(prepared.config),
        options_(options),
        lanes_(join(rank, config_.out)),
        data_(open_data(config_)),
        segments_(make_segment_table(prepared.model)),
        state_(prepared.model, prepared.train.strategy, prepared.train.programs.front(), lanes_),
        train_(prepared.model, prepared.train.programs.front(), segments_, state_, lanes_, optimizer_of(config_)),
        forward_(prepared.model, prepared.forward.programs.front(), segments_, state_, lanes_, {}),
        scaler_(config_) {}

  int run() {
    const StopSignals signals;
    if (!lanes_.device.is_cpu() && lanes_.rank() == 0) {
      const ModelConfig& model = prepared_.model.config;
      std::cerr << "device " << lanes_.accelerator->describe() << "; attention by libtorch's "
                << kernels::aten::attention_operator(to_scalar_type(config_.strategy.param_dtype), model.width / model.heads)
                << " operator\n";
    }
    begin();
    predict();
    Reporter reporter(config_, options_.json, lanes_.rank() == 0, step_);
    reporter_ = &reporter;
    if (host_count(prepared_) > 1) reporter.note(hosts_text(prepared_, network_));
    warn_of_equal_streams();
    memory::reset_peak(lanes_.device);
    std::filesystem::path checkpoint;
    std::int64_t saved_at = -1;
    const auto save = [&] {
      if (config_.out.empty() || saved_at == step_) return;
      checkpoint = save_state(checkpoints_of(config_), static_cast<std::uint64_t>(step_), prepared_, state_, train_state(), lanes_);
      saved_at = step_;
      reporter.note("step " + std::to_string(step_) + ": checkpoint " + checkpoint.string());
    };
    bool stopped = false;
    while (step_ < config_.steps && !stopped) {
      const std::int64_t before = step_;
      stopped = one_step();
      const bool advanced = step_ > before;  // not where float16 overflowed
      const bool last = step_ == config_.steps;
      const auto due = [&](std::int64_t every) { return advanced && every > 0 && step_ % every == 0; };
      if (!stopped && data_.validation && (last || due(config_.validation_every))) validate_now();
      if (stopped || last || due(config_.checkpoint_every)) save();
    }
    if (saved_at < 0) save();
    const std::string hash = state_.weights_sha256(lanes_);
    reporter.finish();
    finish_report(stopped);
    reporter.line(final_json(stopped ? "stopped" : "done", hash, checkpoint.string()));
    reporter.text("weights sha256 " + hash + "\n" + (checkpoint.empty() ? "" : "checkpoint " + checkpoint.string() + "\n"));
    if (!stopped) return 0;
    return stop_code();
  }

 private:
  /// Initial weights, or those of the newest complete checkpoint.
  void begin() {
    const bool resume = config_.resume || options_.restarted;
    std::string failure;
    std::optional<std::filesystem::path> found;
    if (resume && !config_.out.empty()) found = newest_checkpoint(checkpoints_of(config_));
    try {
      if (found) {
        const CheckpointReader reader(*found);
        check_same_run(reader, config_, data_.fingerprint);
        load_state(reader, prepared_, state_);
        step_ = static_cast<std::int64_t>(reader.step());
        consumed_ = std::stoull(reader.state().at("consumed_samples"));
        scaler_.load(reader.state());
      } else {
        state_.initialize(config_.seed);
      }
    } catch (const Error& error) {
      if (lanes_.size() == 1) throw;
      failure = error.what();
    }
    if (lanes_.size() > 1) agree(lanes_, failure);
  }

  [[nodiscard]] TrainState train_state() const {
    TrainState state;
    state["identity"] = resume_identity(config_);
    state["data"] = data_.fingerprint;
    state["consumed_samples"] = std::to_string(consumed_);
    state["config"] = to_toml(config_);
    scaler_.save(state);
    return state;
  }

  /// The short measurement, and what the simulator makes of it.
  void predict() {
    rates_.flops_per_second = measure_flops(config_.strategy.param_dtype, lanes_);
    rates_.provenance = Provenance::kMeasured;
    if (host_count(prepared_) > 1) network_ = measure_network(lanes_, prepared_.host_of);
    predicted_ = simulate(prepared_.train, prepared_.model, wire_hosts(prepared_.host_of, network_), rates_,
                          measure_costs(prepared_.model, prepared_.train.strategy, segments_, lanes_, optimizer_of(config_)));
  }

  [[nodiscard]] MicroBatch micro_batch_at(const Sampler& sampler, std::uint64_t first) const {
    const TokenBatch batch = sampler.batch(first, config_.micro_batch);
    std::vector<std::int32_t> tokens, targets;
    const auto row = static_cast<std::size_t>(batch.sequence + 1);
    for (std::size_t sample = 0; sample < static_cast<std::size_t>(batch.samples); ++sample) {
      const auto begin = batch.tokens.begin() + static_cast<std::ptrdiff_t>(sample * row);
      tokens.insert(tokens.end(), begin, begin + static_cast<std::ptrdiff_t>(row) - 1);
      targets.insert(targets.end(), begin + 1, begin + static_cast<std::ptrdiff_t>(row));
    }
    return token_micro_batch(batch.samples, batch.sequence, tokens, targets);
  }

  /// True when all ranks agreed to stop.
  bool one_step() {
    const Seconds start = now();
    std::vector<MicroBatch> batches;
    for (std::int64_t micro = 0; micro < config_.accumulation; ++micro) {
      batches.push_back(micro_batch_at(data_.train, first_sample(consumed_, micro, lanes_.rank(), lanes_.size(), config_.micro_batch)));
    }
    StepOptions options;
    options.step = step_ + 1;
    options.lr = learning_rate(config_, step_ + 1);
    options.clip = config_.clip;
    options.loss_scale = scaler_.scale();
    options.check_overflow = scaler_.enabled();
    options.stop = StopSignals::received() != 0;
    const StepResult result = train_.train(batches, options);
    consumed_ += static_cast<std::uint64_t>(config_.global_batch);
    StepMetrics metrics;
    metrics.step = step_ + 1;
    metrics.skipped = result.skipped;
    metrics.loss_scale = scaler_.enabled() ? scaler_.scale() : 0;
    if (result.skipped && !scaler_.enabled()) {
      throw Error(ErrorKind::kFailed, "step " + std::to_string(step_ + 1) + ": the gradients are not finite, first in " + result.overflow + ".",
                  "Training can't go on. Lower train.lr, set train.clip, or look at the data of this step.");
    }
    if (!std::isfinite(result.loss)) {
      throw Error(ErrorKind::kFailed, "step " + std::to_string(step_ + 1) + ": the loss is not finite.",
                  "Training can't go on. Lower train.lr, set train.clip, or look at the data of this step.");
    }
    if (result.skipped) {
      reporter_->note("step " + std::to_string(step_ + 1) + ": skipped, gradients overflowed in " + result.overflow);
      scaler_.overflow(result.overflow);
    } else {
      scaler_.good();
      ++step_;
    }
    times_.add(train_.timeline(), prepared_.train.programs.front());
    fill(metrics, result, options.lr, now() - start);
    reporter_->step(metrics);
    return result.stop;
  }

  void fill(StepMetrics& metrics, const StepResult& result, double lr, Seconds seconds) {
    const double tokens = static_cast<double>(result.tokens);
    metrics.loss = result.loss;
    metrics.grad_norm = result.grad_norm;
    metrics.lr = lr;
    metrics.tokens = consumed_ * static_cast<std::uint64_t>(config_.sequence);
    metrics.step_s = seconds;
    metrics.tokens_per_s = tokens / seconds;
    metrics.tokens_per_s_per_rank = metrics.tokens_per_s / lanes_.size();
    metrics.mfu = flops_per_token(prepared_.model) * metrics.tokens_per_s_per_rank / rates_.flops_per_second;
    for (const auto& [kind, busy] : train_.timeline().by_kind(prepared_.train.programs.front())) {
      if (is_communication(kind) && lanes_.size() > 1) metrics.exposed_comm_s += busy;
    }
    const std::uint64_t mine = memory::usage(lanes_.device).peak;
    std::uint64_t most = 0;
    lanes_.control->all_reduce({&mine, DType::kInt64}, {&most, DType::kInt64}, 1, Reduction::kMax).wait();
    metrics.memory_measured = most;
    metrics.memory_predicted = prepared_.memory.peak;
  }

  void validate_now() {
    double sum = 0;
    for (std::int64_t i = 0; i < config_.validation_batches; ++i) {
      sum += forward_.evaluate(
          micro_batch_at(*data_.validation, static_cast<std::uint64_t>((i * lanes_.size() + lanes_.rank()) * config_.micro_batch)));
    }
    const double loss = sum / static_cast<double>(config_.validation_batches);
    if (!std::isfinite(loss)) {  // before it is saved: weights that the last step ruined have no later training loss to show it
      throw Error(ErrorKind::kFailed, "step " + std::to_string(step_) + ": the validation loss is not finite.",
                  "Training can't go on. Lower train.lr, set train.clip, or look at the data of this step.");
    }
    reporter_->validation(step_, loss);
  }

  /// Case of every rank drawing one stream: as costly as it is hard to see.
  void warn_of_equal_streams() {
    if (lanes_.size() == 1) return;
    const TokenBatch batch = data_.train.batch(first_sample(consumed_, 0, lanes_.rank(), lanes_.size(), config_.micro_batch), config_.micro_batch);
    const std::uint64_t mine = stream_hash(batch);
    std::vector<std::uint64_t> all(static_cast<std::size_t>(lanes_.size()));
    lanes_.control->all_gather({&mine, DType::kInt64}, {all.data(), DType::kInt64}, 1).wait();
    if (const std::string warning = equal_streams(all); !warning.empty()) reporter_->note("warning: " + warning);
  }

  void finish_report(bool stopped) {
    const memory::Usage usage = memory::usage(lanes_.device);
    // The rank that holds most speaks for all.
    std::array<std::uint64_t, 1 + kCategories> mine{usage.peak};
    std::copy(usage.category_peak.begin(), usage.category_peak.end(), mine.begin() + 1);
    std::array<std::uint64_t, 1 + kCategories> most{};
    lanes_.control->all_reduce({mine.data(), DType::kInt64}, {most.data(), DType::kInt64}, mine.size(), Reduction::kMax).wait();
    memory::Usage worst;
    worst.peak = most[0];
    std::copy(most.begin() + 1, most.end(), worst.category_peak.begin());
    reporter_->line(report_json(prepared_, worst, predicted_, times_, network_));
    reporter_->text(report_text(prepared_, worst, predicted_, times_));
    if (stopped || config_.sample_tokens == 0) return;
    if (config_.model.vocab != 256) {
      reporter_->text("no sample: only byte-level models (model.vocab = 256) are sampled.\n");
      return;
    }
    const std::string text = sample_text(forward_, "def ", config_.sample_tokens, config_.sequence, config_.seed);
    reporter_->text("\nsample of generated text\n" + printable_text(text) + "\n\n");
  }

  /// SIGINT is 130; SIGTERM and SIGUSR1 (a scheduler's notice) are 143. Ranks that saw no signal take the code of one that did.
  int stop_code() {
    const std::int64_t mine = StopSignals::received() == SIGINT ? 130 : StopSignals::received() != 0 ? 143 : 0;
    std::int64_t code = 0;
    lanes_.control->all_reduce({&mine, DType::kInt64}, {&code, DType::kInt64}, 1, Reduction::kMax).wait();
    return code == 0 ? 143 : static_cast<int>(code);
  }

  const Prepared& prepared_;
  const TrainConfig& config_;
  LoopOptions options_;
  Lanes lanes_;
  DataSet data_;
  SegmentTable segments_;
  ModelState state_;
  Executor train_;
  Executor forward_;
  LossScaler scaler_;
  DeviceRates rates_;
  Link network_ = assumed_network();
  SimReport predicted_;
  TimeSums times_;
  Reporter* reporter_ = nullptr;
  std::int64_t step_ = 0;
  std::uint64_t consumed_ = 0;
};

}  // namespace

int run_training(const Prepared& prepared, const Rank& rank, const LoopOptions& options) {
  at::set_num_threads(prepared.threads);
  if (rank.device) {
    rank.device->make_current();
    const ModelConfig& model = prepared.model.config;
    (void)kernels::aten::attention_operator(to_scalar_type(prepared.config.strategy.param_dtype), model.width / model.heads);
  }
  if (rank.rank == 0 && !prepared.config.out.empty()) make_run_folder(prepared.config);
  return Run(prepared, rank, options).run();
}

}  // namespace wirewise
