#include "wirewise/wiring/placement_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "wirewise/base/error.h"

namespace wirewise {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-9;  // relative

}  // namespace

bool better(const PlacementCost& a, const PlacementCost& b) noexcept {
  if (std::isinf(a.seconds) || std::isinf(b.seconds)) return a.seconds < b.seconds;
  const double least = kRounding * std::max(a.seconds, b.seconds);
  if (std::abs(a.seconds - b.seconds) > least) return a.seconds < b.seconds;
  return a.wire < b.wire - kRounding * b.wire;
}

PlacementPricer::PlacementPricer(const PlacementModel& model, const RankTraffic& traffic) : model_(model), traffic_(traffic) {
  std::vector<std::size_t> seen(static_cast<std::size_t>(std::max(traffic.ranks, 0)), 0);
  std::size_t number = 0;
  for (const TrafficPhase& phase : traffic.phases) {
    ++number;
    if (!(phase.bytes >= 0) || std::isinf(phase.bytes)) throw bad_input("the traffic of " + phase.name + " is no number of bytes.", "Give 0 or more.");
    for (const auto& members : phase.groups) {
      size_ += members.size();
      for (const int rank : members) {
        if (rank < 0 || rank >= traffic.ranks) {
          throw bad_input("rank " + std::to_string(rank) + " of " + phase.name + " is not one of " + std::to_string(traffic.ranks) + ".", "Number ranks from 0.");
        }
        if (seen[at(rank)] == number) throw bad_input("rank " + std::to_string(rank) + " stands twice in the groups of " + phase.name + ".", "Put them in phases of their own.");
        seen[at(rank)] = number;
      }
    }
  }
  loads_.assign(model.pipes().size(), 0);
  weights_.assign(model.pipes().size(), 0);
  passed_.assign(model.pipes().size(), 0);
  ways_.assign(model.slots().size(), 0);
}

void PlacementPricer::load(int pipe, double bytes) {
  if (loads_[at(pipe)] == 0) loaded_.push_back(pipe);
  loads_[at(pipe)] += bytes;
}

void PlacementPricer::alone(int link, Seconds seconds, double share) {
  worst_.wire += seconds * share;
  if (seconds <= worst_.seconds) return;
  worst_.seconds = seconds;
  worst_.link = link;
}

void PlacementPricer::climb(int node, double weight) {
  const auto& pipes = model_.pipes();
  for (; pipes[at(node)].up != -1; node = pipes[at(node)].up) {
    if (weights_[at(node)] == 0) weighed_.push_back(node);
    weights_[at(node)] += weight;
  }
  if (std::find(roots_.begin(), roots_.end(), node) == roots_.end()) roots_.push_back(node);
}

bool PlacementPricer::settle(TrafficPattern pattern, double total, double bytes, bool once) {
  for (const int node : weighed_) {
    const double below = weights_[at(node)];
    weights_[at(node)] = 0;
    if (below >= total) continue;
    if (once) passed_[at(node)] = number_;
    load(node, pattern == TrafficPattern::kAllToAll ? below * (total - below) * bytes / (total - 1) : bytes);
  }
  const bool meet = roots_.size() < 2;
  weighed_.clear();
  roots_.clear();
  return meet;
}

void PlacementPricer::way(int a, int b, double bytes, bool once) {
  climb(model_.slots()[at(a)].device, 1);
  climb(model_.slots()[at(b)].device, 1);
  if (!settle(TrafficPattern::kRing, 2, bytes, once)) worst_.seconds = kInfinity;
}

/// Two slots of one host without NVSwitches.
void PlacementPricer::pair(int a, int b, double bytes, bool once) {
  const int link = model_.direct(a, b);
  if (link == -1) return way(a, b, bytes, once);
  alone(link, bytes / model_.wiring().links[at(link)].beta, 1);
}

