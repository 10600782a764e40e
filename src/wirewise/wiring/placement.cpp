#include "wirewise/wiring/placement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "wirewise/base/error.h"
#include "wirewise/wiring/placement_cost.h"
#include "wirewise/wiring/placement_map.h"
#include "wirewise/wiring/placement_search.h"
#include "wirewise/wiring/placement_why.h"

namespace wirewise {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// Work is counted in ranks that are looked at, so that the same input gives the same placement on any machine.
constexpr double kMapBudget = 3e5;      // of orders of phases that are mapped
constexpr double kRefineBudget = 4e6;   // of exchanges
constexpr double kLargeBudget = 5e5;    // of exchanges where pricing one placement looks at more than kLarge ranks
constexpr double kRandomRefineBudget = 1e6;  // of exchanges from the best random order
constexpr double kLarge = 16384;
constexpr int kRandomOrders = 9;        // that the median is of
constexpr double kRandomBudget = 1e6;

std::vector<int> default_devices(const Wiring& wiring) {
  std::vector<int> devices = devices_of(wiring, DeviceKind::kGpu);
  if (devices.empty()) devices = devices_of(wiring, DeviceKind::kCpu);
  std::erase_if(devices, [&](int device) { return wiring.devices[at(device)].host < 0; });
  return devices;
}

/// Ranks on each host; 0: as it comes. Throws bad input where `nodes` hosts can't hold them.
int per_host(const PlacementModel& model, int ranks, int nodes) {
  if (nodes == 0) return 0;
  if (nodes < 0 || ranks % nodes != 0) {
    throw bad_input(std::to_string(ranks) + " ranks can't be shared equally by " + std::to_string(nodes) + " hosts.", "Choose a number of hosts that divides the ranks.");
  }
  const int each = ranks / nodes;
  std::map<int, int> slots;
  for (const Slot& slot : model.slots()) ++slots[slot.host];
  const auto fit = std::count_if(slots.begin(), slots.end(), [&](const auto& host) { return host.second >= each; });
  if (fit < nodes) {
    throw bad_input("only " + std::to_string(fit) + (fit == 1 ? " host has " : " hosts have ") + std::to_string(each) + " free devices, but " + std::to_string(nodes) + " are to be used.",
                    "Use more hosts with fewer ranks each, or fewer ranks.");
  }
  return each;
}

/// Orders in which phases may be nested, the most promising first.
std::vector<std::vector<int>> orders_of_phases(const RankTraffic& traffic, std::size_t most) {
  std::vector<int> order;
  for (std::size_t i = 0; i < traffic.phases.size(); ++i) {
    const TrafficPhase& phase = traffic.phases[i];
    const bool any = std::any_of(phase.groups.begin(), phase.groups.end(), [](const auto& group) { return group.size() > 1; });
    if (any && phase.bytes > 0) order.push_back(static_cast<int>(i));
  }
  const auto smallest = [&](int i) {  // the distance of a group's ranks
    const auto& group = traffic.phases[at(i)].groups.front();
    return group.size() < 2 ? 0 : std::abs(group[1] - group[0]);
  };
  std::vector<std::vector<int>> orders;
  const auto add = [&](std::vector<int> one) {
    if (orders.size() < most && std::find(orders.begin(), orders.end(), one) == orders.end()) orders.push_back(std::move(one));
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return smallest(a) < smallest(b); });
  const std::vector<int> as_numbered = order;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return traffic.phases[at(a)].bytes > traffic.phases[at(b)].bytes; });
  add(order);
  add(as_numbered);
  constexpr std::size_t kMostPermuted = 5;
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    std::vector<int> near = order;
    std::swap(near[i], near[i + 1]);
    add(std::move(near));
  }
  if (order.size() <= kMostPermuted) {
    std::sort(order.begin(), order.end());
    do add(order);
    while (std::next_permutation(order.begin(), order.end()));
  }
  return orders;
}

class Placer {
 public:
  Placer(const PlacementModel& model, const RankTraffic& traffic, const PlacementOptions& options)
      : model_(model), traffic_(traffic), options_(options), pricer_(model, traffic), each_(per_host(model, traffic.ranks, options.nodes)) {}

  Placement place() {
    Placement placement;
    std::vector<int> all(model_.slots().size());
    std::iota(all.begin(), all.end(), 0);
    const std::vector<int> linear = first_of(all);
    placement.linear = pricer_.time(linear);
    placement.random = random_order();
    take(linear, {});  // first: it stays where nothing is better
    map();
    const RankBlocks blocks = rank_blocks(traffic_, order_);
    take(refined(model_, traffic_, blocks, best_, options_.nodes != 0, size() > kLarge ? kLargeBudget : kRefineBudget), order_);
    if (!best_random_.empty()) {  // from elsewhere: exchanges one by one don't leave every valley
      take(size() > kLarge ? best_random_ : refined(model_, traffic_, blocks, best_random_, options_.nodes != 0, kRandomRefineBudget), order_);
    }
    placement.exact = model_.slots().size() <= kMostExact;
    if (placement.exact) best_ = best_placement(model_, traffic_, std::move(best_), each_);
    placement.time = pricer_.time(best_);
    if (std::isinf(placement.time.seconds)) {
      throw bad_input("the devices for " + std::to_string(traffic_.ranks) + " ranks aren't all joined by links.", "Complete the description, or leave out hosts that nothing reaches.");
    }
    placement.why = reasons(model_, traffic_, best_, placement.time);
    for (const int slot : best_) placement.device.push_back(model_.slots()[at(slot)].device);
    return placement;
  }

