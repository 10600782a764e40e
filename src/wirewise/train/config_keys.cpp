#include "wirewise/train/config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "wirewise/base/nearest.h"

namespace wirewise::config {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMostInt = std::numeric_limits<int>::max();
constexpr std::int64_t kMostExtent = std::int64_t{1} << 31;  // so that products of two extents fit in 64 bits
constexpr bool kResume = true;

template <class T>
using Field = T& (*)(TrainConfig&);

/// A TOML float: the shortest text that reads back to the same value.
std::string real_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string range_text(const char* noun, std::int64_t low, std::int64_t high) {
  if (high >= kMostInt) return fmt::format("{} of at least {}", noun, low);
  return fmt::format("{} from {} to {}", noun, low, high);
}

template <class T>
Key integer(std::string name, Field<T> field, std::int64_t low, std::int64_t high, bool resume = false) {
  Key key{name, range_text("an integer", low, high), resume, {}, {}};
  key.set = [name, expected = key.expected, field, low, high](TrainConfig& config, const Value& value) {
    const auto* given = std::get_if<std::int64_t>(&value.data);
    if (given == nullptr || *given < low || *given > high) throw wrong_value(name, value, expected);
    field(config) = static_cast<T>(*given);
  };
  // Below its range a value means "not given".
  key.get = [field, low](TrainConfig& config) {
    return std::cmp_less(field(config), low) ? std::string() : fmt::format("{}", field(config));
  };
  return key;
}

/// low <= value, and value < below where that is finite.
Key real(std::string name, Field<double> field, double low, double below = HUGE_VAL, bool open_low = false, bool resume = false) {
  std::string expected = fmt::format("a number {} {}", open_low ? "above" : "of at least", low);
  if (std::isfinite(below)) expected += fmt::format(" and below {}", below);
  Key key{name, expected, resume, {}, {}};
  key.set = [=](TrainConfig& config, const Value& value) {
    double given = std::numeric_limits<double>::quiet_NaN();
    if (const auto* number = std::get_if<double>(&value.data)) given = *number;
    if (const auto* number = std::get_if<std::int64_t>(&value.data)) given = static_cast<double>(*number);
    if (!std::isfinite(given) || given < low || (open_low && given == low) || given >= below) throw wrong_value(name, value, expected);
    field(config) = given;
  };
  key.get = [field](TrainConfig& config) { return real_text(field(config)); };
  return key;
}

Key boolean(std::string name, Field<bool> field, bool resume = false) {
  Key key{name, "true or false", resume, {}, {}};
  key.set = [=](TrainConfig& config, const Value& value) {
    const auto* given = std::get_if<bool>(&value.data);
    if (given == nullptr) throw wrong_value(name, value, "true or false");
    field(config) = *given;
  };
  key.get = [field](TrainConfig& config) { return std::string(field(config) ? "true" : "false"); };
  return key;
}

/// A string; an override's number or date counts as its text (a folder may be called 2024).
const std::string* string_of(const Value& value) {
  if (const auto* given = std::get_if<std::string>(&value.data)) return given;
  return value.from_override ? &value.text : nullptr;
}

template <class T>
struct Choice {
  const char* name;
  T value;
};

template <class T>
Key choice(std::string name, Field<T> field, std::vector<Choice<T>> choices, bool resume = false) {
  std::string expected = "one of ";
  for (const auto& item : choices) expected += (&item == choices.data() ? "" : ", ") + std::string(item.name);
  Key key{name, expected, resume, {}, {}};
  key.set = [=](TrainConfig& config, const Value& value) {
    const std::string* given = std::get_if<std::string>(&value.data);
    for (const auto& item : choices) {
      if (given != nullptr && *given == item.name) {
        field(config) = item.value;
        return;
      }
    }
    throw wrong_value(name, value, expected);
  };
  key.get = [=](TrainConfig& config) {
    for (const auto& item : choices) {
      if (item.value == field(config)) return quote(item.name);
    }
    return std::string();
  };
  return key;
}

Key dtype(std::string name, Field<DType> field) {
  return choice<DType>(std::move(name), field,
                       {{"float32", DType::kFloat32}, {"bfloat16", DType::kBFloat16}, {"float16", DType::kFloat16},
                        {"fp32", DType::kFloat32}, {"bf16", DType::kBFloat16}, {"fp16", DType::kFloat16}});
}

Key text(std::string name, Field<std::string> field, bool resume = false) {
  Key key{name, "a string", resume, {}, {}};
  key.set = [=](TrainConfig& config, const Value& value) {
    const std::string* given = string_of(value);
    if (given == nullptr || given->find('\0') != std::string::npos) throw wrong_value(name, value, "a string");
    field(config) = *given;
  };
  key.get = [field](TrainConfig& config) { return quote(field(config)); };
  return key;
}

Key model_preset() {
  Key key{"model.preset", "a preset's name", false, {}, {}};
  for (const auto& name : preset_names()) key.expected += (name == preset_names().front() ? ": " : ", ") + name;
  key.set = [](TrainConfig& config, const Value& value) {
    const auto* given = std::get_if<std::string>(&value.data);
    if (given == nullptr) throw wrong_value("model.preset", value, "a preset's name");
    config.model = preset(*given);
  };
  key.get = [](TrainConfig&) { return std::string(); };
  return key;
}

/// A family is its defaults too; load_config refuses a family that contradicts a preset.
Key model_family() {
  Key key{"model.family", "one of gpt2, llama", kResume, {}, {}};
  key.set = [](TrainConfig& config, const Value& value) {
    const auto* given = std::get_if<std::string>(&value.data);
    if (given != nullptr && *given == "gpt2") {
      config.model.family = Family::kGpt2;
      config.model.tied = true;
    } else if (given != nullptr && *given == "llama") {
      config.model.family = Family::kLlama;
      config.model.tied = false;
    } else if (given != nullptr && *given == "moe") {
      throw bad_input(value.where + "model.family = \"moe\" is not implemented.", "Use gpt2 or llama.");
    } else {
      throw wrong_value("model.family", value, "one of gpt2, llama");
    }
  };
  key.get = [](TrainConfig& config) {
    return config.model.family == Family::kGpt2 ? quote("gpt2") : config.model.family == Family::kLlama ? quote("llama") : "";
  };
  return key;
}

Key strategy_name() {
  Key key{"strategy.name", "one of ddp, zero1, zero2, zero3, fsdp, no_shard, shard_grad_op, full_shard", false, {}, {}};
  key.set = [expected = key.expected](TrainConfig& config, const Value& value) {
    const auto* given = std::get_if<std::string>(&value.data);
    if (given == nullptr) throw wrong_value("strategy.name", value, expected);
    apply_name(config.strategy, *given);
  };
  key.get = [](TrainConfig&) { return std::string(); };
  return key;
}

Key strategy_dp_shard() {
  Key key = integer<int>("strategy.dp_shard", [](TrainConfig& c) -> int& { return c.strategy.dp_shard; }, -1, kMostInt);
  key.expected = "an integer of at least 1, or -1 for all ranks that are left";
  key.set = [set = key.set, expected = key.expected](TrainConfig& config, const Value& value) {
    if (const auto* given = std::get_if<std::int64_t>(&value.data); given != nullptr && *given == 0) {
      throw wrong_value("strategy.dp_shard", value, expected);
    }
    set(config, value);
  };
  return key;
}

Key strategy_bucket() {
  Key key{"strategy.bucket", "bytes of at least 0, or a size such as \"25M\"", false, {}, {}};
  key.set = [expected = key.expected](TrainConfig& config, const Value& value) {
    if (const auto* bytes = std::get_if<std::int64_t>(&value.data); bytes != nullptr && *bytes >= 0) {
      config.strategy.bucket = static_cast<Bytes>(*bytes);
    } else if (const auto* size = std::get_if<std::string>(&value.data)) {
      try {
        config.strategy.bucket = parse_size(*size);
      } catch (const Error&) {
        throw wrong_value("strategy.bucket", value, expected);
      }
      if (config.strategy.bucket > static_cast<Bytes>(kMost)) throw wrong_value("strategy.bucket", value, expected);
    } else {
      throw wrong_value("strategy.bucket", value, expected);
    }
  };
  key.get = [](TrainConfig& config) { return fmt::format("{}", config.strategy.bucket); };
  return key;
}

Key data_validation() {
  Key key{"data.validation", "a fraction from 0 to below 1, or the path of other data", kResume, {}, {}};
  key.set = [expected = key.expected](TrainConfig& config, const Value& value) {
    double fraction = std::numeric_limits<double>::quiet_NaN();
    if (const auto* number = std::get_if<double>(&value.data)) fraction = *number;
    if (const auto* number = std::get_if<std::int64_t>(&value.data)) fraction = static_cast<double>(*number);
    if (const auto* path = std::get_if<std::string>(&value.data); path != nullptr && !path->empty()) {
      config.validation_path = *path;
      config.validation_fraction = 0;
    } else if (fraction >= 0 && fraction < 1) {
      config.validation_path.clear();
      config.validation_fraction = fraction;
    } else {
      throw wrong_value("data.validation", value, expected);
    }
  };
  key.get = [](TrainConfig& config) {
    return config.validation_path.empty() ? real_text(config.validation_fraction) : quote(config.validation_path);
  };
  return key;
}

Key checkpoint_async() {
  Key key{"checkpoint.async", "false", false, {}, {}};
  key.set = [](TrainConfig&, const Value& value) {
    const auto* given = std::get_if<bool>(&value.data);
    if (given == nullptr) throw wrong_value("checkpoint.async", value, "false");
    if (*given) throw bad_input(value.where + "checkpoint.async = true is not implemented.", "Leave it out: saves are synchronous.");
  };
  key.get = [](TrainConfig&) { return std::string(); };
  return key;
}

void add_model(std::vector<Key>& keys) {
  using C = TrainConfig;
  using I = std::int64_t;
  keys.push_back(model_preset());
  keys.push_back(model_family());
  keys.push_back(integer<I>("model.layers", [](C& c) -> I& { return c.model.layers; }, 1, 1 << 20, kResume));
  keys.push_back(integer<I>("model.width", [](C& c) -> I& { return c.model.width; }, 1, kMostExtent, kResume));
  keys.push_back(integer<I>("model.heads", [](C& c) -> I& { return c.model.heads; }, 1, kMostExtent, kResume));
  keys.push_back(integer<I>("model.kv_heads", [](C& c) -> I& { return c.model.kv_heads; }, 1, kMostExtent, kResume));
  keys.push_back(integer<I>("model.ffn", [](C& c) -> I& { return c.model.ffn; }, 1, kMostExtent, kResume));
  keys.push_back(integer<I>("model.vocab", [](C& c) -> I& { return c.model.vocab; }, 1, kMostInt, kResume));
  keys.push_back(integer<I>("model.context", [](C& c) -> I& { return c.model.context; }, 1, kMostExtent, kResume));
  keys.push_back(boolean("model.tied", [](C& c) -> bool& { return c.model.tied; }, kResume));
  keys.push_back(real("model.norm_epsilon", [](C& c) -> double& { return c.model.norm_epsilon; }, 0, 1, true, kResume));
  keys.push_back(real("model.rope_theta", [](C& c) -> double& { return c.model.rope_theta; }, 0, HUGE_VAL, true, kResume));
}

void add_train(std::vector<Key>& keys) {
  using C = TrainConfig;
  using I = std::int64_t;
  keys.push_back(integer<I>("train.steps", [](C& c) -> I& { return c.steps; }, 1, kMost));
  keys.push_back(integer<I>("train.sequence", [](C& c) -> I& { return c.sequence; }, 1, kMostExtent, kResume));
  keys.push_back(integer<I>("train.micro_batch", [](C& c) -> I& { return c.micro_batch; }, 1, kMostInt));
  keys.push_back(integer<I>("train.accumulation", [](C& c) -> I& { return c.accumulation; }, 1, kMostInt));
  keys.push_back(integer<I>("train.global_batch", [](C& c) -> I& { return c.global_batch; }, 1, kMostExtent, kResume));
  keys.push_back(real("train.lr", [](C& c) -> double& { return c.lr; }, 0));
  keys.push_back(integer<I>("train.warmup", [](C& c) -> I& { return c.warmup; }, 0, kMost));
  keys.push_back(real("train.min_lr", [](C& c) -> double& { return c.min_lr; }, 0));
  keys.push_back(real("train.weight_decay", [](C& c) -> double& { return c.weight_decay; }, 0));
  keys.push_back(real("train.beta1", [](C& c) -> double& { return c.beta1; }, 0, 1));
  keys.push_back(real("train.beta2", [](C& c) -> double& { return c.beta2; }, 0, 1));
  keys.push_back(real("train.epsilon", [](C& c) -> double& { return c.epsilon; }, 0, HUGE_VAL, true));
  keys.push_back(real("train.clip", [](C& c) -> double& { return c.clip; }, 0));
  keys.push_back(integer<std::uint64_t>("train.seed", [](C& c) -> std::uint64_t& { return c.seed; }, 0, kMost, kResume));
  keys.push_back(choice<Optimizer>("train.optimizer", [](C& c) -> Optimizer& { return c.optimizer; },
                                   {{"adamw", Optimizer::kAdamW}, {"sgd", Optimizer::kSgd}}, kResume));
  keys.push_back(integer<int>("train.threads", [](C& c) -> int& { return c.threads; }, 0, 65536));
  keys.push_back(real("train.loss_scale", [](C& c) -> double& { return c.loss_scale; }, 0));
  keys.push_back(integer<int>("train.loss_scale_window", [](C& c) -> int& { return c.loss_scale_window; }, 1, kMostInt));
  keys.push_back(integer<int>("train.max_skipped", [](C& c) -> int& { return c.max_skipped; }, 1, kMostInt));
}

void add_strategy(std::vector<Key>& keys) {
  using C = TrainConfig;
  keys.push_back(strategy_name());
  keys.push_back(integer<int>("strategy.pp", [](C& c) -> int& { return c.strategy.pp; }, 1, kMostInt));
  keys.push_back(integer<int>("strategy.dp_replicate", [](C& c) -> int& { return c.strategy.dp_replicate; }, 1, kMostInt));
  keys.push_back(strategy_dp_shard());
  keys.push_back(integer<int>("strategy.cp", [](C& c) -> int& { return c.strategy.cp; }, 1, kMostInt));
  keys.push_back(integer<int>("strategy.tp", [](C& c) -> int& { return c.strategy.tp; }, 1, kMostInt));
  keys.push_back(integer<int>("strategy.ep", [](C& c) -> int& { return c.strategy.ep; }, 1, kMostInt));
  keys.push_back(integer<int>("strategy.zero", [](C& c) -> int& { return c.strategy.zero; }, 0, 3));
  keys.push_back(choice<Pipeline>("strategy.pipeline", [](C& c) -> Pipeline& { return c.strategy.pipeline; },
                                  {{"gpipe", Pipeline::kGpipe}, {"1f1b", Pipeline::k1F1B},
                                   {"interleaved", Pipeline::kInterleaved}, {"zb-h1", Pipeline::kZbH1}}));
  keys.push_back(integer<int>("strategy.virtual_stages", [](C& c) -> int& { return c.strategy.virtual_stages; }, 1, kMostInt));
  keys.push_back(choice<Recompute>("strategy.recompute", [](C& c) -> Recompute& { return c.strategy.recompute; },
                                   {{"none", Recompute::kNone}, {"selective", Recompute::kSelective}, {"full", Recompute::kFull}}));
  keys.push_back(dtype("strategy.param_dtype", [](C& c) -> DType& { return c.strategy.param_dtype; }));
  keys.push_back(dtype("strategy.reduce_dtype", [](C& c) -> DType& { return c.strategy.reduce_dtype; }));
  keys.push_back(dtype("strategy.buffer_dtype", [](C& c) -> DType& { return c.strategy.buffer_dtype; }));
  keys.push_back(integer<int>("strategy.prefetch", [](C& c) -> int& { return c.strategy.prefetch; }, 0, kMostInt));
  keys.push_back(strategy_bucket());
  keys.push_back(boolean("strategy.keep_after_forward", [](C& c) -> bool& { return c.strategy.keep_after_forward; }));
  keys.push_back(choice<Alias>("strategy.alias", [](C& c) -> Alias& { return c.strategy.alias; },
                               {{"auto", Alias::kAuto}, {"on", Alias::kOn}, {"off", Alias::kOff}}));
  keys.push_back(boolean("strategy.offload", [](C& c) -> bool& { return c.strategy.offload; }));
  keys.push_back(choice<AccumulationPolicy>(
      "strategy.accumulation_policy", [](C& c) -> AccumulationPolicy& { return c.strategy.accumulation_policy; },
      {{"local_sum", AccumulationPolicy::kLocalSum}, {"reduce_each", AccumulationPolicy::kReduceEach}}));
}

void add_rest(std::vector<Key>& keys) {
  using C = TrainConfig;
  using I = std::int64_t;
  keys.push_back(text("data.path", [](C& c) -> std::string& { return c.data_path; }));
  keys.push_back(choice<DataFormat>("data.format", [](C& c) -> DataFormat& { return c.data_format; },
                                    {{"auto", DataFormat::kAuto}, {"text", DataFormat::kText}, {"llmc", DataFormat::kLlmc},
                                     {"nanogpt", DataFormat::kNanoGpt}, {"megatron", DataFormat::kMegatron},
                                     {"random", DataFormat::kRandom}}));
  keys.push_back(data_validation());
  keys.push_back(integer<I>("data.validation_every", [](C& c) -> I& { return c.validation_every; }, 0, kMost));
  keys.push_back(integer<I>("data.validation_batches", [](C& c) -> I& { return c.validation_batches; }, 1, kMostInt));
  keys.push_back(integer<I>("checkpoint.every", [](C& c) -> I& { return c.checkpoint_every; }, 0, kMost));
  keys.push_back(integer<int>("checkpoint.keep", [](C& c) -> int& { return c.checkpoint_keep; }, 0, kMostInt));
  keys.push_back(checkpoint_async());
  keys.push_back(integer<I>("log.every", [](C& c) -> I& { return c.log_every; }, 1, kMost));
  keys.push_back(boolean("log.tensorboard", [](C& c) -> bool& { return c.tensorboard; }));
  keys.push_back(boolean("log.jsonl", [](C& c) -> bool& { return c.jsonl; }));
}

}  // namespace

