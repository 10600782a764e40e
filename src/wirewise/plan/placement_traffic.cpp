#include "wirewise/plan/placement_traffic.h"

#include <algorithm>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/base/nearest.h"
#include "wirewise/base/text.h"

namespace wirewise {
namespace {

struct Degree {
  const char* name;
  int Strategy::*value;
  Mesh::Dim dim;
};
constexpr Degree kDegrees[] = {{"pp", &Strategy::pp, Mesh::Dim::kPp},
                               {"dp_replicate", &Strategy::dp_replicate, Mesh::Dim::kDpReplicate},
                               {"dp_shard", &Strategy::dp_shard, Mesh::Dim::kDpShard},
                               {"cp", &Strategy::cp, Mesh::Dim::kCp},
                               {"tp", &Strategy::tp, Mesh::Dim::kTp}};
constexpr long long kMostRanks = 1 << 20;

/// All groups of a dimension, by their first ranks.
std::vector<std::vector<int>> groups_of(const Mesh& mesh, Mesh::Dim dim) {
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    std::vector<int> group = mesh.group_of(rank, dim);
    if (group.front() == rank) groups.push_back(std::move(group));
  }
  return groups;
}

/// Runs of `ep` neighbours of each data-parallel group.
std::vector<std::vector<int>> expert_groups(const Mesh& mesh, int ep) {
  std::vector<std::vector<int>> groups;
  for (const auto& group : groups_of(mesh, Mesh::Dim::kDpShard)) {
    for (std::size_t first = 0; first < group.size(); first += static_cast<std::size_t>(ep)) {
      groups.emplace_back(group.begin() + static_cast<std::ptrdiff_t>(first), group.begin() + static_cast<std::ptrdiff_t>(first) + ep);
    }
  }
  return groups;
}

double share(int n) { return (n - 1.0) / n; }

/// "tp=8", "dp=2" of "tp=8,dp=2", "tp=8 dp=2" and "tp=8, dp=2".
std::vector<std::string> degrees_of(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  std::vector<std::string> words;
  for (const std::string& part : split(text, ',')) {
    const std::size_t before = words.size();
    for (std::size_t begin = part.find_first_not_of(kBlanks); begin != std::string::npos;) {
      const std::size_t end = std::min(part.find_first_of(kBlanks, begin), part.size());
      words.push_back(part.substr(begin, end - begin));
      begin = part.find_first_not_of(kBlanks, end);
    }
    if (words.size() == before) throw bad_input("the mesh has a comma too many.", "Write pp=2,dp=8,tp=8.");
  }
  return words;
}

}  // namespace

Strategy parse_mesh(std::string_view text) {
  Strategy strategy;
  strategy.dp_shard = 1;
  std::vector<std::string> seen;
  for (const std::string& word : degrees_of(text)) {
    const auto equals = word.find('=');
    std::string name = word.substr(0, equals);
    if (name == "dp") name = "dp_shard";
    int Strategy::*value = name == "ep" ? &Strategy::ep : nullptr;
    std::vector<std::string> known{"dp", "ep"};
    for (const Degree& degree : kDegrees) {
      known.emplace_back(degree.name);
      if (name == degree.name) value = degree.value;
    }
    if (value == nullptr) {
      const auto guess = nearest(name, known);
      throw bad_input("a mesh has no " + printable(name) + ".", guess ? "Did you mean " + *guess + "?" : "Its degrees are pp, dp_replicate, dp_shard (dp), cp, tp and ep.");
    }
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) throw bad_input("the mesh says " + name + " twice.", "Give it once.");
    seen.push_back(name);
    const auto degree = equals == std::string::npos ? std::nullopt : parse_integer(std::string_view(word).substr(equals + 1));
    if (!degree || *degree < 1 || *degree > kMostRanks) throw bad_input(printable(word) + " is no degree of a mesh.", "Write " + name + "=8.");
    strategy.*value = static_cast<int>(*degree);
  }
  if (seen.empty()) throw bad_input("the mesh is empty.", "Write pp=2,dp=8,tp=8.");
  if (ranks_of(strategy) > kMostRanks) throw bad_input("the mesh has more than " + std::to_string(kMostRanks) + " ranks.", "Make it smaller.");
  if (strategy.dp_shard % strategy.ep != 0) {
    throw bad_input("ep " + std::to_string(strategy.ep) + " doesn't divide dp_shard " + std::to_string(strategy.dp_shard) + ".", "Experts are spread over data-parallel ranks.");
  }
  return strategy;
}

