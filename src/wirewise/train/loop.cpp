#include "wirewise/train/loop.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>

#include "wirewise/base/error.h"
#include "wirewise/base/log.h"
#include "wirewise/base/progress.h"
#include "wirewise/base/text.h"
#include "wirewise/comm/flight_recorder.h"
#include "wirewise/sim/costs.h"
#include "wirewise/sim/simulate.h"
#include "wirewise/torch/dtype_torch.h"
#include "wirewise/torch/executor.h"
#include "wirewise/torch/kernels_aten.h"
#include "wirewise/torch/measure.h"
#include "wirewise/torch/memory.h"
#include "wirewise/train/checkpoint_files.h"
#include "wirewise/train/data.h"
#include "wirewise/train/loop_checkpoint.h"
#include "wirewise/train/loop_report.h"
#include "wirewise/train/loop_sample.h"
#include "wirewise/train/loop_scaler.h"
#include "wirewise/train/loop_signals.h"
#include "wirewise/train/metrics.h"

namespace wirewise {
namespace {

constexpr std::chrono::minutes kDeadline{10};

Seconds now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::filesystem::path checkpoints_of(const TrainConfig& config) { return config.out / "checkpoints"; }

/// Throws bad input unless the checkpoint is of this model, data order and data.
void check_same_run(const CheckpointReader& reader, const TrainConfig& config, const std::string& fingerprint) {
  const auto stored = [&](const char* key) {
    const auto found = reader.state().find(key);
    return found == reader.state().end() ? std::string() : found->second;
  };
  check_resume(stored("identity"), config);
  if (const std::string data = stored("data"); !data.empty() && data != fingerprint) {
    throw bad_input("the data differs from what checkpoint " + printable(reader.folder().string()) + " was trained on.",
                    "Give the same --data, or start in another --out.");
  }
}

/// config.toml of the run, beside first, so that a full disk leaves the one of the run that is resumed.
void write_config(const TrainConfig& config) {
  checkpoint::FileOperations files;
  const std::filesystem::path path = config.out / "config.toml", beside = config.out / ".config.toml.new";
  std::error_code absent;
  std::filesystem::remove(beside, absent);
  try {
    checkpoint::write_file(files, beside, to_toml(config));
    std::filesystem::rename(beside, path);
  } catch (...) {
    std::filesystem::remove(beside, absent);
    throw;
  }
}

Lanes join(const Rank& rank, const std::filesystem::path& out) {
  if (rank.size == 1 && !rank.device) return make_thread_lanes(1, kDeadline).front();
  if (const auto flight = comm::FlightRecorder::of_process(); rank.size > 1 && flight && !out.empty()) flight->set_folder(out / "flight");
  if (rank.device) return make_device_lanes(rank.store, rank.rank, rank.size, kDeadline, rank.device, rank.comm);
  return make_lanes(rank.store, rank.rank, rank.size, kDeadline);
}

OptimizerOptions optimizer_of(const TrainConfig& config) {
  return {config.optimizer == Optimizer::kAdamW, config.beta1, config.beta2, config.epsilon, config.weight_decay};
}

/// Everything that a run reports goes through here, on rank 0 only.
class Reporter {
 public:
  Reporter(const Prepared& prepared, const LoopOptions& options, bool active, std::int64_t first_step)
      : config_(prepared.config), json_(options.json), active_(active) {
    if (!active_) return;
    if (!config_.out.empty()) {
      if (config_.jsonl) lines_.open(config_.out / "metrics.jsonl", std::ios::app);
      if (config_.tensorboard) events_ = std::make_unique<EventWriter>(config_.out / "tensorboard");
    }
    progress_ = std::make_unique<Progress>("train", static_cast<std::uint64_t>(config_.steps));
    progress_->update(static_cast<std::uint64_t>(first_step));
  }

  void step(const StepMetrics& metrics) {
    if (!active_) return;
    if (metrics.step % config_.log_every == 0 || metrics.step == config_.steps || metrics.skipped) {
      line(to_json(metrics));
      if (events_) events_->step(metrics);
    }
    char detail[96];
    std::snprintf(detail, sizeof detail, "loss %.4f, %.0f tokens/s, %s a step", metrics.loss, metrics.tokens_per_s, format_seconds(metrics.step_s).c_str());
    progress_->update(static_cast<std::uint64_t>(metrics.step), detail);
  }

