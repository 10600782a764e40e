// What a ring between hosts gets is what placement_cost.h says a ring costs, so that topo and place can't differ. For trees: switches of levels
// 0 to k that are joined make an island; what leaves it shares its uplinks to level k + 1, however many there are (equal-cost paths).
#include "wirewise/wiring/network_ring.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/wiring/group_parts.h"
#include "wirewise/wiring/path.h"
#include "wirewise/wiring/placement_cost.h"
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

std::map<int, std::vector<Exit>> exits_of(const Wiring& wiring, const std::map<int, std::vector<int>>& units) {
  std::map<int, std::vector<Exit>> of_host;
  std::map<int, BytesPerSecond> fastest;
  for (std::size_t i = 0; i < wiring.links.size(); ++i) {
    const Link& link = wiring.links[i];
    const Device& from = wiring.devices[static_cast<std::size_t>(link.from)];
    if (!is_network(link.kind) || from.host < 0 || (from.kind != DeviceKind::kNic && from.kind != DeviceKind::kHost)) continue;
    of_host[from.host].push_back({link.from, static_cast<int>(i), link.beta});
    fastest[from.host] = std::max(fastest[from.host], link.beta);
  }
  for (auto& [host, exits] : of_host) std::erase_if(exits, [&, most = fastest[host]](const Exit& exit) { return exit.bandwidth * 2 < most; });
  const Relations relations(wiring);
  const Paths paths(wiring);
  std::map<int, std::vector<Exit>> all;
  for (const auto& [unit, members] : units) {
    struct Way {
      Exit exit;
      Path path;
      int device = -1;
    };
    std::map<int, Way> used;   // by link, each with the best way to it
    std::map<int, int> ways;   // of each device: how many of them
    for (const int device : members) {
      const auto& exits = of_host[wiring.devices[static_cast<std::size_t>(device)].host];
      Connection nearest = Connection::kUnknown;
      for (const Exit& exit : exits) nearest = std::min(nearest, relations.between(device, exit.device).pcie);
      for (const Exit& exit : exits) {
        if (relations.between(device, exit.device).pcie != nearest) continue;
        auto path = paths.find(device, exit.device).value_or(Path{});
        auto& best = used.try_emplace(exit.link, Way{exit, {}, -1}).first->second;
        const bool shares = path.bandwidth == best.path.bandwidth && ways[device] + 1 < ways[best.device];
        if (best.device != -1 && path.bandwidth <= best.path.bandwidth && !shares) continue;
        if (best.device != -1) --ways[best.device];
        ++ways[device];
        best.path = std::move(path);
        best.device = device;
      }
    }
    std::map<int, int> load;
    for (const auto& [link, way] : used) {
      for (const int each : way.path.links) ++load[each];
    }
    for (auto& [link, way] : used) {
      for (const int each : way.path.links) way.exit.bandwidth = std::min(way.exit.bandwidth, wiring.links[static_cast<std::size_t>(each)].beta / load[each]);
      all[unit].push_back(way.exit);
    }
  }
  return all;
}

GroupBandwidth network_ring(const Wiring& wiring, std::span<const int> devices) {
  const PlacementModel model(wiring, devices);
  std::map<int, std::set<int>> ports;  // by unit
  for (const Slot& slot : model.slots()) {
    if (slot.ports.empty()) {
      throw bad_input("host " + std::to_string(slot.host) + " has no network in this description.", "Describe how it reaches the others.");
    }
    for (const Port& port : slot.ports) ports[slot.unit].insert(port.node);
  }
  constexpr double kBytes = 1e9;
  RankTraffic traffic{static_cast<int>(devices.size()), {{"ring", TrafficPattern::kRing, kBytes, {std::vector<int>(devices.size())}}}};
  std::iota(traffic.phases[0].groups[0].begin(), traffic.phases[0].groups[0].end(), 0);
  const std::vector<int> slots = traffic.phases[0].groups[0];
  const PhaseTime time = PlacementPricer(model, traffic).time(slots).phases[0];
  if (std::isinf(time.seconds)) throw bad_input("no links join all hosts of this description.", "Describe how they reach each other.");
  GroupBandwidth found;
  found.bus = kBytes / time.seconds;
  found.bottleneck = time.bottleneck;
  std::size_t most = 0;
  for (const auto& [unit, of] : ports) most = std::max(most, of.size());
  found.rings = static_cast<int>(most);
  for (const Slot& slot : model.slots()) {  // of what is equally slow the port is named
    for (const Port& port : slot.ports) {
      const Pipe& pipe = model.pipes()[static_cast<std::size_t>(port.node)];
      if (pipe.capacity * static_cast<double>(most) <= found.bus * (1 + 1e-9)) found.bottleneck = pipe.link;
    }
  }
  if (found.bottleneck == -1) return found;
  const Link& slowest = wiring.links[static_cast<std::size_t>(found.bottleneck)];
  const Device& from = wiring.devices[static_cast<std::size_t>(slowest.from)];
  const bool uplink = from.kind == DeviceKind::kSwitch && wiring.devices[static_cast<std::size_t>(slowest.to)].kind == DeviceKind::kSwitch;
  found.provenance = slowest.provenance;
  if (uplink) {
    found.why = "uplinks of " + from.name;
  } else if (is_network(slowest.kind)) {
    const bool rack = model.is_island(model.slots().front().unit) && by_host(wiring, devices).size() > ports.size();
    found.why = std::to_string(most) + (most == 1 ? " network port" : " network ports") + (rack ? " of GPUs that NVSwitches join" : " a host");
  } else {
    found.why = "a ring whose slowest link is " + std::string(name_of(slowest.kind)) + (slowest.source.empty() ? "" : " (" + slowest.source + ")");
  }
  return found;
}

}  // namespace wirewise
