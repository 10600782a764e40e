#include "wirewise/wiring/group.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "wirewise/wiring/group_parts.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/network_ring.h"
#include "wirewise/wiring/nvlink_rings.h"
#include "wirewise/wiring/path.h"

namespace wirewise {
namespace {

const Device& device_at(const Wiring& wiring, int device) { return wiring.devices[static_cast<std::size_t>(device)]; }
constexpr double kRounding = 1e-9;

const Link& link_at(const Wiring& wiring, int link) { return wiring.links[static_cast<std::size_t>(link)]; }

GroupBandwidth over_nvswitches(const Wiring& wiring, const std::vector<std::vector<int>>& out, std::span<const int> devices, std::span<const int> middles) {
  GroupBandwidth best;
  best.bus = std::numeric_limits<double>::infinity();
  for (int device : devices) {
    const SwitchLinks links = links_to_switches(wiring, out[static_cast<std::size_t>(device)], middles);
    if (links.bandwidth >= best.bus) continue;
    best.bus = links.bandwidth;
    best.bottleneck = links.slowest;
    best.rings = links.lanes;
    best.provenance = link_at(wiring, links.slowest).provenance;
  }
  best.why = std::to_string(best.rings) + " NVLinks a GPU to the NVSwitch" + (middles.size() == 1 ? "" : "es");
  return best;
}

GroupBandwidth over_nvlinks(const Wiring& wiring, const std::vector<std::vector<int>>& out, std::span<const int> devices) {
  const DirectLinks direct = direct_links(wiring, out, devices);
  GroupBandwidth found;
  found.provenance = direct.provenance;
  found.bottleneck = direct.slowest;
  found.rings = static_cast<int>(nvlink_rings(direct.lanes).size());
  found.bus = found.rings > 0 ? found.rings * direct.lane : 0;
  const bool xgmi = found.bottleneck != -1 && link_at(wiring, found.bottleneck).kind == LinkKind::kXgmi;
  found.why = std::to_string(found.rings) + (found.rings == 1 ? " ring" : " rings") + (xgmi ? " over xGMI" : " over NVLinks");
  return found;
}

/// One ring, in the better order; links that it passes more than once are shared.
GroupBandwidth over_paths(const Wiring& wiring, const std::vector<std::vector<int>>& out, std::span<const int> devices) {
  const Paths paths(wiring);
  GroupBandwidth found;
  found.rings = 1;
  for (const std::vector<int>& order : orders_of(wiring, paths, out, devices)) {
    std::vector<std::pair<int, int>> hops;
    for (std::size_t i = 0; i < order.size(); ++i) hops.emplace_back(order[i], order[(i + 1) % order.size()]);
    const SlowestHop slowest = slowest_of(wiring, paths, hops);
    if (found.bottleneck != -1 && slowest.bandwidth <= found.bus) continue;
    found.bus = slowest.bandwidth;
    found.bottleneck = slowest.link;
  }
  const Link& slowest = link_at(wiring, found.bottleneck);
  found.provenance = slowest.provenance;
  found.why = "a ring whose slowest link is " + std::string(name_of(slowest.kind)) + (slowest.source.empty() ? "" : " (" + slowest.source + ")");
  return found;
}

/// Of devices that need no network.
GroupBandwidth within_unit(const Wiring& wiring, const std::vector<std::vector<int>>& out, std::span<const int> devices) {
  if (const auto middles = common_nvswitches(wiring, out, devices); !middles.empty()) return over_nvswitches(wiring, out, devices, middles);
  const GroupBandwidth direct = over_nvlinks(wiring, out, devices);
  GroupBandwidth paths = over_paths(wiring, out, devices);
  return direct.bus >= paths.bus ? direct : paths;
}

}  // namespace

std::string_view name_of(GroupAlgorithm algorithm) noexcept {
  switch (algorithm) {
    case GroupAlgorithm::kRing: return "ring";
    case GroupAlgorithm::kInSwitch: return "in-switch";
    case GroupAlgorithm::kTree: return "tree";
  }
  return "unknown";
}

GroupBandwidth ring_bandwidth(const Wiring& wiring, std::span<const int> devices) {
  GroupBandwidth least;
  if (devices.size() < 2) return least;
  const auto out = links_by_device(wiring);
  const auto units = by_unit(wiring, out, devices);
  least.bus = std::numeric_limits<double>::infinity();
  for (const auto& [unit, members] : units) {
    if (members.size() < 2) continue;
    GroupBandwidth here = within_unit(wiring, out, members);
    if (here.bus < least.bus) least = std::move(here);
  }
  if (units.size() > 1) {
    GroupBandwidth between = network_ring(wiring, devices);
    if (between.bus < least.bus * (1 - kRounding)) least = std::move(between);
  }
  return least;
}

std::optional<GroupBandwidth> in_switch_bandwidth(const Wiring& wiring, std::span<const int> devices) {
  constexpr std::size_t kLeast = 5;
  if (devices.size() < kLeast) return std::nullopt;
  const auto out = links_by_device(wiring);
  const std::vector<int> middles = common_nvswitches(wiring, out, devices);
  if (middles.empty() || !std::all_of(middles.begin(), middles.end(), [&](int middle) { return device_at(wiring, middle).nvls; })) return std::nullopt;
  GroupBandwidth found = over_nvswitches(wiring, out, devices, middles);
  const double efficiency = link_class(LinkKind::kNvlink, link_at(wiring, found.bottleneck).generation).in_switch;
  if (efficiency <= 0) return std::nullopt;
  const auto n = static_cast<double>(devices.size());
  const BytesPerSecond algorithm = found.bus * efficiency * (n - 1) / n;
  found.bus = algorithm * 2 * (n - 1) / n;
  found.algorithm = GroupAlgorithm::kInSwitch;
  found.rings = 0;
  found.why = "sums in the NVSwitch, " + found.why;
  return found;
}

GroupBandwidth group_bandwidth(const Wiring& wiring, std::span<const int> devices, GroupCollective collective) {
  GroupBandwidth best = ring_bandwidth(wiring, devices);
  if (collective != GroupCollective::kAllReduce) return best;
  if (devices.size() < 2) return best;
  if (auto in_switch = in_switch_bandwidth(wiring, devices); in_switch && in_switch->bus > best.bus) best = *std::move(in_switch);
  if (GroupBandwidth tree = tree_bandwidth(wiring, devices); tree.bus > best.bus) best = std::move(tree);
  return best;
}

}  // namespace wirewise
