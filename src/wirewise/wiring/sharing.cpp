// What groups need at once, and what crosses the middle of a set of devices.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "wirewise/wiring/group.h"
#include "wirewise/wiring/group_parts.h"
#include "wirewise/wiring/max_flow.h"
#include "wirewise/wiring/network_ring.h"
#include "wirewise/wiring/path.h"

namespace wirewise {
namespace {

const Device& device_at(const Wiring& wiring, int device) { return wiring.devices[static_cast<std::size_t>(device)]; }

/// Devices with those of a host, and hosts of a switch, side by side.
std::vector<int> in_order(const Wiring& wiring, std::span<const int> devices) {
  const auto out = links_by_device(wiring);
  std::map<int, int> leaf_of;  // host: the switch that it hangs on
  for (const Link& link : wiring.links) {
    const Device& from = device_at(wiring, link.from);
    if (from.host >= 0 && device_at(wiring, link.to).kind == DeviceKind::kSwitch) leaf_of.try_emplace(from.host, link.to);
  }
  std::vector<int> sorted(devices.begin(), devices.end());
  const auto key = [&](int device) {
    const int host = device_at(wiring, device).host;
    const auto leaf = leaf_of.find(host);
    return std::tuple(leaf == leaf_of.end() ? -1 : leaf->second, host, device);
  };
  std::sort(sorted.begin(), sorted.end(), [&](int a, int b) { return key(a) < key(b); });
  return sorted;
}

BytesPerSecond flow(const Wiring& wiring, const std::set<int>& from, const std::set<int>& to) {
  const int source = static_cast<int>(wiring.devices.size());
  MaxFlow graph(source + 2);
  for (const Link& link : wiring.links) {
    const auto ends_data = [&](int device) { return device_at(wiring, device).kind == DeviceKind::kGpu || device_at(wiring, device).kind == DeviceKind::kCpu; };
    if (ends_data(link.to) && to.count(link.to) == 0) continue;
    if (ends_data(link.from) && from.count(link.from) == 0) continue;
    graph.add_edge(link.from, link.to, link.beta);
  }
  for (int device : from) graph.add_edge(source, device, std::numeric_limits<double>::max());
  for (int device : to) graph.add_edge(device, source + 1, std::numeric_limits<double>::max());
  return graph.solve(source, source + 1);
}

}  // namespace

std::vector<SharedLink> shared_links(const Wiring& wiring, std::span<const std::vector<int>> groups) {
  std::map<int, std::set<int>> users;
  const Paths paths(wiring);
  const auto out = links_by_device(wiring);
  for (std::size_t group = 0; group < groups.size(); ++group) {
    std::map<int, std::vector<int>> hosts;
    for (int device : groups[group]) hosts[device_at(wiring, device).host].push_back(device);
    std::vector<Exit> exits;
    if (const auto units = by_unit(wiring, out, groups[group]); units.size() > 1) {
      for (const auto& [unit, of] : exits_of(wiring, units)) exits.insert(exits.end(), of.begin(), of.end());
    }
    const auto use = [&](int a, int b) {
      const auto path = paths.find(a, b);
      if (!path) return;
      for (int link : path->links) users[link].insert(static_cast<int>(group));
    };
    for (const Exit& exit : exits) {
      for (const Exit& other : exits) {
        if (exit.device != other.device && device_at(wiring, exit.device).host != device_at(wiring, other.device).host) use(exit.device, other.device);
      }
    }
    for (const auto& [host, devices] : hosts) {
      for (std::size_t i = 0; devices.size() > 1 && i < devices.size(); ++i) use(devices[i], devices[(i + 1) % devices.size()]);
    }
  }
  std::vector<SharedLink> shared;
  for (const auto& [index, of] : users) {
    const Link& link = wiring.links[static_cast<std::size_t>(index)];
    const bool network = link.kind == LinkKind::kEthernet || link.kind == LinkKind::kInfiniband;
    if (of.size() < 2 || !(network || link.kind == LinkKind::kSockets)) continue;
    shared.push_back({index, {of.begin(), of.end()}});
  }
  return shared;
}

BytesPerSecond bisection(const Wiring& wiring, std::span<const int> devices) {
  constexpr std::size_t kMostTried = 8;
  if (devices.size() < 2) return 0;
  const std::vector<int> sorted = in_order(wiring, devices);
  const std::size_t half = sorted.size() / 2;
  if (sorted.size() > kMostTried) return flow(wiring, {sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(half)}, {sorted.begin() + static_cast<std::ptrdiff_t>(half), sorted.end()});
  BytesPerSecond least = std::numeric_limits<double>::infinity();
  std::vector<bool> chosen(sorted.size(), false);
  std::fill(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(half), true);
  do {
    std::set<int> from, to;
    for (std::size_t i = 0; i < sorted.size(); ++i) (chosen[i] ? from : to).insert(sorted[i]);
    least = std::min(least, flow(wiring, from, to));
  } while (std::prev_permutation(chosen.begin(), chosen.end()));
  return least;
}

}  // namespace wirewise
