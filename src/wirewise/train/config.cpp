#include "wirewise/train/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "wirewise/base/text.h"
#include "wirewise/train/config_keys.h"
#include "wirewise/train/config_value.h"

namespace wirewise {
namespace {

using config::Assignment;
using config::Key;
using config::Value;

bool is_section(const std::string& name) {
  return std::any_of(config::keys().begin(), config::keys().end(), [&](const Key& key) { return key.name.starts_with(name + "."); });
}

void require_known(const Assignment& assignment) {
  if (config::find_key(assignment.key) != nullptr) return;
  const std::string& where = assignment.value.where;
  const auto dot = assignment.key.find('.');
  const std::string section = assignment.key.substr(0, dot);
  const std::string remedy = fmt::format("The nearest known key is {}.", config::nearest_key(assignment.key));
  const std::string name = config::shown(assignment.key);
  if (is_section(section)) {
    if (dot == std::string::npos) throw bad_input(fmt::format("{}{} is a section, not a key.", where, section), remedy);
  } else if (dot != std::string::npos) {
    throw bad_input(fmt::format("{}unknown section [{}] of {}.", where, config::shown(section), name), remedy);
  }
  throw bad_input(fmt::format("{}unknown key {}.", where, name), remedy);
}

/// An override of what other keys start from replaces what earlier sources said of those keys.
void drop_replaced(std::map<std::string, Value>& values, const std::string& key) {
  if (key == "strategy.name") values.erase("strategy.zero");
  if (key == "strategy.zero") values.erase("strategy.name");
  if (key == "model.preset") std::erase_if(values, [](const auto& item) { return item.first.starts_with("model."); });
}

/// Sizes that follow from others, where those were given and these were not.
void derive_model(ModelConfig& model, const std::map<std::string, Value>& values) {
  const auto given = [&](const char* key) { return values.contains(key); };
  const bool from_preset = given("model.preset");
  if (!given("model.kv_heads") && (!from_preset || given("model.heads"))) model.kv_heads = model.heads;
  if (!given("model.ffn") && (!from_preset || given("model.width"))) {
    const auto wide = static_cast<std::uint64_t>(model.width);
    model.ffn = model.family == Family::kLlama ? static_cast<std::int64_t>(round_up((8 * wide + 2) / 3, 256)) : 4 * model.width;
  }
}

void refuse_contradictions(const TrainConfig& config, const std::map<std::string, Value>& values) {
  if (values.contains("strategy.name") && values.contains("strategy.zero")) {
    TrainConfig named;
    config::find_key("strategy.name")->set(named, values.at("strategy.name"));
    if (named.strategy.zero != config.strategy.zero) {
      throw bad_input(fmt::format("{}strategy.zero = {} contradicts strategy.name = {}.", values.at("strategy.zero").where,
                                  config.strategy.zero, config::shown(values.at("strategy.name").text)),
                      "Leave one of them out.");
    }
  }
  if (values.contains("model.preset") && values.contains("model.family")) {
    TrainConfig from_preset;
    config::find_key("model.preset")->set(from_preset, values.at("model.preset"));
    if (from_preset.model.family != config.model.family) {
      throw bad_input(fmt::format("{}model.family = {} contradicts model.preset = {}.", values.at("model.family").where,
                                  config::shown(values.at("model.family").text), config::shown(values.at("model.preset").text)),
                      "Leave one of them out.");
    }
  }
}

/// "key = value" lines to a map.
std::map<std::string, std::string> parse_identity(const std::string& text) {
  std::map<std::string, std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (const auto equals = line.find(" = "); equals != std::string::npos) lines[line.substr(0, equals)] = line.substr(equals + 3);
  }
  return lines;
}

}  // namespace

TrainConfig load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  std::map<std::string, Value> values;
  if (!file.empty()) {
    for (auto& assignment : config::read_toml(file)) {
      require_known(assignment);
      values.insert_or_assign(assignment.key, std::move(assignment.value));
    }
  }
  for (const auto& text : overrides) {
    Assignment assignment = config::read_override(text);
    require_known(assignment);
    drop_replaced(values, assignment.key);
    values.insert_or_assign(assignment.key, std::move(assignment.value));
  }

  TrainConfig result;
  for (const auto& key : config::keys()) {
    if (const auto found = values.find(key.name); found != values.end()) key.set(result, found->second);
  }
  refuse_contradictions(result, values);
  derive_model(result.model, values);
  if (!values.contains("train.min_lr")) result.min_lr = result.lr / 10;
  return result;
}

void finish_config(TrainConfig& config, int ranks) {
  if (ranks < 1) throw bad_input(fmt::format("{} ranks can't train.", ranks), "Start at least 1.");
  config.ranks = ranks;
  for (const std::string& path : {config.data_path, config.validation_path}) {
    if (is_utf8(path)) continue;
    throw bad_input(fmt::format("data path {} is not UTF-8, so neither config.toml nor a checkpoint can name it.", printable(path)),
                    "Link to it under a name in UTF-8.");
  }
  validate(config.model);
  if (config.sequence > config.model.context) {
    throw bad_input(fmt::format("train.sequence {} is longer than model.context {}.", config.sequence, config.model.context),
                    fmt::format("Set train.sequence to at most {}, or model.context to at least {}.", config.model.context,
                                config.sequence));
  }
  if (config.min_lr > config.lr) {
    throw bad_input(fmt::format("train.min_lr {} is above train.lr {}.", config.min_lr, config.lr),
                    "The schedule ends at min_lr: set it to at most lr.");
  }
  if (config.warmup > config.steps) {
    throw bad_input(fmt::format("train.warmup {} is longer than train.steps {}.", config.warmup, config.steps),
                    fmt::format("Set train.warmup to at most {}.", config.steps));
  }
  resolve(config.strategy, ranks);
  resolve_batch(config, Mesh(config.strategy, ranks).data_ranks());
}

std::string to_toml(const TrainConfig& config) {
  TrainConfig copy = config;
  std::string out, section;
  for (const auto& key : config::keys()) {
    const std::string value = key.get(copy);
    if (value.empty()) continue;
    const auto dot = key.name.find('.');
    if (key.name.substr(0, dot) != section) {
      section = key.name.substr(0, dot);
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
    }
    out += fmt::format("{} = {}\n", key.name.substr(dot + 1), value);
  }
  return out;
}

std::string resume_identity(const TrainConfig& config) {
  TrainConfig copy = config;
  std::string out;
  for (const auto& key : config::keys()) {
    if (key.resume) out += fmt::format("{} = {}\n", key.name, key.get(copy));
  }
  return out;
}

void check_resume(const std::string& stored, const TrainConfig& config) {
  const auto before = parse_identity(stored);
  const auto now = parse_identity(resume_identity(config));
  std::string differences;
  for (const auto& [key, value] : now) {
    const auto found = before.find(key);
    if (found != before.end() && found->second == value) continue;
    differences += fmt::format("{}{} = {} there, {} here", differences.empty() ? "" : "; ", key,
                               found == before.end() ? "absent" : found->second, value);
  }
  if (differences.empty()) return;
  throw bad_input(fmt::format("the checkpoint belongs to another run: {}.", differences),
                  "Give the run its checkpoint's values, or train into another folder.");
}

std::vector<KeyHelp> config_key_help() {
  std::vector<KeyHelp> help;
  for (const auto& key : config::keys()) help.push_back({key.name, key.expected});
  return help;
}

}  // namespace wirewise
