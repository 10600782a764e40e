#include "wirewise/wiring/group_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/collective_curves.h"
#include "wirewise/wiring/group_parts.h"
#include "wirewise/wiring/link_classes.h"

namespace wirewise {
namespace {

/// How many steps follow one another, within hosts and between them (NVIDIA/nccl src/graph/tuning.cc counts them so), and what one costs.
struct Steps {
  double within = 0, between = 0;
  Seconds of_within = 0, of_between = 0;
  std::set<std::string> assumed;  // "AMD xGMI, Zen 2 as Intel QPI, Broadwell": latencies that nobody published
  bool measured = true;           // all links that a step passes
  [[nodiscard]] Seconds all() const { return within * of_within + between * of_between; }
};

Steps steps_of(const Wiring& wiring, std::span<const int> devices, GroupCollective collective, GroupAlgorithm algorithm) {
  Steps steps;
  const auto hosts = by_unit(wiring, links_by_device(wiring), devices);
  const Paths paths(wiring);
  const auto latency = [&](int a, int b) {
    Seconds sum = 0;
    for (const int index : path_between(wiring, paths, a, b).links) {
      const Link& link = wiring.links[static_cast<std::size_t>(index)];
      const LinkLatency of = latency_of(link);
      sum += of.alpha;
      if (!of.as.empty()) steps.assumed.insert(of.as);
      steps.measured = steps.measured && link.provenance == Provenance::kMeasured;
    }
    return sum;
  };
  const auto largest =
      std::max_element(hosts.begin(), hosts.end(), [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (largest->second.size() > 1) steps.of_within = latency(largest->second[0], largest->second[1]);
  if (hosts.size() > 1)
    steps.of_between = latency(hosts.begin()->second.front(), std::next(hosts.begin())->second.front());
  const auto ranks = static_cast<double>(devices.size()), count = static_cast<double>(hosts.size());
  switch (algorithm) {
    case GroupAlgorithm::kRing: {
      const double turns = collective == GroupCollective::kAllReduce ? 2 : 1;
      steps.between = hosts.size() > 1 ? turns * count : 0;
      steps.within = std::max(turns * (ranks - 1) - steps.between, 0.0);
      steps.between = std::min(steps.between, turns * (ranks - 1));
      break;
    }
    case GroupAlgorithm::kTree:
      steps.within = 2 * (static_cast<double>(largest->second.size()) - 1);
      steps.between = 2 * std::ceil(std::log2(count));
      break;
    case GroupAlgorithm::kInSwitch: steps.within = 1; break;  // up to the switch and down again
  }
  return steps;
}

GroupTime by_steps(const Wiring& wiring, std::span<const int> devices, GroupCollective collective, double bytes, GroupBandwidth large) {
  GroupTime found;
  const Steps steps = steps_of(wiring, devices, collective, large.algorithm);
  found.latency = steps.all();
  found.time = found.latency + bus_factor(collective, devices.size()) * bytes / large.bus;
  if (steps.within > 0)
    found.from = fmt::format("{:.0f} step{} of {:.3g} us", steps.within, steps.within == 1 ? "" : "s", steps.of_within * 1e6);
  if (steps.between > 0)
    found.from +=
        fmt::format("{}{:.0f} steps of {:.3g} us between hosts", found.from.empty() ? "" : " and ", steps.between, steps.of_between * 1e6);
  if (!steps.assumed.empty()) {
    found.from += ", latency assumed for " + join(std::vector<std::string>(steps.assumed.begin(), steps.assumed.end()), ", ");
  }
  found.at_least = !steps.measured;
  found.provenance = steps.assumed.empty() ? large.provenance : Provenance::kAssumed;
  found.large = std::move(large);
  return found;
}

}  // namespace

double bus_factor(GroupCollective collective, std::size_t ranks) noexcept {
  const double share = ranks < 2 ? 0 : static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  return collective == GroupCollective::kAllReduce ? 2 * share : share;
}

GroupTime group_time(const Wiring& wiring, std::span<const int> devices, GroupCollective collective, Bytes bytes,
                     std::optional<GroupAlgorithm> algorithm) {
  GroupTime best;
  if (devices.size() < 2) return best;
  if (algorithm && *algorithm != GroupAlgorithm::kRing && collective != GroupCollective::kAllReduce) {
    throw bad_input(std::string(name_of(*algorithm)) + " is for all-reduce only.", "Ask for a ring.");
  }
  const auto size = static_cast<double>(bytes);
  const double factor = bus_factor(collective, devices.size());
  if (!algorithm) {
    // NCCL chose among its algorithms where it was measured.
    GroupBandwidth large = group_bandwidth(wiring, devices, collective);
    const Link& slowest = wiring.links[static_cast<std::size_t>(large.bottleneck)];
    const bool one_host = by_host(wiring, devices).size() == 1;  // as it was measured
    const bool measured =
        collective == GroupCollective::kAllReduce && one_host && large.algorithm != GroupAlgorithm::kInSwitch && joins_gpus(slowest.kind);
    if (const auto curve =
            measured ? all_reduce_curve(slowest.kind, slowest.generation, static_cast<int>(devices.size()), bytes) : std::nullopt) {
      best.latency = curve->above;
      best.time = curve->above + factor * size / large.bus;
      best.from = "as measured: " + curve->source;
      best.provenance = large.provenance;
      best.large = std::move(large);
    }
  }
  if (best.time == 0) {
    const auto consider = [&](GroupBandwidth large) {
      GroupTime next = by_steps(wiring, devices, collective, size, std::move(large));
      if (best.time == 0 || next.time < best.time) best = std::move(next);
    };
    const auto asked = [&](GroupAlgorithm one) { return !algorithm || *algorithm == one; };
    if (asked(GroupAlgorithm::kRing)) consider(ring_bandwidth(wiring, devices));
    if (collective == GroupCollective::kAllReduce) {
      if (asked(GroupAlgorithm::kTree)) consider(tree_bandwidth(wiring, devices));
      auto in_switch = asked(GroupAlgorithm::kInSwitch) ? in_switch_bandwidth(wiring, devices) : std::nullopt;
      if (algorithm == GroupAlgorithm::kInSwitch && !in_switch)
        throw bad_input("no switch that sums joins all of these devices, or they are fewer than 5.", "Ask for a ring or a tree.");
      if (in_switch) consider(*std::move(in_switch));
    }
  }
  best.bus = best.time > 0 ? factor * size / best.time : 0;
  return best;
}

}  // namespace wirewise
