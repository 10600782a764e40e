#include "wirewise/wiring/tree_bandwidth.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/wiring/group.h"
#include "wirewise/wiring/group_parts.h"
#include "wirewise/wiring/network_ring.h"
#include "wirewise/wiring/nvlink_rings.h"

namespace wirewise {
namespace {

const Link& link_at(const Wiring& wiring, int link) { return wiring.links[static_cast<std::size_t>(link)]; }

/// Of the links of chains NCCL counts half: each GPU hands on upwards and downwards at once (NVIDIA/nccl src/graph/tuning.cc, the ratio
/// of trees).
constexpr double kBothWays = 0.5;

/// What NCCL takes of a tree's bandwidth (the same file). It is left out within a host, where the chains of five V100 lose nothing to it
/// (data/measured_bandwidth.csv).
constexpr double kBetweenHosts = 0.92;

/// `bus` holds algorithm bandwidth meanwhile: bytes of the data a second.
GroupBandwidth chain(const Wiring& wiring, const std::vector<std::vector<int>>& out, std::span<const int> devices) {
  GroupBandwidth found;
  found.algorithm = GroupAlgorithm::kTree;
  if (const auto middles = common_nvswitches(wiring, out, devices); !middles.empty()) {
    found.bus = std::numeric_limits<double>::infinity();
    for (int device : devices) {
      const SwitchLinks links = links_to_switches(wiring, out[static_cast<std::size_t>(device)], middles);
      if (links.bandwidth * kBothWays >= found.bus) continue;
      found.bus = links.bandwidth * kBothWays;
      found.bottleneck = links.slowest;
      found.provenance = link_at(wiring, links.slowest).provenance;
    }
    found.why = "a chain of GPUs over the NVSwitch";
    return found;
  }
  const DirectLinks direct = direct_links(wiring, out, devices);
  const auto chains = nvlink_chains(direct.lanes).size();
  const Paths paths(wiring);
  for (const std::vector<int>& order : orders_of(wiring, paths, out, devices)) {
    std::vector<std::pair<int, int>> hops;
    for (std::size_t i = 0; i + 1 < order.size(); ++i) {
      hops.emplace_back(order[i], order[i + 1]);
      hops.emplace_back(order[i + 1], order[i]);
    }
    const SlowestHop slowest = slowest_of(wiring, paths, hops);
    if (found.bottleneck != -1 && slowest.bandwidth <= found.bus) continue;
    found.bus = slowest.bandwidth;
    found.bottleneck = slowest.link;
  }
  found.provenance = link_at(wiring, found.bottleneck).provenance;
  found.why = "a chain of GPUs whose slowest link is " + std::string(name_of(link_at(wiring, found.bottleneck).kind));
  if (chains == 0) return found;
  const double over_nvlinks = static_cast<double>(chains) * direct.lane * kBothWays;
  if (joins_gpus(link_at(wiring, found.bottleneck).kind) ||
      over_nvlinks > found.bus) {  // a chain over one link of several can't have more than all chains
    found.bus = over_nvlinks;
    found.bottleneck = direct.slowest;
    found.provenance = direct.provenance;
    found.why = std::to_string(chains) + (chains == 1 ? " chain" : " chains") + (link_at(wiring, direct.slowest).kind == LinkKind::kXgmi ? " over xGMI" : " over NVLinks");
  }
  return found;
}

/// The network part; `best` holds the chains' until then.
void between_hosts(const Wiring& wiring, const std::map<int, std::vector<int>>& hosts, GroupBandwidth& best) {
  const auto trees = double_binary_tree(static_cast<int>(hosts.size()));
  const std::map<int, std::vector<Exit>> exits = exits_of(wiring, hosts);
  std::vector<const std::vector<Exit>*> of_place;
  for (const auto& [host, devices] : hosts) {
    const auto found = exits.find(host);
    if (found == exits.end() || found->second.empty())
      throw bad_input("host " + std::to_string(host) + " has no network in this description.", "Describe how it reaches the others.");
    of_place.push_back(&found->second);
  }
  const auto limit = [&](BytesPerSecond bus, int link, std::string why) {
    if (bus >= best.bus) return;
    best.bus = bus;
    best.bottleneck = link;
    best.provenance = link_at(wiring, link).provenance;
    best.why = std::move(why);
  };
  std::size_t rails = std::numeric_limits<std::size_t>::max();
  for (std::size_t place = 0; place < of_place.size(); ++place) {
    int halves = 0;
    for (const auto& tree : trees) halves += static_cast<int>(tree[place].down.size()) + (tree[place].up >= 0 ? 1 : 0);
    const Exit* slowest = &of_place[place]->front();  // each has an equal part
    for (const Exit& exit : *of_place[place]) {
      if (exit.bandwidth < slowest->bandwidth) slowest = &exit;
    }
    const BytesPerSecond sum = slowest->bandwidth * static_cast<double>(of_place[place]->size());
    rails = std::min(rails, of_place[place]->size());
    if (halves > 0)
      limit(sum / (0.5 * halves), slowest->link,
            std::to_string(of_place[place]->size()) + (of_place[place]->size() == 1 ? " network port a host" : " network ports a host") +
                ", two trees");
  }
  for (const SwitchLevel& level : switch_levels(wiring)) {
    std::vector<double> load(level.up.size(), 0);  // shares of the data, each way
    for (const auto& tree : trees) {
      for (std::size_t place = 0; place < tree.size(); ++place) {
        if (tree[place].up < 0) continue;
        for (std::size_t rail = 0; rail < rails; ++rail) {
          const auto at = [&](std::size_t host) {
            return level.island[static_cast<std::size_t>(link_at(wiring, (*of_place[host])[rail].link).to)];
          };
          const int a = at(place), b = at(static_cast<std::size_t>(tree[place].up));
          if (a == b) continue;
          for (const int island : {a, b}) {
            if (island >= 0) load[static_cast<std::size_t>(island)] += 0.5 / static_cast<double>(rails);
          }
        }
      }
    }
    for (std::size_t i = 0; i < load.size(); ++i) {
      if (load[i] <= 0 || level.up[i].slowest == -1) continue;
      limit(level.up[i].capacity / load[i], level.up[i].slowest,
            "uplinks of " + wiring.devices[static_cast<std::size_t>(link_at(wiring, level.up[i].slowest).from)].name + ", two trees");
    }
  }
}

}  // namespace

std::array<std::vector<TreePlace>, 2> double_binary_tree(int hosts) {
  std::array<std::vector<TreePlace>, 2> trees{std::vector<TreePlace>(static_cast<std::size_t>(hosts)),
                                              std::vector<TreePlace>(static_cast<std::size_t>(hosts))};
  const auto turned = [&](int host) { return hosts % 2 == 0 ? hosts - 1 - host : (host + 1) % hosts; };
  for (int host = 1; host < hosts; ++host) {
    const int bit = host & -host;
    int up = (host ^ bit) | (bit << 1);
    if (up >= hosts) up = host ^ bit;
    const auto join = [](std::vector<TreePlace>& tree, int child, int parent) {
      tree[static_cast<std::size_t>(child)].up = parent;
      tree[static_cast<std::size_t>(parent)].down.push_back(child);
    };
    join(trees[0], host, up);
    join(trees[1], turned(host), turned(up));
  }
  return trees;
}

int busiest_halves(const std::array<std::vector<TreePlace>, 2>& trees) {
  int most = 0;
  for (std::size_t host = 0; host < trees[0].size(); ++host) {
    int halves = 0;
    for (const auto& tree : trees) halves += static_cast<int>(tree[host].down.size()) + (tree[host].up >= 0 ? 1 : 0);
    most = std::max(most, halves);
  }
  return most;
}

GroupBandwidth tree_bandwidth(const Wiring& wiring, std::span<const int> devices) {
  GroupBandwidth least;
  least.algorithm = GroupAlgorithm::kTree;
  if (devices.size() < 2) return least;
  const auto out = links_by_device(wiring);
  const auto hosts = by_unit(wiring, out, devices);
  least.bus = std::numeric_limits<double>::infinity();
  for (const auto& [host, members] : hosts) {
    if (members.size() < 2) continue;
    GroupBandwidth here = chain(wiring, out, members);
    if (here.bus < least.bus) least = std::move(here);
  }
  if (hosts.size() > 1) {
    between_hosts(wiring, hosts, least);
    least.bus *= kBetweenHosts;
  }
  const auto n = static_cast<double>(devices.size());
  least.bus *= 2 * (n - 1) / n;
  return least;
}

}  // namespace wirewise
