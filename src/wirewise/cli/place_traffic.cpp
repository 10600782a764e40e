#include "wirewise/cli/place_traffic.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/train/prepare.h"

namespace wirewise {
namespace {

/// The configuration's degrees on so many ranks, in the words of --mesh, which are checked there.
std::string mesh_of(const Strategy& strategy, int ranks) {
  const double others = static_cast<double>(strategy.pp) * strategy.dp_replicate * strategy.cp * strategy.tp;
  int shard = strategy.dp_shard;
  if (shard == -1) {
    if (others < 1 || others > ranks || ranks % static_cast<int>(others) != 0) {
      throw bad_input("the configuration's degrees make blocks of " + std::to_string(static_cast<long long>(others)) + " ranks, which don't fill " + std::to_string(ranks) + " devices.",
                      "Say the degrees with --mesh, or how many ranks with --ranks.");
    }
    shard = ranks / static_cast<int>(others);
  }
  std::string text;
  const std::pair<const char*, int> degrees[] = {{"pp", strategy.pp}, {"dp_replicate", strategy.dp_replicate}, {"dp_shard", shard}, {"cp", strategy.cp}, {"tp", strategy.tp}, {"ep", strategy.ep}};
  for (const auto& [name, degree] : degrees) text += (text.empty() ? "" : ",") + std::string(name) + "=" + std::to_string(degree);
  return text;
}

/// The same step trained on data-parallel ranks alone, which is what there are schedules of.
Prepared data_parallel(TrainConfig config, const Strategy& mesh, const PlacedOn& on) {
  const int ranks = mesh.dp_shard * mesh.dp_replicate;
  Strategy& strategy = config.strategy;
  strategy.pp = strategy.cp = strategy.tp = strategy.ep = strategy.dp_replicate = 1;
  strategy.virtual_stages = 1;
  strategy.pipeline = Pipeline::k1F1B;
  strategy.dp_shard = ranks;
  config.device = on.gpus ? "cuda" : "cpu";
  config.hosts = std::min(on.hosts, ranks);
  finish_config(config, ranks);
  return prepare(config, 1);
}

std::string divisors_of(std::int64_t number) {
  std::string text;
  for (std::int64_t divisor = 1; divisor <= number; ++divisor) {
    if (number % divisor == 0) text += (text.empty() ? "" : ", ") + std::to_string(divisor);
  }
  return text;
}

/// A mesh that no such model can be spread over has no traffic.
void check_fits(const Strategy& mesh, const TrainConfig& config) {
  const auto divides = [](const char* degree, int value, std::int64_t whole, const std::string& what, const char* remedy) {
    if (whole % value != 0) throw bad_input(std::string(degree) + " " + std::to_string(value) + " doesn't divide " + what + ", " + std::to_string(whole) + ".", remedy + divisors_of(whole) + ".");
  };
  if (mesh.pp > config.model.layers) {
    throw bad_input("pp " + std::to_string(mesh.pp) + " is more stages than the model has layers, " + std::to_string(config.model.layers) + ".", "Make pp smaller, or the model deeper.");
  }
  divides("tp", mesh.tp, config.model.heads, "the model's heads", "Legal: ");
  divides("cp", mesh.cp, config.sequence, "train.sequence", "Legal: ");
}

}  // namespace

StepTraffic step_traffic(const PlacedStep& step, const PlacedOn& on) {
  TrainConfig config = load_config(step.config, step.overrides);
  Strategy mesh = parse_mesh(step.mesh.empty() ? mesh_of(config.strategy, on.devices) : step.mesh);
  mesh.zero = config.strategy.zero;
  const Prepared prepared = data_parallel(config, mesh, on);
  check_fits(mesh, prepared.config);
  TransformerStep size;
  size.parameters = static_cast<double>(prepared.model.parameters());
  size.layers = static_cast<int>(prepared.config.model.layers);
  size.width = static_cast<int>(prepared.config.model.width);
  size.tokens = static_cast<double>(prepared.config.sequence * prepared.config.micro_batch * prepared.config.accumulation);
  size.number_bytes = static_cast<double>(size_of(prepared.config.strategy.param_dtype));
  std::map<std::string, double> given = step.given;
  StepTraffic result;
  // Replicas of shards aren't scheduled yet: with them the schedule of as many data-parallel ranks would count what stays within a replica.
  if (mesh.dp_shard > 1 && mesh.dp_replicate == 1 && !given.contains("dp_shard")) {
    double bytes = 0;
    for (const TrafficPhase& phase : placement_traffic(prepared.train).phases) bytes += phase.bytes;
    given["dp_shard"] = bytes / mesh.pp / mesh.tp;
    result.from["dp_shard"] = "the step's schedule";
  }
  result.traffic = placement_traffic(mesh, size, given);
  for (const TrafficPhase& phase : result.traffic.phases) result.from.try_emplace(phase.name, step.given.contains(phase.name) ? "--traffic" : "the model's size");
  return result;
}

}  // namespace wirewise
