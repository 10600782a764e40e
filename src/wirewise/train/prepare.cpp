#include "wirewise/train/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "wirewise/base/error.h"
#include "wirewise/sim/traffic.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise {
namespace {

constexpr double kBytesAtOneGigabit = 1e9 / 8;  // a second

const Program& program_of(const Prepared& prepared) { return prepared.train.programs.front(); }

std::string peak_op(const Prepared& prepared) {
  if (prepared.memory.peak_op < 0) return "the start";
  return describe(program_of(prepared).ops[static_cast<std::size_t>(prepared.memory.peak_op)], prepared.model);
}

}  // namespace

Prepared prepare(const TrainConfig& finished, int threads) {
  Prepared prepared;
  prepared.config = finished;
  prepared.threads = threads;
  Strategy strategy = finished.strategy;
  if (finished.device != "cpu") {
    if (strategy.alias == Alias::kOn) {
      throw bad_input("strategy.alias on: parameters in the memory of a GPU can't be one buffer for all ranks.", "Set strategy.alias to auto or off.");
    }
    strategy.alias = Alias::kOff;
  }
  resolve_alias(strategy, finished.hosts);
  BatchShape batch;
  batch.micro_batch = finished.micro_batch;
  batch.sequence = finished.sequence;
  batch.param_dtype = strategy.param_dtype;
  batch.separate_gradient = strategy.accumulation > 1 && strategy.accumulation_policy == AccumulationPolicy::kLocalSum &&
                            size_of(strategy.param_dtype) < size_of(DType::kFloat32);
  batch.buffer_dtype = strategy.buffer_dtype;
  prepared.model = build_model(finished.model, batch, strategy.dp_shard);
  TrainOptions options;
  // float16 needs the norm in any case: it is where an overflow is seen.
  options.clip = finished.clip > 0 || strategy.param_dtype == DType::kFloat16 || strategy.reduce_dtype == DType::kFloat16;
  options.adam_moments = finished.optimizer == Optimizer::kAdamW;
  prepared.train = build_train_schedule(prepared.model, strategy, finished.ranks, options);
  prepared.forward = build_forward_schedule(prepared.model, strategy, finished.ranks);
  prepared.memory = memory_walk(program_of(prepared));
  prepared.host_of = hosts_in_order(finished.ranks, finished.ranks);
  return prepared;
}

std::vector<int> hosts_in_order(int ranks, int local_ranks) {
  std::vector<int> hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts.push_back(rank / std::max(1, local_ranks));
  return hosts;
}

int host_count(const Prepared& prepared) {
  return prepared.host_of.empty() ? 1 : *std::max_element(prepared.host_of.begin(), prepared.host_of.end()) + 1;
}

std::string over_limit(const Prepared& prepared, Bytes limit) {
  if (prepared.memory.peak <= limit) return {};
  return fmt::format("a rank needs {} at {}, {} more than the limit of {}.", format_bytes(prepared.memory.peak), peak_op(prepared),
                     format_bytes(prepared.memory.peak - limit), format_bytes(limit));
}

