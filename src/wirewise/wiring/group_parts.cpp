#include "wirewise/wiring/group_parts.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "wirewise/base/error.h"

namespace wirewise {
namespace {

const Device& device_at(const Wiring& wiring, int device) { return wiring.devices[static_cast<std::size_t>(device)]; }
const Link& link_at(const Wiring& wiring, int link) { return wiring.links[static_cast<std::size_t>(link)]; }

}  // namespace

int nvlink_to(const Wiring& wiring, const std::vector<int>& out, int to) {
  for (int index : out) {
    if (joins_gpus(link_at(wiring, index).kind) && link_at(wiring, index).to == to) return index;
  }
  return -1;
}

std::vector<int> common_nvswitches(const Wiring& wiring, const std::vector<std::vector<int>>& out, std::span<const int> devices) {
  std::set<int> common;
  for (int index : out[static_cast<std::size_t>(devices.front())]) {
    const int to = link_at(wiring, index).to;
    if (link_at(wiring, index).kind != LinkKind::kNvlink || device_at(wiring, to).kind != DeviceKind::kNvSwitch) continue;
    const bool all =
        std::all_of(devices.begin(), devices.end(), [&](int d) { return nvlink_to(wiring, out[static_cast<std::size_t>(d)], to) != -1; });
    if (all) common.insert(to);
  }
  return {common.begin(), common.end()};
}

SwitchLinks links_to_switches(const Wiring& wiring, const std::vector<int>& out, std::span<const int> nvswitches) {
  SwitchLinks found;
  for (const int index : out) {
    const Link& link = link_at(wiring, index);
    if (!joins_gpus(link.kind) || std::find(nvswitches.begin(), nvswitches.end(), link.to) == nvswitches.end()) continue;
    found.bandwidth += link.beta;
    found.lanes += std::max(link.lanes, 1);
    if (found.slowest == -1 || link.beta < link_at(wiring, found.slowest).beta) found.slowest = index;
  }
  return found;
}

DirectLinks direct_links(const Wiring& wiring, const std::vector<std::vector<int>>& out, std::span<const int> devices) {
  DirectLinks found;
  found.lanes.assign(devices.size(), std::vector<int>(devices.size(), 0));
  found.lane = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    for (std::size_t j = 0; j < devices.size(); ++j) {
      const int index = i == j ? -1 : nvlink_to(wiring, out[static_cast<std::size_t>(devices[i])], devices[j]);
      if (index == -1) continue;
      const Link& link = link_at(wiring, index);
      found.lanes[i][j] = std::max(link.lanes, 1);
      if (link.beta / found.lanes[i][j] >= found.lane) continue;
      found.lane = link.beta / found.lanes[i][j];
      found.slowest = index;
      found.provenance = link.provenance;
    }
  }
  return found;
}

Path path_between(const Wiring& wiring, const Paths& paths, int a, int b) {
  auto found = paths.find(a, b);
  if (!found) {
    throw bad_input(device_at(wiring, a).name + " and " + device_at(wiring, b).name + " aren't joined by any links.",
                    "Complete the description of the machine.");
  }
  return *std::move(found);
}

namespace {

std::vector<int> nearest_order(const Wiring& wiring, const Paths& paths, std::span<const int> devices) {
  std::vector<int> left(devices.begin() + 1, devices.end());
  std::vector<int> order{devices.front()};
  while (!left.empty()) {
    auto best = left.begin();
    Path best_path = path_between(wiring, paths, order.back(), *best);
    for (auto next = left.begin() + 1; next != left.end(); ++next) {
      Path hop = path_between(wiring, paths, order.back(), *next);
      const bool shorter = hop.bandwidth == best_path.bandwidth && hop.links.size() < best_path.links.size();
      if (hop.bandwidth <= best_path.bandwidth && !shorter) continue;
      best = next;
      best_path = std::move(hop);
    }
    order.push_back(*best);
    left.erase(best);
  }
  return order;
}

/// Depth first, from the first of them: of a tree any root gives such a ring.
std::vector<int> tree_order(const Wiring& wiring, const std::vector<std::vector<int>>& out, std::span<const int> devices) {
  std::set<int> left(devices.begin(), devices.end()), seen;
  std::vector<int> order, next{devices.front()};
  while (!next.empty() && !left.empty()) {
    const int device = next.back();
    next.pop_back();
    if (!seen.insert(device).second) continue;
    if (left.erase(device) > 0) order.push_back(device);
    for (const int index : out[static_cast<std::size_t>(device)]) {
      const Link& link = link_at(wiring, index);
      const bool inside = link.kind == LinkKind::kPcie || link.kind == LinkKind::kSockets || link.kind == LinkKind::kSharedMemory;
      if (inside && link.beta > 0 && !seen.contains(link.to)) next.push_back(link.to);
    }
  }
  order.insert(order.end(), left.begin(), left.end());
  return order;
}

}  // namespace

std::vector<std::vector<int>> orders_of(const Wiring& wiring, const Paths& paths, const std::vector<std::vector<int>>& out, std::span<const int> devices) {
  return {nearest_order(wiring, paths, devices), tree_order(wiring, out, devices)};
}

SlowestHop slowest_of(const Wiring& wiring, const Paths& paths, std::span<const std::pair<int, int>> hops) {
  std::map<int, int> load;
  for (const auto& [a, b] : hops) {
    for (const int link : path_between(wiring, paths, a, b).links) ++load[link];
  }
  SlowestHop found{std::numeric_limits<double>::infinity(), -1};
  for (const auto& [index, times] : load) {
    if (link_at(wiring, index).beta / times >= found.bandwidth) continue;
    found = {link_at(wiring, index).beta / times, index};
  }
  return found;
}

std::map<int, std::vector<int>> by_host(const Wiring& wiring, std::span<const int> devices) {
  std::map<int, std::vector<int>> hosts;
  for (int device : devices) hosts[device_at(wiring, device).host].push_back(device);
  return hosts;
}

std::map<int, std::vector<int>> by_unit(const Wiring& wiring, const std::vector<std::vector<int>>& out, std::span<const int> devices) {
  const int hosts = hosts_of(wiring);
  std::map<int, std::vector<int>> units;
  for (const int device : devices) {
    int unit = device_at(wiring, device).host;
    for (const int index : out[static_cast<std::size_t>(device)]) {
      const Device& to = device_at(wiring, link_at(wiring, index).to);
      if (joins_gpus(link_at(wiring, index).kind) && to.kind == DeviceKind::kNvSwitch && to.host < 0) unit = hosts + link_at(wiring, index).to;
    }
    units[unit].push_back(device);
  }
  return units;
}

}  // namespace wirewise