long long ranks_of(const Strategy& strategy) {
  long long ranks = 1;
  for (const Degree& degree : kDegrees) ranks = std::min(ranks * std::max(strategy.*degree.value, 1), 2 * kMostRanks);
  return ranks;
}

RankTraffic placement_traffic(const Strategy& strategy, const TransformerStep& step, const std::map<std::string, double>& given) {
  RankTraffic traffic;
  traffic.ranks = static_cast<int>(ranks_of(strategy));
  const Mesh mesh(strategy, traffic.ranks);
  for (const auto& [name, bytes] : given) {
    const bool known = name == "ep" || std::any_of(std::begin(kDegrees), std::end(kDegrees), [&, of = name](const Degree& degree) { return of == degree.name; });
    if (!known) throw bad_input("a mesh has no " + printable(name) + " that could send.", "Its degrees are pp, dp_replicate, dp_shard, cp, tp and ep.");
  }
  const double activation = step.tokens / strategy.cp * step.width * step.number_bytes;
  const double layers = static_cast<double>(step.layers) / strategy.pp;
  const double gradients = step.parameters * step.number_bytes / strategy.pp / strategy.tp;
  const auto bytes_of = [&](const std::string& name) {
    if (name == "tp") return 4 * layers * 2 * share(strategy.tp) * activation;
    if (name == "cp") return 3 * layers * 2 * activation * (strategy.cp - 1);
    if (name == "ep") return 4 * layers * share(strategy.ep) * activation;
    if (name == "pp") return activation;
    if (name == "dp_shard") return (strategy.zero == 3 ? 3 : 2) * share(strategy.dp_shard) * gradients;
    return 2 * share(strategy.dp_replicate) * gradients / strategy.dp_shard;
  };
  const auto add = [&](const std::string& name, TrafficPattern pattern, std::vector<std::vector<int>> groups) {
    const auto own = given.find(name);
    traffic.phases.push_back({name, pattern, own == given.end() ? bytes_of(name) : own->second, std::move(groups)});
  };
  for (const Degree& degree : kDegrees) {
    if (degree.dim == Mesh::Dim::kCp && strategy.ep > 1) add("ep", TrafficPattern::kAllToAll, expert_groups(mesh, strategy.ep));
    if (strategy.*degree.value < 2) continue;
    add(degree.name, degree.dim == Mesh::Dim::kPp ? TrafficPattern::kChain : TrafficPattern::kRing, groups_of(mesh, degree.dim));
  }
  for (const auto& [name, bytes] : given) {
    const bool sends = std::any_of(traffic.phases.begin(), traffic.phases.end(), [&, of = name](const TrafficPhase& phase) { return phase.name == of; });
    if (!sends) throw bad_input("the mesh has no " + name + " above 1, so nothing of it is sent.", "Leave its traffic out.");
  }
  return traffic;
}

RankTraffic placement_traffic(const Schedule& schedule) {
  RankTraffic traffic;
  traffic.ranks = schedule.ranks;
  const Mesh mesh(schedule.strategy, schedule.ranks);
  for (const Degree& degree : kDegrees) {
    const int n = mesh.degree(degree.dim);
    double most = 0;
    for (const Program& program : schedule.programs) {
      double sum = 0;
      for (const Op& op : program.ops) {
        if (op.group != degree.dim || n < 2) continue;
        if (op.kind == OpKind::kGather || op.kind == OpKind::kReduceScatter) sum += share(n) * static_cast<double>(op.bytes);
        if (op.kind == OpKind::kAllReduce) sum += 2 * share(n) * static_cast<double>(op.bytes);
      }
      most = std::max(most, sum);
    }
    if (most > 0) traffic.phases.push_back({degree.name, TrafficPattern::kRing, most, groups_of(mesh, degree.dim)});
  }
  return traffic;
}

}  // namespace wirewise
