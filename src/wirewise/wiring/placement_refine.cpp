// Local search: exchanges that make the step faster, or as fast with less wire, until none is left.
#include <algorithm>
#include <map>
#include <utility>

#include "wirewise/wiring/placement_search.h"

namespace wirewise {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

class Refiner {
 public:
  Refiner(const PlacementModel& model, const RankTraffic& traffic, std::vector<int> slot_of, double budget)
      : model_(model), pricer_(model, traffic), slot_of_(std::move(slot_of)), cost_(pricer_.cost(slot_of_)), left_(budget),
        step_(static_cast<double>(pricer_.size() + slot_of_.size())) {}

  [[nodiscard]] bool spent() const { return left_ < step_; }
  std::vector<int> result() { return std::move(slot_of_); }

  /// Exchanges two lists of ranks, one for one, where that helps.
  bool swap(const std::vector<int>& a, const std::vector<int>& b) {
    exchange(a, b);
    if (keep()) return true;
    exchange(a, b);
    return false;
  }

  /// Moves ranks to free slots where that helps; `to` takes what they leave.
  bool move(const std::vector<int>& ranks, std::vector<int>& to) {
    for (std::size_t i = 0; i < ranks.size(); ++i) std::swap(slot_of_[at(ranks[i])], to[i]);
    if (keep()) return true;
    for (std::size_t i = 0; i < ranks.size(); ++i) std::swap(slot_of_[at(ranks[i])], to[i]);
    return false;
  }

  [[nodiscard]] int host_of(int rank) const { return model_.slots()[at(slot_of_[at(rank)])].host; }

 private:
  void exchange(const std::vector<int>& a, const std::vector<int>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) std::swap(slot_of_[at(a[i])], slot_of_[at(b[i])]);
  }
  bool keep() {
    left_ -= step_;
    const PlacementCost cost = pricer_.cost(slot_of_);
    if (!better(cost, cost_)) return false;
    cost_ = cost;
    return true;
  }

  const PlacementModel& model_;
  PlacementPricer pricer_;
  std::vector<int> slot_of_;
  PlacementCost cost_;
  double left_, step_;
};

bool swap_all(Refiner& refiner, const std::vector<std::vector<int>>& lists) {
  bool helped = false;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    for (std::size_t j = i + 1; j < lists.size() && !refiner.spent(); ++j) {
      if (lists[i].size() == lists[j].size()) helped |= refiner.swap(lists[i], lists[j]);
    }
  }
  return helped;
}

std::vector<std::vector<int>> ranks_by_host(const Refiner& refiner, int ranks) {
  std::map<int, std::vector<int>> hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts[refiner.host_of(rank)].push_back(rank);
  std::vector<std::vector<int>> lists;
  for (auto& [host, list] : hosts) lists.push_back(std::move(list));
  return lists;
}

}  // namespace

std::vector<int> refined(const PlacementModel& model, const RankTraffic& traffic, const RankBlocks& blocks, std::vector<int> slot_of, bool keep_hosts,
                         double budget) {
  std::vector<bool> used(model.slots().size(), false);
  for (const int slot : slot_of) used[at(slot)] = true;
  const auto host_at = [&](int slot) { return model.slots()[at(slot)].host; };
  std::vector<int> free;
  for (std::size_t slot = 0; slot < used.size(); ++slot) {
    if (!used[slot]) free.push_back(static_cast<int>(slot));
  }
  const auto sort_free = [&] { std::stable_sort(free.begin(), free.end(), [&](int a, int b) { return host_at(a) < host_at(b); }); };
  std::map<int, std::vector<std::vector<int>>, std::greater<>> by_size;  // blocks' ranks, larger blocks first
  for (std::size_t block = 0; block < blocks.blocks.size(); ++block) by_size[blocks.blocks[block].size].push_back(ranks_of(blocks, static_cast<int>(block)));
  Refiner refiner(model, traffic, std::move(slot_of), budget);
  for (bool helped = true; helped && !refiner.spent();) {
    helped = false;
    for (const auto& [size, lists] : by_size) {
      if (size > 1) helped |= swap_all(refiner, lists);
    }
    const auto hosts = ranks_by_host(refiner, traffic.ranks);
    helped |= swap_all(refiner, hosts);
    sort_free();  // so that those of a host lie next to each other
    for (const auto& list : hosts) {
      for (std::size_t first = 0, end = 0; first < free.size() && !refiner.spent(); first = end) {
        const int host = host_at(free[first]);
        for (end = first; end < free.size() && host_at(free[end]) == host;) ++end;
        // As many ranks as on the host before, so that the number of hosts stays.
        const bool whole = std::none_of(hosts.begin(), hosts.end(), [&](const auto& other) { return refiner.host_of(other.front()) == host; });
        if (end - first < list.size() || !whole || refiner.host_of(list.front()) == host) continue;
        std::vector<int> to(free.begin() + static_cast<std::ptrdiff_t>(first), free.begin() + static_cast<std::ptrdiff_t>(end));
        if (!refiner.move(list, to)) continue;
        helped = true;
        std::copy(to.begin(), to.end(), free.begin() + static_cast<std::ptrdiff_t>(first));
        sort_free();
        end = 0;
      }
    }
    helped |= swap_all(refiner, by_size[1]);
    for (const auto& rank : by_size[1]) {
      for (int& slot : free) {
        if (refiner.spent()) break;
        if (keep_hosts && refiner.host_of(rank.front()) != host_at(slot)) continue;
        std::vector<int> to{slot};
        helped |= refiner.move(rank, to);
        slot = to.front();
      }
    }
  }
  return refiner.result();
}

}  // namespace wirewise
