#include "wirewise/wiring/link_pairs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "wirewise/wiring/link_classes.h"

namespace wirewise {
namespace {

constexpr double kOverClass = 1.05;  // a measured rate this much above a class's usable one is still the class's

bool is_network(LinkKind kind) { return kind == LinkKind::kEthernet || kind == LinkKind::kInfiniband; }

/// The class that a link was made of, by its source; empty where it was made of none.
std::string class_of(const Link& link) {
  for (const LinkClass& of : link_classes()) {
    if (of.kind == link.kind && (link.source == of.name || link.source.starts_with(of.name + ", "))) return of.name;
  }
  return {};
}

/// Whether a link leads from a host into the network.
bool is_port(const Wiring& wiring, const Link& link) {
  return is_network(link.kind) && wiring.devices[static_cast<std::size_t>(link.from)].host >= 0 &&
         wiring.devices[static_cast<std::size_t>(link.to)].host != wiring.devices[static_cast<std::size_t>(link.from)].host;
}

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

template <typename Fits>
std::optional<ClassPair> first_pair(std::span<const RankSpot> spots, const Fits& fits) {
  for (std::size_t a = 0; a < spots.size(); ++a) {
    for (std::size_t b = a + 1; b < spots.size(); ++b) {
      if (fits(spots[a], spots[b])) return ClassPair{.name = {}, .from = static_cast<int>(a), .to = static_cast<int>(b)};
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<ClassPair> class_pairs(std::span<const RankSpot> spots) {
  std::vector<ClassPair> pairs;
  if (auto pair = first_pair(spots, [](const RankSpot& a, const RankSpot& b) { return a.host == b.host && a.numa == b.numa; })) {
    pair->name = kSharedMemoryClass;
    pairs.push_back(*std::move(pair));
  }
  std::vector<std::string> sockets, ports;
  bool unnamed = false;
  for (const RankSpot& spot : spots) {
    add_once(sockets, spot.sockets);
    add_once(ports, spot.port);
    unnamed = unnamed || (spot.network && spot.port.empty());
  }
  for (const std::string& name : sockets) {
    auto pair = first_pair(spots, [&](const RankSpot& a, const RankSpot& b) {
      return a.host == b.host && a.numa >= 0 && b.numa >= 0 && a.numa != b.numa && a.sockets == name;
    });
    if (!pair) continue;
    pair->name = name;
    pair->kind = LinkKind::kSockets;
    pairs.push_back(*std::move(pair));
  }
  if (unnamed) ports.emplace_back();
  for (const std::string& name : ports) {
    auto pair = first_pair(spots, [&](const RankSpot& a, const RankSpot& b) {
      return a.host != b.host && a.network && b.network && a.port == name && b.port == name;
    });
    if (!pair) continue;
    pair->name = name;
    pair->kind = spots[static_cast<std::size_t>(pair->from)].port_kind;
    pairs.push_back(*std::move(pair));
  }
  return pairs;
}

std::string port_class(LinkKind kind, double gbit, bool rdma) {
  if (!(gbit > 0)) return {};
  const LinkClass* best = nullptr;
  for (const LinkClass& one : link_classes()) {
    if (one.kind != kind || one.rdma != rdma) continue;
    if (best == nullptr || std::abs(std::log(one.rate_gbit / gbit)) < std::abs(std::log(best->rate_gbit / gbit))) best = &one;
  }
  return best == nullptr ? std::string() : best->name;
}

std::string port_class_by_beta(LinkKind kind, BytesPerSecond beta, bool rdma) {
  const LinkClass* best = nullptr;
  const LinkClass* fastest = nullptr;
  for (const LinkClass& one : link_classes()) {
    if (one.kind != kind || one.rdma != rdma) continue;
    if (fastest == nullptr || one.usable > fastest->usable) fastest = &one;
    if (one.usable * kOverClass >= beta && (best == nullptr || one.usable < best->usable)) best = &one;
  }
  return best != nullptr ? best->name : fastest != nullptr ? fastest->name : std::string();
}

Wiring wire_spots(std::span<const RankSpot> spots) {
  Wiring wiring;
  std::map<int, std::vector<std::size_t>> ranks_of;
  for (std::size_t rank = 0; rank < spots.size(); ++rank) ranks_of[spots[rank].host].push_back(rank);
  wiring.rank_device.assign(spots.size(), -1);
  std::set<std::string> taken;
  std::vector<int> hosts;
  const Link memory = one_host(1).links.front();
  for (const auto& [host, ranks] : ranks_of) {
    const RankSpot& first = spots[ranks.front()];
    std::string name = first.host_name.empty() ? "host" : first.host_name;
    for (int number = 2; !taken.insert(name).second; ++number)
      name = (first.host_name.empty() ? "host" : first.host_name) + "-" + std::to_string(number);
    const int own = host;  // clang 14 captures no structured binding
    const auto add = [&](DeviceKind kind, std::string of, int numa) {
      Device device;
      device.name = std::move(of);
      device.kind = kind;
      device.host = own;
      device.numa = numa;
      return add_device(wiring, std::move(device));
    };
    hosts.push_back(add(DeviceKind::kHost, name, -1));
    std::map<int, int> nodes;
    for (std::size_t rank : ranks) {
      if (spots[rank].numa >= 0) nodes[spots[rank].numa] = -1;
    }
    if (nodes.size() < 2) nodes.clear();
    for (auto& [numa, device] : nodes) {
      device = add(DeviceKind::kNumaNode, "numa" + std::to_string(numa), numa);
      add_link(wiring, hosts.back(), device, sockets_link(first.sockets, Provenance::kSpec));
    }
    int local = 0;
    for (std::size_t rank : ranks) {
      const auto node = nodes.find(spots[rank].numa);
      const int core = add(DeviceKind::kCpu, "core" + std::to_string(local++), spots[rank].numa);
      wiring.rank_device[rank] = core;
      add_link(wiring, node == nodes.end() ? hosts.back() : node->second, core, memory);
    }
  }
  if (hosts.size() < 2) return wiring;
  Device middle;
  middle.name = "network";
  middle.kind = DeviceKind::kSwitch;
  const int network = add_device(wiring, std::move(middle));
  for (const int host : hosts) {
    const RankSpot& first = spots[ranks_of[wiring.devices[static_cast<std::size_t>(host)].host].front()];
    if (first.network) add_link(wiring, host, network, make_link(link_class(first.port), 1, Provenance::kSpec));
  }
  return wiring;
}

KnownClasses known_classes(const Wiring& wiring) {
  KnownClasses known;
  known.cores = !devices_of(wiring, DeviceKind::kCpu).empty();
  for (const Link& link : wiring.links) {
    if (link.kind == LinkKind::kSockets) add_once(known.sockets, class_of(link));
    if (is_port(wiring, link)) add_once(known.ports, class_of(link));
  }
  return known;
}

std::string port_class_of(const Wiring& wiring, const std::string& host_name) {
  for (const int host : devices_of(wiring, DeviceKind::kHost)) {
    const Device& device = wiring.devices[static_cast<std::size_t>(host)];
    if (device.name != host_name) continue;
    for (const Link& link : wiring.links) {
      if (is_port(wiring, link) && wiring.devices[static_cast<std::size_t>(link.from)].host == device.host) return class_of(link);
    }
  }
  return {};
}

Seconds alpha_of_link(const ClassPair& pair, const LinkFit& fit, std::optional<Seconds> shared_memory_alpha) {
  Seconds rest = fit.alpha;
  if (pair.kind == LinkKind::kSockets) rest -= 2 * shared_memory_alpha.value_or(0);
  return std::max(rest, 0.0) / 2;
}

}  // namespace wirewise
