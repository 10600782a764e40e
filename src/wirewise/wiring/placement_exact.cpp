// Branch and bound over all placements of a few ranks.
#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "wirewise/wiring/placement_search.h"

namespace wirewise {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// Ranks so that heavy groups are complete early.
std::vector<int> order_of_ranks(const RankTraffic& traffic) {
  std::vector<std::size_t> phases(traffic.phases.size());
  std::iota(phases.begin(), phases.end(), std::size_t{0});
  std::stable_sort(phases.begin(), phases.end(), [&](std::size_t a, std::size_t b) { return traffic.phases[a].bytes > traffic.phases[b].bytes; });
  std::vector<int> order;
  std::vector<bool> in(at(traffic.ranks), false);
  const auto take = [&](int rank) {
    if (!in[at(rank)]) order.push_back(rank);
    in[at(rank)] = true;
  };
  for (const std::size_t phase : phases) {
    for (const auto& group : traffic.phases[phase].groups) std::for_each(group.begin(), group.end(), take);
  }
  for (int rank = 0; rank < traffic.ranks; ++rank) take(rank);
  return order;
}

class Search {
 public:
  Search(const PlacementModel& model, const RankTraffic& traffic, std::vector<int> start, int per_host)
      : model_(model), pricer_(model, traffic), order_(order_of_ranks(traffic)), best_(std::move(start)), best_cost_(pricer_.cost(best_)), per_host_(per_host), traffic_ranks_(traffic.ranks),
        slot_of_(at(traffic.ranks), -1), used_(model.slots().size(), false) {
    add_twins();
  }

  std::vector<int> run() {
    extend(0);
    return std::move(best_);
  }

 private:
  /// The first slot that differs from each in nothing that is priced.
  void add_twins() {
    const auto& slots = model_.slots();
    const auto bare = [&](int node) { return std::pair(model_.pipes()[at(node)].up, model_.pipes()[at(node)].capacity); };
    const auto alike = [&](const Slot& a, const Slot& b) {
      if (a.host != b.host || a.unit != b.unit || (a.nvlink == -1) != (b.nvlink == -1) || bare(a.device) != bare(b.device)) return false;
      if (model_.has_direct(a.host) || (a.nvlink != -1 && bare(a.nvlink) != bare(b.nvlink)) || a.ports.size() != b.ports.size()) return false;
      for (std::size_t i = 0; i < a.ports.size(); ++i) {
        if (a.ports[i].node != b.ports[i].node || a.ports[i].pcie.size() != b.ports[i].pcie.size()) return false;
      }
      return true;
    };
    for (std::size_t i = 0; i < slots.size(); ++i) {
      std::size_t first = 0;
      while (first < i && !alike(slots[first], slots[i])) ++first;
      twin_.push_back(first);
    }
  }

  void extend(std::size_t placed) {
    if (placed > 0) {
      const PlacementCost cost = pricer_.cost(slot_of_);
      if (!better(cost, best_cost_)) return;
      if (placed == order_.size()) {
        best_cost_ = cost;
        best_ = slot_of_;
        return;
      }
    }
    std::vector<bool> tried(used_.size(), false);
    for (std::size_t slot = 0; slot < used_.size(); ++slot) {
      int& on_host = on_host_[model_.slots()[slot].host];
      if (used_[slot] || tried[twin_[slot]]) continue;
      if (per_host_ > 0 && (on_host == per_host_ || (on_host == 0 && hosts_ * per_host_ == traffic_ranks_))) continue;
      tried[twin_[slot]] = true;
      used_[slot] = true;
      hosts_ += on_host++ == 0 ? 1 : 0;
      slot_of_[at(order_[placed])] = static_cast<int>(slot);
      extend(placed + 1);
      slot_of_[at(order_[placed])] = -1;
      hosts_ -= --on_host == 0 ? 1 : 0;
      used_[slot] = false;
    }
  }

  const PlacementModel& model_;
  PlacementPricer pricer_;
  std::vector<int> order_;
  std::vector<int> best_;
  PlacementCost best_cost_;
  int per_host_, hosts_ = 0, traffic_ranks_;
  std::vector<int> slot_of_;
  std::vector<bool> used_;
  std::map<int, int> on_host_;
  std::vector<std::size_t> twin_;
};

}  // namespace

std::vector<int> best_placement(const PlacementModel& model, const RankTraffic& traffic, std::vector<int> start, int per_host) {
  return Search(model, traffic, std::move(start), per_host).run();
}

}  // namespace wirewise
