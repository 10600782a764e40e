#include "wirewise/wiring/placement_why.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

namespace wirewise {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

enum Nearness { kIsland, kHost, kLeaf, kFar };

Nearness nearness(const PlacementModel& model, const std::vector<int>& slots) {
  const auto& of = model.slots();
  const Slot& first = of[at(slots.front())];
  const auto all = [&](auto alike) { return std::all_of(slots.begin(), slots.end(), [&](int s) { return alike(of[at(s)]); }); };
  if (model.is_island(first.unit) && all([&](const Slot& s) { return s.unit == first.unit; })) return kIsland;
  if (all([&](const Slot& s) { return s.host == first.host; })) {
    if (!model.has_direct(first.host)) return kHost;
    if (slots.size() == 2) return model.direct(slots[0], slots[1]) != -1 ? kIsland : kHost;
    return model.ring_rate(slots) > 0 ? kIsland : kHost;
  }
  const auto leaves = model.switches_of(slots.front(), 0);
  if (leaves.empty()) return kFar;
  for (const int slot : slots) {
    if (model.switches_of(slot, 0) != leaves) return kFar;
  }
  return kLeaf;
}

}  // namespace

std::vector<std::string> reasons(const PlacementModel& model, const RankTraffic& traffic, std::span<const int> slot_of, const CommunicationTime& time) {
  static constexpr std::array<const char*, 4> kWhere = {"over NVLink alone", "within one host", "under one leaf switch", "across leaf switches"};
  std::vector<std::size_t> order(traffic.phases.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return time.phases[a].seconds > time.phases[b].seconds; });
  std::vector<std::string> lines;
  for (const std::size_t index : order) {
    const TrafficPhase& phase = traffic.phases[index];
    std::array<int, 4> count{};
    int groups = 0;
    for (const auto& group : phase.groups) {
      std::vector<int> slots;
      for (const int rank : group) slots.push_back(slot_of[at(rank)]);
      if (slots.size() < 2) continue;
      ++count[nearness(model, slots)];
      ++groups;
    }
    if (groups == 0 || phase.bytes <= 0) continue;
    std::string line = phase.name + ":";
    bool first = true;
    for (std::size_t i = 0; i < count.size(); ++i) {
      if (count[i] == 0) continue;
      line += std::string(first ? " " : ", ") + std::to_string(count[i]) + (first ? " of " + std::to_string(groups) + " groups " : " ") + kWhere[i];
      first = false;
    }
    line += "; " + format_seconds(time.phases[index].seconds);
    if (!time.phases[index].where.empty()) line += ", limited by " + time.phases[index].where;
    lines.push_back(std::move(line));
  }
  std::set<int> hosts, leaves;
  for (const int slot : slot_of) {
    hosts.insert(model.slots()[at(slot)].host);
    for (const int node : model.switches_of(slot, 0)) leaves.insert(node);
  }
  std::string line = std::to_string(hosts.size()) + (hosts.size() == 1 ? " host" : " hosts");
  if (hosts.size() > 1 && !leaves.empty()) line += " on " + std::to_string(leaves.size()) + (leaves.size() == 1 ? " leaf switch" : " leaf switches");
  lines.push_back(std::move(line));
  return lines;
}

}  // namespace wirewise
