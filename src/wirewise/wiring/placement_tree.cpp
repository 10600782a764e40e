#include "wirewise/wiring/placement_tree.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

namespace wirewise {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

constexpr std::size_t kMostHalved = 16;  // GPUs of a host whose halves are all tried

/// Sets of nodes that hosts have in common.
class Joined {
 public:
  int find(int i) {
    int& parent = parent_.try_emplace(i, i).first->second;
    return parent == i ? i : parent = find(parent);
  }
  void join(int a, int b) {
    a = find(a);
    b = find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::map<int, int> parent_;
};

class Builder {
 public:
  explicit Builder(const PlacementModel& model) : model_(model), keys_(model.slots().size()), rails_(model.slots().size()) {}

  PlacementTree build() {
    add_network_keys();
    add_host_keys();
    std::vector<int> all(keys_.size());
    std::iota(all.begin(), all.end(), 0);
    add(-1, std::move(all), 0, 0);
    return std::move(tree_);
  }

 private:
  [[nodiscard]] const Slot& slot(int i) const { return model_.slots()[at(i)]; }

  /// Pods are hosts, or the hosts of an NVLink island together.
  void add_network_keys() {
    std::map<int, std::set<int>> hosts_of_unit;
    for (const Slot& each : model_.slots()) hosts_of_unit[each.unit].insert(each.host);
    std::map<int, int> pod_of_host;
    for (const auto& [unit, hosts] : hosts_of_unit) {
      if (hosts.size() < 2) continue;
      for (const int host : hosts) pod_of_host[host] = model_.hosts() + unit;
    }
    std::map<std::string, int> racks;
    std::map<int, std::string> rack_of;
    for (const Device& device : model_.wiring().devices) {
      if (device.kind == DeviceKind::kHost) rack_of[device.host] = device.rack;
    }
    std::map<int, std::vector<int>> members;  // of a pod
    std::vector<int> pod(keys_.size());
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      const int host = model_.slots()[i].host;
      const auto in = pod_of_host.find(host);
      pod[i] = in == pod_of_host.end() ? host : in->second;
      members[pod[i]].push_back(static_cast<int>(i));
    }
    for (int height = model_.network_height() - 1; height >= 0; --height) {
      Joined switches;
      std::map<int, int> first;  // of a pod
      for (const auto& [each, slots] : members) {
        for (const int i : slots) {
          for (const int node : model_.switches_of(i, height)) switches.join(first.try_emplace(each, node).first->second, node);
        }
      }
      for (std::size_t i = 0; i < keys_.size(); ++i) {
        const auto found = first.find(pod[i]);
        keys_[i].push_back(found == first.end() ? -1 : switches.find(found->second));
      }
    }
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      const std::string& rack = rack_of[model_.slots()[i].host];
      keys_[i].push_back(racks.try_emplace(rack, static_cast<int>(racks.size())).first->second);
      keys_[i].push_back(pod[i]);
      keys_[i].push_back(model_.slots()[i].host);
      for (const Port& port : model_.slots()[i].ports) {
        for (int node = model_.pipes()[at(port.node)].up; node != -1; node = model_.pipes()[at(node)].up) rails_[i].insert(rails_[i].begin(), node);
        break;
      }
    }
    outside_ = keys_.empty() ? 0 : keys_.front().size();
  }

  void add_host_keys() {
    std::map<int, std::vector<int>> hosts;
    for (std::size_t i = 0; i < keys_.size(); ++i) hosts[model_.slots()[i].host].push_back(static_cast<int>(i));
    for (const auto& [host, slots] : hosts) {
      if (model_.has_direct(host) && slots.size() <= kMostHalved) {
        halve(slots);
        continue;
      }
      for (const int i : slots) {
        std::vector<int> way;
        for (int node = slot(i).device; node != -1; node = model_.pipes()[at(node)].up) way.push_back(node);
        keys_[at(i)].push_back(slot(i).unit);
        keys_[at(i)].insert(keys_[at(i)].end(), way.rbegin(), way.rend());
      }
    }
  }