/// `members` of one unit. `bytes`: of a ring what a member passes on; of all-to-all what it sends to each other one; of a chain's pair all.
void PlacementPricer::inside(TrafficPattern pattern, std::span<const int> members, double bytes) {
  if (members.size() < 2) return;
  const auto& slots = model_.slots();
  const int unit = slots[at(members.front())].unit;
  const auto others = static_cast<double>(members.size() - 1);
  if (model_.is_island(unit)) {
    for (const int slot : members) load(slots[at(slot)].nvlink, pattern == TrafficPattern::kAllToAll ? bytes * others : bytes);
    return;
  }
  if (pattern == TrafficPattern::kRing && model_.has_direct(unit)) {
    if (members.size() == 2) return pair(members[0], members[1], bytes, true);
    if (const double rate = model_.ring_rate(members); rate > 0) {
      const int link = model_.direct(members[0], members[1]);
      return alone(link, bytes / rate, others + 1);
    }
  }
  if (pattern == TrafficPattern::kAllToAll && model_.has_direct(unit)) {
    for (std::size_t i = 0; i < members.size(); ++i) {
      for (std::size_t j = i + 1; j < members.size(); ++j) pair(members[i], members[j], bytes, false);
    }
    return;
  }
  if (pattern == TrafficPattern::kChain) return pair(members[0], members[1], bytes, false);
  for (const int slot : members) climb(slots[at(slot)].device, 1);
  if (!settle(pattern, others + 1, pattern == TrafficPattern::kAllToAll ? bytes * others : bytes, pattern == TrafficPattern::kRing)) worst_.seconds = kInfinity;
}

/// The units of units_, over the network; or over PCIe where they are in one host. `bytes` as in group().
void PlacementPricer::between(TrafficPattern pattern, double bytes) {
  const auto& slots = model_.slots();
  const auto total = static_cast<double>(sorted_.size());
  const int host = slots[at(sorted_.front())].host;
  if (std::all_of(sorted_.begin(), sorted_.end(), [&](int slot) { return slots[at(slot)].host == host; })) {
    for (const int slot : sorted_) climb(slots[at(slot)].device, 1);
    if (!settle(pattern, total, bytes)) worst_.seconds = kInfinity;
    return;
  }
  ports_.resize(std::max(ports_.size(), units_.size()));
  std::size_t rings = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    auto& ports = ports_[u];
    ports.clear();
    for (std::size_t i = units_[u].first; i < units_[u].second; ++i) {
      for (const Port& port : slots[at(sorted_[i])].ports) {
        const int slot = sorted_[i];
        const auto known = std::find_if(ports.begin(), ports.end(), [&](const Way& other) { return other.port->node == port.node; });
        if (known == ports.end()) {
          ports.push_back({&port, slot});
          ++ways_[at(slot)];
          continue;
        }
        const bool shares = port.depth == known->port->depth && ways_[at(slot)] + 1 < ways_[at(known->slot)];
        if (port.depth <= known->port->depth && !shares) continue;
        --ways_[at(known->slot)];
        ++ways_[at(slot)];
        *known = {&port, slot};
      }
    }
    for (const Way& way : ports) ways_[at(way.slot)] = 0;
    if (ports.empty()) {
      worst_.seconds = kInfinity;
      return;
    }
    const auto& pipes = model_.pipes();
    std::sort(ports.begin(), ports.end(), [&](const Way& a, const Way& b) { return std::pair(pipes[at(a.port->node)].up, a.port->node) < std::pair(pipes[at(b.port->node)].up, b.port->node); });
    rings = std::max(rings, ports.size());
  }
  const double part = 1.0 / static_cast<double>(rings);
  for (std::size_t ring = 0; ring < rings; ++ring) {
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const Port& port = *ports_[u][ring % ports_[u].size()].port;
      const auto members = static_cast<double>(units_[u].second - units_[u].first);
      const bool all_to_all = pattern == TrafficPattern::kAllToAll;
      for (const int pipe : port.pcie) {
        if (passed_[at(pipe)] != number_) load(pipe, part * (all_to_all ? members * (total - members) * bytes / (total - 1) : bytes));
      }
      climb(port.node, all_to_all ? members : 1);
    }
    const double weight = pattern == TrafficPattern::kAllToAll ? total : static_cast<double>(units_.size());
    if (!settle(pattern, weight, part * bytes)) worst_.seconds = kInfinity;
  }
}