std::string dry_run_text(const Prepared& prepared) {
  const Program& program = program_of(prepared);
  const TrainConfig& config = prepared.config;
  std::string text = fmt::format("model      {} parameters in {} units, {} parameter groups\n", prepared.model.parameters(),
                                 prepared.model.units.size(), prepared.model.groups.size());
  text += fmt::format("strategy   {} over {} rank{}, param {}, reduce {}{}\n", name_of(config.strategy), config.ranks, config.ranks == 1 ? "" : "s",
                      name_of(config.strategy.param_dtype), name_of(config.strategy.reduce_dtype),
                      is_aliased(prepared.train.strategy) ? ", parameters once on the host (alias)" : "");
  text += fmt::format("batch      {} = micro-batch {} x accumulation {} x {} ranks, sequence {}, {} tokens a step\n", config.global_batch,
                      config.micro_batch, config.accumulation, config.ranks, config.sequence, config.global_batch * config.sequence);
  text += fmt::format("threads    {} a rank\n", prepared.threads);
  if (const int hosts = host_count(prepared); hosts > 1) {
    const double sent = sent_between_hosts(prepared.train, prepared.host_of);
    text += fmt::format("hosts      {}, joined by {}: each sends {} a step, {} at 1 Gbit/s, {} at 10 Gbit/s\n", hosts, name_of(assumed_network().kind),
                        format_bytes(static_cast<Bytes>(sent)), format_seconds(sent / kBytesAtOneGigabit), format_seconds(sent / (10 * kBytesAtOneGigabit)));
  }
  text += "\nunits\n";
  for (std::size_t i = 0; i < prepared.model.units.size();) {
    // Equal neighbours (the blocks) take one line.
    const UnitShape& unit = prepared.model.units[i];
    std::uint64_t parameters = 0;
    for (const int group : unit.groups) {
      if (prepared.model.groups[static_cast<std::size_t>(group)].users.front() == static_cast<int>(i)) {
        parameters += prepared.model.groups[static_cast<std::size_t>(group)].parameters();
      }
    }
    std::size_t last = i;
    while (unit.kind == UnitKind::kBlock && last + 1 < prepared.model.units.size() && prepared.model.units[last + 1].kind == UnitKind::kBlock) ++last;
    std::string segments;
    for (const SegmentShape& segment : unit.segments) segments += (segments.empty() ? "" : ", ") + segment.name;
    text += fmt::format("  {:<28} {:>12} parameters{}  {}\n",
                        last == i ? unit.name : unit.name + " … " + prepared.model.units[last].name.substr(prepared.model.units[last].name.rfind('.') + 1),
                        parameters, last == i ? "" : " each", segments);
    i = last + 1;
  }
  text += "\nroles\n";
  for (const Program& role : prepared.train.programs) {
    text += fmt::format("  {:<28} ranks {}-{}, {} ops a step\n", role.role, role.ranks.front(), role.ranks.back(), role.ops.size());
  }
  text += fmt::format("\nmemory of each rank ({} rank{} alike)\n  {:<14} {:>14} {:>14}\n", program.ranks.size(), program.ranks.size() == 1 ? "" : "s",
                      "category", "its own peak", "at the peak");
  for (int c = 0; c < kCategories; ++c) {
    text += fmt::format("  {:<14} {:>14} {:>14}\n", name_of(static_cast<Category>(c)), format_bytes(prepared.memory.category_peak[c]),
                        format_bytes(prepared.memory.at_peak[c]));
  }
  text += fmt::format("  {:<14} {:>14} {:>14}\n  peak at {}\n", "all", "", format_bytes(prepared.memory.peak), peak_op(prepared));
  if (config.memory_limit) {
    const std::string over = over_limit(prepared, *config.memory_limit);
    text += over.empty() ? fmt::format("  fits the limit of {} with {} to spare\n", format_bytes(*config.memory_limit),
                                       format_bytes(*config.memory_limit - prepared.memory.peak))
                         : "  does not fit: " + over + "\n";
  }
  return text;
}

std::string dry_run_json(const Prepared& prepared) {
  nlohmann::json line;
  line["event"] = "dry_run";
  line["parameters"] = prepared.model.parameters();
  line["strategy"] = name_of(prepared.config.strategy);
  line["alias"] = is_aliased(prepared.train.strategy);
  line["ranks"] = prepared.config.ranks;
  line["hosts"] = host_count(prepared);
  line["sent_between_hosts_bytes"] = static_cast<Bytes>(sent_between_hosts(prepared.train, prepared.host_of));
  for (const UnitShape& unit : prepared.model.units) line["units"].push_back(unit.name);
  for (const Program& role : prepared.train.programs) {
    line["roles"].push_back({{"role", role.role}, {"ranks", role.ranks}, {"ops", role.ops.size()}});
  }
  nlohmann::json memory;
  for (int c = 0; c < kCategories; ++c) {
    memory[std::string(name_of(static_cast<Category>(c)))] = {{"peak", prepared.memory.category_peak[c]}, {"at_peak", prepared.memory.at_peak[c]}};
  }
  for (const int rank : program_of(prepared).ranks) {
    line["memory"].push_back({{"rank", rank}, {"peak_bytes", prepared.memory.peak}, {"peak_op", peak_op(prepared)}, {"categories", memory}});
  }
  if (prepared.config.memory_limit) {
    const Bytes limit = *prepared.config.memory_limit;
    line["memory_limit"] = {{"bytes", limit},
                            {"fits", prepared.memory.peak <= limit},
                            {"over_bytes", prepared.memory.peak > limit ? prepared.memory.peak - limit : 0}};
  }
  return line.dump();
}

double learning_rate(const TrainConfig& config, std::int64_t step) {
  if (step <= config.warmup) return config.lr * static_cast<double>(step) / static_cast<double>(config.warmup);
  const double span = static_cast<double>(std::max<std::int64_t>(1, config.steps - config.warmup));
  const double progress = std::min(1.0, static_cast<double>(step - config.warmup) / span);
  return config.min_lr + 0.5 * (config.lr - config.min_lr) * (1.0 + std::cos(std::numbers::pi * progress));
}

}  // namespace wirewise