 private:
  [[nodiscard]] double size() const { return static_cast<double>(pricer_.size()) + traffic_.ranks; }

  /// The slots of the first ranks in this order: with a number of hosts, of the first that have room, equally many of each.
  [[nodiscard]] std::vector<int> first_of(std::span<const int> slots) const {
    if (each_ == 0) return {slots.begin(), slots.begin() + traffic_.ranks};
    std::map<int, int> room, taken;
    for (const Slot& slot : model_.slots()) ++room[slot.host];
    std::vector<int> first;
    for (const int slot : slots) {
      const int host = model_.slots()[at(slot)].host;
      if (room[host] < each_ || (!taken.contains(host) && static_cast<int>(taken.size()) == options_.nodes)) continue;
      if (taken[host]++ < each_) first.push_back(slot);
    }
    return first;
  }

  [[nodiscard]] int hosts_used(const std::vector<int>& slot_of) const {
    std::set<int> hosts;
    for (const int slot : slot_of) hosts.insert(model_.slots()[at(slot)].host);
    return static_cast<int>(hosts.size());
  }

  /// Keeps the better one; `order`: how its phases are nested.
  void take(std::vector<int> slot_of, const std::vector<int>& order) {
    if (slot_of == best_) return;
    const PlacementCost cost = pricer_.cost(slot_of);
    if (!best_.empty() && !better(cost, best_cost_)) return;
    order_ = order;
    best_ = std::move(slot_of);
    best_cost_ = cost;
  }

  void map() {
    const PlacementTree tree = placement_tree(model_);
    const auto most = static_cast<std::size_t>(std::clamp(kMapBudget / size(), 3.0, 120.0));
    const auto orders = orders_of_phases(traffic_, most);
    order_ = orders.front();
    for (const auto& order : orders) {
      const RankBlocks blocks = rank_blocks(traffic_, order);
      for (const Fit fit : {Fit::kTightest, Fit::kFirst, Fit::kLoosest}) {
        std::vector<int> mapped = map_blocks(tree, blocks, fit, each_);
        if (options_.nodes == 0 || hosts_used(mapped) == options_.nodes) take(std::move(mapped), order);
      }
    }
    // Blocks may have left gaps, or share a NIC where others idle: single ranks fill host after host, or spread over what each has.
    for (const Fit fit : {Fit::kTightest, Fit::kLoosest}) {
      std::vector<int> mapped = map_blocks(tree, rank_blocks(traffic_, {}), fit, each_);
      if (options_.nodes == 0 || hosts_used(mapped) == options_.nodes) take(std::move(mapped), {});
    }
  }

  CommunicationTime random_order() {
    std::mt19937 random(options_.seed);
    std::vector<int> slots(model_.slots().size());
    std::iota(slots.begin(), slots.end(), 0);
    std::vector<CommunicationTime> times;
    double least = std::numeric_limits<double>::infinity();
    const int count = static_cast<int>(std::clamp(kRandomBudget / size(), 3.0, static_cast<double>(kRandomOrders)));
    for (int i = 0; i < count; ++i) {
      for (std::size_t left = slots.size(); left > 1; --left) std::swap(slots[left - 1], slots[random() % left]);  // std::shuffle differs between libraries
      std::vector<int> order = first_of(slots);
      times.push_back(pricer_.time(order));
      if (times.back().seconds >= least) continue;
      least = times.back().seconds;
      best_random_ = std::move(order);
    }
    std::sort(times.begin(), times.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
    return times[times.size() / 2];
  }

  const PlacementModel& model_;
  const RankTraffic& traffic_;
  const PlacementOptions& options_;
  PlacementPricer pricer_;
  int each_;
  std::vector<int> order_;  // of phases, as the best mapping nests them
  std::vector<int> best_, best_random_;
  PlacementCost best_cost_;
};

}  // namespace

std::string_view name_of(TrafficPattern pattern) noexcept {
  switch (pattern) {
    case TrafficPattern::kRing: return "ring";
    case TrafficPattern::kAllToAll: return "all-to-all";
    case TrafficPattern::kChain: return "chain";
  }
  return "";
}

Placement place(const Wiring& wiring, const RankTraffic& traffic, const PlacementOptions& options) {
  const std::vector<int> devices = options.devices.empty() ? default_devices(wiring) : options.devices;
  if (traffic.ranks < 1) throw bad_input("there are no ranks to place.", "Give a mesh of 1 rank or more.");
  if (devices.size() < at(traffic.ranks)) {
    throw bad_input(std::to_string(traffic.ranks) + " ranks don't fit on " + std::to_string(devices.size()) + (devices.size() == 1 ? " device." : " devices."),
                    "Make the mesh smaller, or add hosts.");
  }
  const PlacementModel model(wiring, devices);
  return Placer(model, traffic, options).place();
}

CommunicationTime communication_time(const Wiring& wiring, const RankTraffic& traffic, std::span<const int> device) {
  if (device.size() != at(traffic.ranks)) throw bad_input("there must be a device for each of " + std::to_string(traffic.ranks) + " ranks.");
  const PlacementModel model(wiring, device);
  std::vector<int> slots(device.size());
  std::iota(slots.begin(), slots.end(), 0);
  return PlacementPricer(model, traffic).time(slots);
}

}  // namespace wirewise