  void validation(std::int64_t step, double loss) {
    if (!active_) return;
    line(validation_json(step, loss));
    if (events_) events_->validation(step, loss);
    char text[96];
    std::snprintf(text, sizeof text, "step %lld: validation loss %.4f", static_cast<long long>(step), loss);
    note(text);
  }

  void note(const std::string& text) {
    if (active_) progress_->note(text);
  }

  void line(const std::string& text) {
    if (!active_) return;
    if (json_) std::cout << text << std::endl;
    if (!lines_.is_open()) return;
    lines_ << text << std::endl;
    if (lines_) return;
    lines_.close();  // the run matters more than its record
    note("warning: metrics.jsonl can't be written any more: " + std::string(std::strerror(errno)) + ".");
  }

  void finish() {
    if (!active_) return;
    progress_->finish();
    if (events_) events_->flush();
  }

  /// Plain text for a person, after the bar.
  void text(const std::string& text) const {
    if (active_) std::cerr << text << std::flush;
  }

 private:
  const TrainConfig& config_;
  bool json_;
  bool active_;
  std::ofstream lines_;
  std::unique_ptr<EventWriter> events_;
  std::unique_ptr<Progress> progress_;
};

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
    Reporter reporter(prepared_, options_, lanes_.rank() == 0, step_);
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

namespace {

/// Throws bad input unless `folder` is one that can be written, or can be made where it is missing.
void check_place(const std::filesystem::path& folder) {
  const auto refuse = [&](const std::filesystem::path& place, const std::string& reason) {
    return bad_input("output folder " + printable(folder.string()) + " can't be used: " + printable(place.string()) + " " + reason + ".",
                     "Give another --out.");
  };
  std::filesystem::path place = std::filesystem::absolute(folder);
  for (;; place = place.parent_path()) {
    std::error_code error;
    const auto type = std::filesystem::status(place, error).type();
    if (type == std::filesystem::file_type::directory) break;
    if (type == std::filesystem::file_type::none) throw refuse(place, "can't be looked at (" + error.message() + ")");
    if (type != std::filesystem::file_type::not_found) throw refuse(place, "is no folder");
    if (!place.has_relative_path()) break;
  }
  if (::access(place.c_str(), W_OK | X_OK) != 0) throw refuse(place, "can't be written (" + std::string(std::strerror(errno)) + ")");
}

/// Makes the run's folder; what no look beforehand shows (a full table of inodes, a folder of the kernel's) is said here.
void make_output_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw bad_input("output folder " + printable(folder.string()) + " can't be made: " + error.message() + ".", "Give another --out.");
}

}  // namespace

void check_start(const TrainConfig& config, bool restarted) {
  const DataSet data = open_data(config);
  if (config.data_format != DataFormat::kRandom && config.data_path != "random") check_tokens(*data.source, config.model.vocab);
  if (!config.validation_path.empty() && config.validation_path != "random") {
    check_tokens(*open_tokens(config.validation_path, config.data_format, config.model.vocab, config.seed), config.model.vocab);
  }
  if (config.out.empty()) {
    if (config.resume) throw bad_input("--resume needs the folder of the run.", "Give --out DIR.");
    return;
  }
  check_place(config.out);
  if (restarted) return;
  if (config.resume) {
    const auto newest = newest_checkpoint(checkpoints_of(config));
    if (!newest) {
      throw bad_input("no complete checkpoint under " + printable(checkpoints_of(config).string()) + " to resume from.",
                      "Leave --resume out and name a new --out, or check the path.");
    }
    check_same_run(CheckpointReader(*newest), config, data.fingerprint);
    return;
  }
  const bool exists = std::filesystem::exists(config.out) && !(std::filesystem::is_directory(config.out) && std::filesystem::is_empty(config.out));
  if (exists) throw bad_input("output folder " + printable(config.out.string()) + " exists.", "Give --resume to go on from its newest checkpoint, or another --out.");
}

int run_training(const Prepared& prepared, const Rank& rank, const LoopOptions& options) {
  at::set_num_threads(prepared.threads);
  if (rank.device) {
    rank.device->make_current();
    const ModelConfig& model = prepared.model.config;
    (void)kernels::aten::attention_operator(to_scalar_type(prepared.config.strategy.param_dtype), model.width / model.heads);
  }
  if (rank.rank == 0 && !prepared.config.out.empty()) {
    make_output_folder(prepared.config.out);
    write_config(prepared.config);
  }
  return Run(prepared, rank, options).run();
}

}  // namespace wirewise