  [[nodiscard]] double nearness(int a, int b) const {
    const int link = model_.direct(a, b);
    if (link != -1) return model_.wiring().links[at(link)].beta;
    std::set<int> up;  // without NVLinks PCIe decides, which weighs next to nothing beside them
    for (int node = slot(a).device; node != -1; node = model_.pipes()[at(node)].up) up.insert(node);
    double common = 0;
    for (int node = slot(b).device; node != -1; node = model_.pipes()[at(node)].up) common += static_cast<double>(up.count(node));
    return common;
  }

  /// Equal halves with the most NVLink bandwidth inside, again and again.
  void halve(const std::vector<int>& slots) {
    if (slots.size() < 2) {
      for (const int i : slots) keys_[at(i)].push_back(i);
      return;
    }
    const std::size_t size = slots.size();
    std::vector<std::vector<double>> near(size, std::vector<double>(size, 0));
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t j = 0; j < size; ++j) near[i][j] = i == j ? 0 : nearness(slots[i], slots[j]);
    }
    std::vector<bool> in(size, false), best;
    std::fill(in.begin(), in.begin() + static_cast<std::ptrdiff_t>((size + 1) / 2), true);
    double most = -1;
    do {
      if (size % 2 == 0 && !in[0]) break;  // the same halves again
      double inside = 0;
      for (std::size_t i = 0; i < size; ++i) {
        for (std::size_t j = i + 1; j < size; ++j) inside += in[i] == in[j] ? near[i][j] : 0;
      }
      if (inside <= most) continue;
      most = inside;
      best = in;
    } while (std::prev_permutation(in.begin(), in.end()));
    std::vector<int> half[2];
    for (std::size_t i = 0; i < size; ++i) half[best[i] ? 0 : 1].push_back(slots[i]);
    for (int side = 0; side < 2; ++side) {
      for (const int i : half[side]) keys_[at(i)].push_back(side);
      halve(half[side]);
    }
  }

  void add(int parent, std::vector<int> slots, std::size_t level, std::size_t host_below) {
    std::map<int, std::vector<int>> parts;
    while (slots.size() > 1) {
      parts.clear();
      for (const int i : slots) parts[keys_[at(i)][level]].push_back(i);
      if (parts.size() > 1) break;
      ++level;
    }
    const int node = static_cast<int>(tree_.nodes.size());
    tree_.nodes.emplace_back();
    tree_.nodes.back().parent = parent;
    tree_.nodes.back().slots = static_cast<int>(slots.size());
    if (parent != -1) tree_.nodes[at(parent)].children.push_back(node);
    const bool in_host = slots.size() < 2 || level >= outside_;
    if (in_host && host_below == 0 && !slots.empty()) {
      tree_.nodes[at(node)].host = slot(slots.front()).host;
      host_below = 1;
    }
    if (slots.size() < 2) {
      if (!slots.empty()) tree_.nodes[at(node)].slot = slots.front();
      return;
    }
    std::vector<std::vector<int>> ordered;
    for (auto& [key, part] : parts) ordered.push_back(std::move(part));
    const auto first = [&](const std::vector<int>& part) {
      if (!in_host) return std::pair(std::vector<int>{}, part.front());
      std::pair<std::vector<int>, int> least{rails_[at(part.front())], part.front()};
      for (const int i : part) least = std::min(least, std::pair(rails_[at(i)], i));
      return least;
    };
    std::sort(ordered.begin(), ordered.end(), [&](const auto& a, const auto& b) { return first(a) < first(b); });
    for (auto& part : ordered) add(node, std::move(part), level + 1, host_below);
  }

  const PlacementModel& model_;
  std::vector<std::vector<int>> keys_;   // of each slot, outermost first
  std::vector<std::vector<int>> rails_;  // switches above its first port, highest first
  std::size_t outside_ = 0;              // how many keys lie outside of hosts
  PlacementTree tree_;
};

}  // namespace

PlacementTree placement_tree(const PlacementModel& model) { return Builder(model).build(); }

}  // namespace wirewise
