#include "wirewise/wiring/relation.h"

#include <algorithm>

namespace wirewise {

std::string name_of(const Relation& relation) {
  if (relation.nvlinks > 0) return (relation.xgmi ? "XGMI" : "NV") + std::to_string(relation.nvlinks);
  if (relation.xgmi) return "XGMI";
  switch (relation.pcie) {
    case Connection::kSelf: return "X";
    case Connection::kPix: return "PIX";
    case Connection::kPxb: return "PXB";
    case Connection::kPhb: return "PHB";
    case Connection::kNode: return "NODE";
    case Connection::kSys: return "SYS";
    case Connection::kNetwork: return "NET";
    case Connection::kUnknown: return "?";
  }
  return "?";
}

Relations::Relations(const Wiring& wiring) : wiring_(wiring), out_(links_by_device(wiring)), parent_(wiring.devices.size(), -1), hive_(wiring.devices.size(), -1) {
  for (const Link& link : wiring.links) {
    if (link.kind != LinkKind::kXgmi || hive_[static_cast<std::size_t>(link.from)] != -1) continue;
    std::vector<int> reached{link.from};
    hive_[static_cast<std::size_t>(link.from)] = link.from;
    for (std::size_t i = 0; i < reached.size(); ++i) {
      for (const int index : out_[static_cast<std::size_t>(reached[i])]) {
        const Link& onward = wiring.links[static_cast<std::size_t>(index)];
        int& hive = hive_[static_cast<std::size_t>(onward.to)];
        if (onward.kind != LinkKind::kXgmi || hive != -1) continue;
        hive = link.from;
        reached.push_back(onward.to);
      }
    }
  }
  for (int host : devices_of(wiring, DeviceKind::kHost)) {
    std::vector<int> reached{host};
    for (std::size_t i = 0; i < reached.size(); ++i) {
      for (int index : out_[static_cast<std::size_t>(reached[i])]) {
        const Link& link = wiring.links[static_cast<std::size_t>(index)];
        if (link.kind != LinkKind::kPcie && link.kind != LinkKind::kSockets && link.kind != LinkKind::kSharedMemory) continue;
        int& parent = parent_[static_cast<std::size_t>(link.to)];
        if (link.to == host || parent != -1) continue;
        parent = reached[i];
        reached.push_back(link.to);
      }
    }
  }
}

Relation Relations::between(int a, int b) const {
  Relation relation = a == b ? Relation{} : gpu_links(a, b);
  relation.pcie = by_pcie(a, b);
  return relation;
}

Connection Relations::by_pcie(int a, int b) const {
  if (a == b) return Connection::kSelf;
  const Device& first = wiring_.devices[static_cast<std::size_t>(a)];
  const Device& second = wiring_.devices[static_cast<std::size_t>(b)];
  if (first.host != second.host) return Connection::kNetwork;
  const auto to_top = [&](int device) {
    std::vector<int> chain;
    for (int at = device; at != -1; at = parent_[static_cast<std::size_t>(at)]) chain.push_back(at);
    return chain;
  };
  std::vector<int> up = to_top(a);
  std::vector<int> down = to_top(b);
  if (up.back() != down.back()) return Connection::kUnknown;  // one of them hangs on nothing
  while (up.size() > 1 && down.size() > 1 && up[up.size() - 2] == down[down.size() - 2]) {
    up.pop_back();
    down.pop_back();
  }
  const auto kind_of = [&](int device) { return wiring_.devices[static_cast<std::size_t>(device)].kind; };
  // One without a place that stands on a NUMA node of its own is known to be far from all that have one; on the host itself nothing is.
  const auto loose = [&](const Device& device, const std::vector<int>& chain) {
    if (device.placed || kind_of(chain.back()) != DeviceKind::kHost) return false;
    const int below = chain.size() < 2 ? chain.back() : chain[chain.size() - 2];
    return kind_of(below) != DeviceKind::kNumaNode || !wiring_.devices[static_cast<std::size_t>(below)].placed;
  };
  const bool unknown = (!first.placed && !second.placed) || loose(first, up) || loose(second, down);
  if (unknown && kind_of(down.back()) != DeviceKind::kPcieSwitch) return Connection::kUnknown;
  down.pop_back();  // the common ancestor is in `up`
  int bridges = 0, nodes = 0, switches = 0;
  bool host = false;
  const auto pass = [&](int device) {
    switch (wiring_.devices[static_cast<std::size_t>(device)].kind) {
      case DeviceKind::kHost:
      case DeviceKind::kSocket: host = true; break;
      case DeviceKind::kNumaNode: ++nodes; break;
      case DeviceKind::kHostBridge: ++bridges; break;
      case DeviceKind::kPcieSwitch: ++switches; break;
      default: break;
    }
  };
  for (int device : up) pass(device);
  for (int device : down) pass(device);
  if (host || nodes > 1) return Connection::kSys;
  if (nodes == 1 || bridges > 1) return Connection::kNode;
  if (bridges == 1) return Connection::kPhb;
  return switches > 1 ? Connection::kPxb : Connection::kPix;
}

Relation Relations::gpu_links(int a, int b) const {
  Relation found;
  for (int index : out_[static_cast<std::size_t>(a)]) {
    const Link& link = wiring_.links[static_cast<std::size_t>(index)];
    if (!joins_gpus(link.kind)) continue;
    if (link.to == b) {
      found.nvlinks += link.lanes;
      found.xgmi = link.kind == LinkKind::kXgmi;
    }
    if (wiring_.devices[static_cast<std::size_t>(link.to)].kind != DeviceKind::kNvSwitch) continue;
    for (int second : out_[static_cast<std::size_t>(link.to)]) {
      const Link& onward = wiring_.links[static_cast<std::size_t>(second)];
      if (joins_gpus(onward.kind) && onward.to == b) found.nvlinks += std::min(link.lanes, onward.lanes);
    }
  }
  if (found.nvlinks == 0 && hive_[static_cast<std::size_t>(a)] != -1 && hive_[static_cast<std::size_t>(a)] == hive_[static_cast<std::size_t>(b)]) found.xgmi = true;
  return found;
}

}  // namespace wirewise