void PlacementPricer::group(const TrafficPhase& phase, std::span<const int> members) {
  ++number_;
  const auto& slots = model_.slots();
  if (phase.pattern == TrafficPattern::kChain) {
    for (std::size_t i = 0; i + 1 < members.size(); ++i) {
      const int two[2] = {members[i], members[i + 1]};
      if (slots[at(two[0])].unit == slots[at(two[1])].unit) {
        inside(phase.pattern, two, phase.bytes);
        continue;
      }
      sorted_.assign(two, two + 2);
      units_.assign({{0, 1}, {1, 2}});
      between(TrafficPattern::kRing, phase.bytes);
    }
    return;
  }
  sorted_.assign(members.begin(), members.end());
  const auto unit = [&](int slot) { return slots[at(slot)].unit; };
  const auto before = [&](int a, int b) { return std::pair(unit(a), slots[at(a)].device) < std::pair(unit(b), slots[at(b)].device); };
  if (!std::is_sorted(sorted_.begin(), sorted_.end(), before)) std::sort(sorted_.begin(), sorted_.end(), before);
  units_.clear();
  for (std::size_t i = 0; i < sorted_.size(); ++i) {
    if (units_.empty() || unit(sorted_[i]) != unit(sorted_[units_.back().first])) units_.emplace_back(i, i);
    units_.back().second = i + 1;
  }
  const double each = phase.pattern == TrafficPattern::kAllToAll ? phase.bytes / static_cast<double>(members.size() - 1) : phase.bytes;
  for (const auto& [first, last] : units_) inside(phase.pattern, std::span(sorted_).subspan(first, last - first), each);
  if (units_.size() > 1) between(phase.pattern, phase.bytes);
}

PlacementPricer::Worst PlacementPricer::phase(const TrafficPhase& phase, std::span<const int> slot_of) {
  worst_ = {};
  if (phase.bytes <= 0) return worst_;
  for (const auto& members : phase.groups) {
    if (members.size() < 2) continue;
    slots_.clear();
    for (const int rank : members) {
      if (slot_of[at(rank)] == -1) break;
      slots_.push_back(slot_of[at(rank)]);
    }
    if (slots_.size() == members.size()) group(phase, slots_);
  }
  for (const int pipe : loaded_) {
    const Seconds seconds = loads_[at(pipe)] / model_.pipes()[at(pipe)].capacity;
    loads_[at(pipe)] = 0;
    worst_.wire += seconds;
    if (seconds <= worst_.seconds) continue;
    worst_.seconds = seconds;
    worst_.pipe = pipe;
    worst_.link = -1;
  }
  loaded_.clear();
  return worst_;
}

PlacementCost PlacementPricer::cost(std::span<const int> slot_of) {
  PlacementCost sum;
  for (const TrafficPhase& each : traffic_.phases) {
    const Worst worst = phase(each, slot_of);
    sum.seconds += worst.seconds;
    sum.wire += worst.wire;
  }
  return sum;
}

CommunicationTime PlacementPricer::time(std::span<const int> slot_of) {
  CommunicationTime time;
  for (const TrafficPhase& each : traffic_.phases) {
    const Worst worst = phase(each, slot_of);
    PhaseTime of{each.name, worst.seconds, worst.link, {}};
    if (worst.link != -1) {
      const Link& link = model_.wiring().links[at(worst.link)];
      of.where = std::string(name_of(link.kind)) + " from " + model_.wiring().devices[at(link.from)].name + " to " + model_.wiring().devices[at(link.to)].name;
    } else if (worst.pipe != -1) {
      of.bottleneck = model_.pipes()[at(worst.pipe)].link;
      of.where = model_.name_of_pipe(worst.pipe);
    }
    time.seconds += worst.seconds;
    time.phases.push_back(std::move(of));
  }
  return time;
}

}  // namespace wirewise
