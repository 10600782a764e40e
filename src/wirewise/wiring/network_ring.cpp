// Hosts stand in the order of their switches, so that a ring crosses each switch's uplinks once each way. Switches of levels 0 to k that are
// joined make an island; what leaves it shares its uplinks to level k + 1, however many there are (equal-cost paths).
#include "wirewise/wiring/network_ring.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/wiring/path.h"
#include "wirewise/wiring/relation.h"

namespace wirewise {
namespace {

bool is_network(LinkKind kind) { return kind == LinkKind::kEthernet || kind == LinkKind::kInfiniband; }

/// Islands of switches up to a level: the island of each device, -1 outside.
std::vector<int> islands(const Wiring& wiring, const std::vector<std::vector<int>>& out, int level) {
  std::vector<int> island(wiring.devices.size(), -1);
  int count = 0;
  for (std::size_t first = 0; first < wiring.devices.size(); ++first) {
    const auto inside = [&](int device) {
      const Device& d = wiring.devices[static_cast<std::size_t>(device)];
      return d.kind == DeviceKind::kSwitch && d.level <= level;
    };
    if (!inside(static_cast<int>(first)) || island[first] != -1) continue;
    std::vector<int> reached{static_cast<int>(first)};
    island[first] = count;
    for (std::size_t i = 0; i < reached.size(); ++i) {
      for (int index : out[static_cast<std::size_t>(reached[i])]) {
        const int to = wiring.links[static_cast<std::size_t>(index)].to;
        if (!inside(to) || island[static_cast<std::size_t>(to)] != -1) continue;
        island[static_cast<std::size_t>(to)] = count;
        reached.push_back(to);
      }
    }
    ++count;
  }
  return island;
}

/// What leads from each island to higher switches.
std::vector<Uplinks> uplinks(const Wiring& wiring, const std::vector<int>& island) {
  std::vector<Uplinks> up(static_cast<std::size_t>(*std::max_element(island.begin(), island.end()) + 1));
  for (std::size_t i = 0; i < wiring.links.size(); ++i) {
    const Link& link = wiring.links[i];
    const int from = island[static_cast<std::size_t>(link.from)];
    if (from == -1 || island[static_cast<std::size_t>(link.to)] != -1 || wiring.devices[static_cast<std::size_t>(link.to)].kind != DeviceKind::kSwitch) continue;
    Uplinks& of = up[static_cast<std::size_t>(from)];
    of.capacity += link.beta;
    if (of.slowest == -1 || link.beta < wiring.links[static_cast<std::size_t>(of.slowest)].beta) of.slowest = static_cast<int>(i);
  }
  return up;
}

}  // namespace

std::vector<SwitchLevel> switch_levels(const Wiring& wiring) {
  const auto out = links_by_device(wiring);
  int highest = 0;
  for (const Device& device : wiring.devices) highest = std::max(highest, device.kind == DeviceKind::kSwitch ? device.level : 0);
  std::vector<SwitchLevel> levels;
  for (int level = 0; level < highest; ++level) {
    std::vector<int> island = islands(wiring, out, level);
    std::vector<Uplinks> up = uplinks(wiring, island);
    levels.push_back({std::move(island), std::move(up)});
  }
  return levels;
}

std::map<int, std::vector<Exit>> exits_of(const Wiring& wiring, const std::map<int, std::vector<int>>& hosts) {
  std::map<int, std::vector<Exit>> all;
  for (std::size_t i = 0; i < wiring.links.size(); ++i) {
    const Link& link = wiring.links[i];
    const Device& from = wiring.devices[static_cast<std::size_t>(link.from)];
    if (!is_network(link.kind) || hosts.count(from.host) == 0 || (from.kind != DeviceKind::kNic && from.kind != DeviceKind::kHost)) continue;
    all[from.host].push_back({link.from, static_cast<int>(i), link.beta});
  }
  const Relations relations(wiring);
  const Paths paths(wiring);
  for (auto& [host, exits] : all) {
    std::set<std::size_t> used;
    for (int device : hosts.at(host)) {
      Connection nearest = Connection::kUnknown;
      for (const Exit& exit : exits) nearest = std::min(nearest, relations.between(device, exit.device).pcie);
      for (std::size_t i = 0; i < exits.size(); ++i) {
        if (relations.between(device, exits[i].device).pcie != nearest) continue;
        used.insert(i);
        if (const auto path = paths.find(device, exits[i].device); path && !path->links.empty()) exits[i].bandwidth = std::min(exits[i].bandwidth, path->bandwidth);
      }
    }
    std::vector<Exit> kept;
    for (std::size_t i : used) kept.push_back(exits[i]);
    exits = std::move(kept);
  }
  return all;
}

GroupBandwidth network_ring(const Wiring& wiring, const std::map<int, std::vector<int>>& hosts) {
  GroupBandwidth least;
  least.bus = std::numeric_limits<double>::infinity();
  least.provenance = Provenance::kMeasured;
  const std::map<int, std::vector<Exit>> exits = exits_of(wiring, hosts);
  std::size_t rings = std::numeric_limits<std::size_t>::max();
  for (const auto& [host, devices] : hosts) {
    const auto found = exits.find(host);
    if (found == exits.end() || found->second.empty()) throw bad_input("host " + std::to_string(host) + " has no network in this description.", "Describe how it reaches the others.");
    const std::vector<Exit>& of = found->second;
    BytesPerSecond sum = 0;
    for (const Exit& exit : of) {
      sum += exit.bandwidth;
      least.provenance = less_certain(least.provenance, wiring.links[static_cast<std::size_t>(exit.link)].provenance);
    }
    if (sum < least.bus) {
      least.bus = sum;
      least.bottleneck = std::min_element(of.begin(), of.end(), [](const Exit& a, const Exit& b) { return a.bandwidth < b.bandwidth; })->link;
      least.why = std::to_string(of.size()) + (of.size() == 1 ? " network port a host" : " network ports a host");
    }
    rings = std::min(rings, of.size());
  }
  least.rings = static_cast<int>(rings);
  const BytesPerSecond wanted = least.bus;
  for (const auto& [island, up] : switch_levels(wiring)) {
    std::vector<double> load(up.size(), 0);  // in rings' rates
    for (std::size_t ring = 0; ring < rings; ++ring) {
      std::map<int, int> hosts_in;  // island: hosts; -1: at a higher switch
      for (const auto& [host, of] : exits) ++hosts_in[island[static_cast<std::size_t>(wiring.links[static_cast<std::size_t>(of[ring].link)].to)]];
      if (hosts_in.size() < 2) continue;
      for (const auto& [in, count] : hosts_in) {
        if (in >= 0) load[static_cast<std::size_t>(in)] += 1;
      }
    }
    for (std::size_t i = 0; i < up.size(); ++i) {
      if (load[i] <= 0 || up[i].slowest == -1) continue;
      const BytesPerSecond limit = up[i].capacity / load[i] * static_cast<double>(rings);
      if (limit >= least.bus || limit >= wanted) continue;
      least.bus = limit;
      least.bottleneck = up[i].slowest;
      least.why = "uplinks of " + wiring.devices[static_cast<std::size_t>(wiring.links[static_cast<std::size_t>(up[i].slowest)].from)].name;
      least.provenance = less_certain(least.provenance, wiring.links[static_cast<std::size_t>(up[i].slowest)].provenance);
    }
  }
  return least;
}

}  // namespace wirewise
