// The training configuration: a TOML file, dotted overrides, and the checks that need no ranks and no tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "wirewise/base/units.h"
#include "wirewise/model/model.h"
#include "wirewise/strategy/strategy.h"

namespace wirewise {

enum class Optimizer : std::uint8_t { kAdamW, kSgd };
enum class DataFormat : std::uint8_t { kAuto, kText, kLlmc, kNanoGpt, kMegatron, kRandom };

struct TrainConfig {
  ModelConfig model;
  Strategy strategy;               // accumulation filled in by finish_config

  // [train]
  std::int64_t steps = 100;
  std::int64_t sequence = 256;
  // Two of these three give the third (with the number of data ranks); 0: not given. finish_config leaves all three positive.
  std::int64_t micro_batch = 0;
  std::int64_t accumulation = 0;
  std::int64_t global_batch = 0;   // samples a step over all ranks
  double lr = 3e-4;
  std::int64_t warmup = 0;         // steps of linear warm-up
  double min_lr = 3e-5;            // cosine ends here at the last step; a tenth of lr when not given
  double weight_decay = 0.1;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double clip = 1.0;               // global gradient norm; 0: off
  std::uint64_t seed = 1234;
  Optimizer optimizer = Optimizer::kAdamW;
  int threads = 0;                 // intra-op threads a rank; 0: OMP_NUM_THREADS, else cores / local ranks
  double loss_scale = 0;           // fp16: initial scale; 0: 65536
  int loss_scale_window = 1000;    // fp16: steps without overflow before the scale doubles
  int max_skipped = 20;            // fp16: overflows in a row after which training stops with an error

  // [data]
  std::string data_path;
  DataFormat data_format = DataFormat::kAuto;
  double validation_fraction = 0.05;   // data.validation: a fraction, or …
  std::string validation_path;         // … a path
  std::int64_t validation_every = 0;   // steps; 0: only at the end
  std::int64_t validation_batches = 8;

  // [checkpoint]
  std::int64_t checkpoint_every = 0;   // steps; 0: only at the end
  int checkpoint_keep = 2;             // newest complete checkpoints kept; 0: all

  // [log]
  std::int64_t log_every = 1;
  bool tensorboard = false;
  bool jsonl = true;

  // Command line
  std::filesystem::path out;           // empty: nothing is written
  bool resume = false;
  std::string device = "cpu";
  int ranks = 1;
  int hosts = 1;                       // that the ranks are on, as the launcher says
  std::optional<Bytes> memory_limit;   // --memory-limit, of one rank
  std::int64_t sample_tokens = 0;      // bytes of text to generate at the end
};

/// Reads `file` (empty: none), then applies `overrides` ("train.lr=1e-3") in order; a later value of a key replaces an earlier one.
/// Values are TOML; in an override a bare word is a string. model.preset and strategy.name are where the other keys of the model and
/// strategy.zero start from, whatever their order in a file; given by an override they replace what earlier sources said of those.
/// Throws bad input: unknown sections and keys (naming the nearest known key, file and line), wrong types (naming the key, the value and
/// what is expected), values out of range. Cross-checks that need the number of ranks are in finish_config.
[[nodiscard]] TrainConfig load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides);

/// Resolves the strategy on `ranks` ranks and derives micro_batch x accumulation x data ranks = global_batch, naming the legal values
/// where it does not come out. Validates the model, the sequence and the learning-rate schedule. A second call changes nothing.
void finish_config(TrainConfig& config, int ranks);

/// The batch arithmetic alone, for `data_ranks` ranks that read different data.
void resolve_batch(TrainConfig& config, int data_ranks);

/// Every key with its value, as a TOML file that load_config reads back to the same configuration.
[[nodiscard]] std::string to_toml(const TrainConfig& config);

/// The keys that must be equal for a checkpoint to go on exactly (model shape, data order, optimizer), one "key = value" a line.
[[nodiscard]] std::string resume_identity(const TrainConfig& config);

/// Throws bad input naming every key in which `stored` (a resume_identity from a checkpoint) differs from this run's.
void check_resume(const std::string& stored, const TrainConfig& config);

/// All known keys in the order of the file, with what each expects ("train.steps", "an integer of at least 1").
struct KeyHelp { std::string name, expected; };
[[nodiscard]] std::vector<KeyHelp> config_key_help();

[[nodiscard]] std::string_view name_of(Optimizer optimizer) noexcept;
[[nodiscard]] std::string_view name_of(DataFormat format) noexcept;

}  // namespace wirewise
