#include "wirewise/wiring/path.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <unordered_map>
#include <utility>

namespace wirewise {
namespace {

constexpr double kHop = 1e-15;  // seconds a byte: decides between paths that are equally fast

/// Whether data may pass through it on its way: through a GPU only from xGMI to xGMI, which routes by itself.
bool passes(DeviceKind kind, LinkKind in, LinkKind out) {
  if (kind == DeviceKind::kGpu) return in == LinkKind::kXgmi && out == LinkKind::kXgmi;
  return kind != DeviceKind::kCpu;
}

/// Whether a path between devices of `host` may use it: NVSwitches of a rack stand outside of its hosts.
bool within(const Device& device, int host) { return host == -1 || device.host == host || (device.host == -1 && device.kind == DeviceKind::kNvSwitch); }

int certainty(Provenance provenance) {
  switch (provenance) {
    case Provenance::kAssumed: return 0;
    case Provenance::kSpec: return 1;
    case Provenance::kDriver: return 2;
    case Provenance::kMeasured: return 3;
  }
  return 0;
}

}  // namespace

Provenance less_certain(Provenance a, Provenance b) noexcept { return certainty(a) <= certainty(b) ? a : b; }

Paths::Paths(const Wiring& wiring) : wiring_(wiring), out_(links_by_device(wiring)) {}

std::optional<Path> Paths::find(int from, int to) const {
  Path path;
  if (from == to) return path;
  const auto& devices = wiring_.devices;
  const int host = devices[static_cast<std::size_t>(from)].host == devices[static_cast<std::size_t>(to)].host ? devices[static_cast<std::size_t>(from)].host : -1;
  // Kept by device reached, not by device there is: within a host few are.
  struct Reached {
    double cost = std::numeric_limits<double>::infinity();
    int by = -1;
  };
  std::unordered_map<int, Reached> reached;
  using Entry = std::pair<double, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  reached[from].cost = 0;
  open.emplace(0.0, from);
  while (!open.empty()) {
    const auto [cost, at] = open.top();
    open.pop();
    if (at == to) break;
    if (cost > reached[at].cost) continue;
    const int by = reached[at].by;
    for (int index : out_[static_cast<std::size_t>(at)]) {
      const Link& link = wiring_.links[static_cast<std::size_t>(index)];
      if (at != from && !passes(devices[static_cast<std::size_t>(at)].kind, wiring_.links[static_cast<std::size_t>(by)].kind, link.kind)) continue;
      if (link.beta <= 0 || !within(devices[static_cast<std::size_t>(link.to)], host)) continue;
      const double next = cost + 1 / link.beta + kHop;
      Reached& other = reached[link.to];
      if (next >= other.cost) continue;
      other = {next, index};
      open.emplace(next, link.to);
    }
  }
  if (reached[to].by == -1) return std::nullopt;
  for (int at = to; at != from;) {
    const int index = reached[at].by;
    path.links.push_back(index);
    at = wiring_.links[static_cast<std::size_t>(index)].from;
  }
  std::reverse(path.links.begin(), path.links.end());
  path.provenance = Provenance::kMeasured;
  for (int index : path.links) {
    const Link& link = wiring_.links[static_cast<std::size_t>(index)];
    if (path.bottleneck == -1 || link.beta < path.bandwidth) {
      path.bandwidth = link.beta;
      path.bottleneck = index;
    }
    path.latency += link.alpha;
    path.provenance = less_certain(path.provenance, link.provenance);
  }
  return path;
}

}  // namespace wirewise