const std::vector<Key>& keys() {
  static const std::vector<Key> table = [] {
    std::vector<Key> all;
    add_model(all);
    add_train(all);
    add_strategy(all);
    add_rest(all);
    return all;
  }();
  return table;
}

const Key* find_key(const std::string& name) {
  const auto found = std::find_if(keys().begin(), keys().end(), [&](const Key& key) { return key.name == name; });
  return found == keys().end() ? nullptr : &*found;
}

std::string nearest_key(const std::string& name) {
  const std::string shortened = name.substr(0, 128);  // distances to hostile names stay cheap
  const auto own = [](const std::string& full) { return full.substr(full.rfind('.') + 1); };
  std::string best;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const auto& key : keys()) {
    // A key of the right name in the wrong section is nearer than one that only looks alike.
    const std::size_t distance = std::min(2 * edit_distance(shortened, key.name), 2 * edit_distance(own(shortened), own(key.name)) + 1);
    if (distance < least) {
      least = distance;
      best = key.name;
    }
  }
  return best;
}

}  // namespace wirewise::config

namespace wirewise {

std::string_view name_of(Optimizer optimizer) noexcept { return optimizer == Optimizer::kAdamW ? "adamw" : "sgd"; }

std::string_view name_of(DataFormat format) noexcept {
  switch (format) {
    case DataFormat::kAuto: return "auto";
    case DataFormat::kText: return "text";
    case DataFormat::kLlmc: return "llmc";
    case DataFormat::kNanoGpt: return "nanogpt";
    case DataFormat::kMegatron: return "megatron";
    case DataFormat::kRandom: return "random";
  }
  return "unknown";
}

}  // namespace wirewise
