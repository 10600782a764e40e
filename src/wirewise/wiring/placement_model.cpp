#include "wirewise/wiring/placement_model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/wiring/nvlink_rings.h"

namespace wirewise {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

constexpr int kMostInMesh = 64;  // GPUs of a host that a mask can tell apart

bool is_network(LinkKind kind) { return kind == LinkKind::kEthernet || kind == LinkKind::kInfiniband; }
bool is_inside(LinkKind kind) { return kind == LinkKind::kPcie || kind == LinkKind::kSockets || kind == LinkKind::kSharedMemory; }

/// Switches of levels up to `level` that are joined: the island of each device, -1 outside.
std::vector<int> switch_islands(const Wiring& wiring, const std::vector<std::vector<int>>& out, int level, int& count) {
  std::vector<int> island(wiring.devices.size(), -1);
  const auto inside = [&](int device) { return wiring.devices[at(device)].kind == DeviceKind::kSwitch && wiring.devices[at(device)].level <= level; };
  count = 0;
  for (int first = 0; first < static_cast<int>(wiring.devices.size()); ++first) {
    if (!inside(first) || island[at(first)] != -1) continue;
    std::vector<int> reached{first};
    island[at(first)] = count;
    for (std::size_t i = 0; i < reached.size(); ++i) {
      for (const int index : out[at(reached[i])]) {
        const Link& link = wiring.links[at(index)];
        if (!inside(link.to) || island[at(link.to)] != -1 || link.beta <= 0) continue;
        island[at(link.to)] = count;
        reached.push_back(link.to);
      }
    }
    ++count;
  }
  return island;
}

}  // namespace

PlacementModel::PlacementModel(const Wiring& wiring, std::span<const int> devices)
    : wiring_(&wiring), out_(links_by_device(wiring)), slot_of_(wiring.devices.size(), -1), hosts_(hosts_of(wiring)) {
  for (const int device : devices) {
    if (device < 0 || device >= static_cast<int>(wiring.devices.size()) || wiring.devices[at(device)].host < 0) {
      throw bad_input("ranks can only be put on devices of hosts.", "Give GPUs, or cores of hosts.");
    }
    if (slot_of_[at(device)] != -1) throw bad_input(wiring.devices[at(device)].name + " stands twice among the devices for ranks.", "Give it once.");
    slot_of_[at(device)] = static_cast<int>(slots_.size());
    Slot slot;
    slot.device = device;
    slot.host = wiring.devices[at(device)].host;
    slots_.push_back(std::move(slot));
  }
  add_host_trees();
  add_islands();
  add_network();
  add_ports();
  add_meshes();
}

int PlacementModel::add_pipe(Pipe pipe) {
  pipes_.push_back(pipe);
  return static_cast<int>(pipes_.size()) - 1;
}

void PlacementModel::add_host_trees() {
  pipes_.resize(wiring_->devices.size());
  depth_.assign(wiring_->devices.size(), -1);
  for (const int host : devices_of(*wiring_, DeviceKind::kHost)) {
    std::vector<int> reached{host};
    depth_[at(host)] = 0;
    for (std::size_t i = 0; i < reached.size(); ++i) {
      for (const int index : out_[at(reached[i])]) {
        const Link& link = wiring_->links[at(index)];
        if (!is_inside(link.kind) || link.beta <= 0 || depth_[at(link.to)] != -1) continue;
        depth_[at(link.to)] = depth_[at(reached[i])] + 1;
        Pipe& pipe = pipes_[at(link.to)];
        pipe = {reached[i], link.beta, index};
        for (const int back : out_[at(link.to)]) {  // a pipe is as wide as its narrower direction
          const Link& other = wiring_->links[at(back)];
          if (other.to == reached[i] && is_inside(other.kind) && other.beta > 0 && other.beta < pipe.capacity) pipe = {reached[i], other.beta, back};
        }
        reached.push_back(link.to);
      }
    }
  }
}

void PlacementModel::add_islands() {
  for (Slot& slot : slots_) slot.unit = slot.host;
  units_ = hosts_;
  std::vector<int> root(wiring_->devices.size(), -1);  // node of the island that an NVSwitch belongs to
  for (int first = 0; first < static_cast<int>(wiring_->devices.size()); ++first) {
    if (wiring_->devices[at(first)].kind != DeviceKind::kNvSwitch || root[at(first)] != -1) continue;
    const int node = add_pipe({});
    const int unit = units_++;
    std::vector<int> reached{first};
    root[at(first)] = node;
    for (std::size_t i = 0; i < reached.size(); ++i) {
      // GPUs pass the island on: each is joined to all of its NVSwitches.
      for (const int index : out_[at(reached[i])]) {
        const Link& link = wiring_->links[at(index)];
        if (!joins_gpus(link.kind) || link.beta <= 0 || root[at(link.to)] != -1) continue;
        const bool gpu = wiring_->devices[at(reached[i])].kind == DeviceKind::kGpu;
        if (gpu && wiring_->devices[at(link.to)].kind != DeviceKind::kNvSwitch) continue;
        root[at(link.to)] = node;
        reached.push_back(link.to);
      }
    }
    for (const int device : reached) {
      const int slot = slot_of_[at(device)];
      if (slot == -1) continue;
      Pipe pipe{node, 0, -1};
      for (const int index : out_[at(device)]) {
        const Link& link = wiring_->links[at(index)];
        if (!joins_gpus(link.kind) || link.beta <= 0 || wiring_->devices[at(link.to)].kind != DeviceKind::kNvSwitch) continue;
        pipe.capacity += link.beta;
        if (pipe.link == -1 || link.beta < wiring_->links[at(pipe.link)].beta) pipe.link = index;
      }
      if (pipe.link == -1) continue;
      slots_[at(slot)].nvlink = add_pipe(pipe);
      slots_[at(slot)].unit = unit;
    }
  }
}

void PlacementModel::add_network() {
  int highest = 0;
  for (const Device& device : wiring_->devices) highest = std::max(highest, device.kind == DeviceKind::kSwitch ? device.level : 0);
  std::vector<int> node_of(wiring_->devices.size(), -1);  // the lowest island that a switch is in
  std::vector<int> below(wiring_->devices.size(), -1);    // the highest one so far
  for (int level = 0; level <= highest; ++level) {
    int count = 0;
    const std::vector<int> island = switch_islands(*wiring_, out_, level, count);
    std::vector<int> node(at(count));
    for (int& each : node) each = add_pipe({});
    for (std::size_t device = 0; device < island.size(); ++device) {
      if (island[device] == -1) continue;
      const int here = node[at(island[device])];
      if (node_of[device] == -1) node_of[device] = here;
      if (below[device] != -1) pipes_[at(below[device])].up = here;
      below[device] = here;
    }
    for (std::size_t index = 0; index < wiring_->links.size(); ++index) {
      const Link& link = wiring_->links[index];
      if (island[at(link.from)] == -1 || island[at(link.to)] != -1 || wiring_->devices[at(link.to)].kind != DeviceKind::kSwitch) continue;
      Pipe& up = pipes_[at(node[at(island[at(link.from)])])];
      up.capacity += link.beta;
      if (up.link == -1 || link.beta < wiring_->links[at(up.link)].beta) up.link = static_cast<int>(index);
    }
  }
  height_ = highest + 1;
  // A level may add nothing to an island: such a pipe is as wide as can be.
  for (Pipe& pipe : pipes_) {
    if (pipe.up != -1 && pipe.link == -1) pipe.capacity = std::numeric_limits<double>::infinity();
  }
  port_of_link_.assign(wiring_->links.size(), -1);
  int cables = -1;  // hosts that are joined without a switch
  for (std::size_t index = 0; index < wiring_->links.size(); ++index) {
    const Link& link = wiring_->links[index];
    const Device& to = wiring_->devices[at(link.to)];
    if (!is_network(link.kind) || link.beta <= 0 || wiring_->devices[at(link.from)].host < 0) continue;
    if (to.kind == DeviceKind::kSwitch) {
      port_of_link_[index] = add_pipe({node_of[at(link.to)], link.beta, static_cast<int>(index)});
    } else if (to.host >= 0 && to.host != wiring_->devices[at(link.from)].host) {
      if (cables == -1) cables = add_pipe({});
      port_of_link_[index] = add_pipe({cables, link.beta, static_cast<int>(index)});
    }
  }
}

void PlacementModel::add_ports() {
  std::vector<std::vector<int>> ports(at(hosts_));  // links that leave each host
  std::vector<double> fastest(at(hosts_), 0);
  for (std::size_t index = 0; index < wiring_->links.size(); ++index) {
    if (port_of_link_[index] == -1) continue;
    const int host = wiring_->devices[at(wiring_->links[index].from)].host;
    ports[at(host)].push_back(static_cast<int>(index));
    fastest[at(host)] = std::max(fastest[at(host)], wiring_->links[index].beta);
  }
  for (Slot& slot : slots_) {
    int nearest = -1;  // depth of the node where the ways from the device and the port meet
    for (const int index : ports[at(slot.host)]) {
      if (wiring_->links[at(index)].beta * 2 < fastest[at(slot.host)]) continue;  // a port for logging in, not for collectives
      const int nic = wiring_->links[at(index)].from;
      Port port{port_of_link_[at(index)], -1, {}};
      int a = slot.device, b = nic;
      while (a != b && a != -1 && b != -1) {
        int& lower = depth_[at(a)] >= depth_[at(b)] ? a : b;
        port.pcie.push_back(lower);
        lower = pipes_[at(lower)].up;
      }
      const int depth = a == b ? depth_[at(a)] : -1;  // -1: one of them hangs on nothing
      if (depth < 0) port.pcie.clear();
      port.depth = depth;
      if (depth < nearest) continue;
      if (depth > nearest) slot.ports.clear();
      nearest = depth;
      slot.ports.push_back(std::move(port));
    }
    // Those of all hosts in one order, so that rings keep to a rail.
    const auto key = [&](const Port& port) {
      std::vector<int> up;
      for (int node = pipes_[at(port.node)].up; node != -1; node = pipes_[at(node)].up) up.push_back(node);
      std::reverse(up.begin(), up.end());
      up.push_back(port.node);
      return up;
    };
    if (slot.ports.size() > 1) std::sort(slot.ports.begin(), slot.ports.end(), [&](const Port& x, const Port& y) { return key(x) < key(y); });
  }
}

void PlacementModel::add_meshes() {
  class_of_host_.assign(at(hosts_), -1);
  std::vector<std::vector<int>> members(at(hosts_));
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].place = static_cast<int>(members[at(slots_[i].host)].size());
    members[at(slots_[i].host)].push_back(static_cast<int>(i));
  }
  std::vector<bool> meshed(at(hosts_), false);
  for (std::size_t index = 0; index < wiring_->links.size(); ++index) {
    const Link& link = wiring_->links[index];
    const int a = slot_of_[at(link.from)], b = slot_of_[at(link.to)];
    if (!joins_gpus(link.kind) || link.beta <= 0 || a == -1 || b == -1 || slots_[at(a)].host != slots_[at(b)].host) continue;
    const auto [known, fresh] = direct_.try_emplace({a, b}, static_cast<int>(index));
    if (!fresh && wiring_->links[at(known->second)].beta < link.beta) known->second = static_cast<int>(index);
    meshed[at(slots_[at(a)].host)] = true;
  }
  std::map<std::pair<std::vector<std::vector<int>>, std::vector<std::vector<double>>>, int> known;
  for (int host = 0; host < hosts_; ++host) {
    const auto& of = members[at(host)];
    if (!meshed[at(host)] || of.size() > kMostInMesh) continue;
    Lanes mesh;
    mesh.lanes.assign(of.size(), std::vector<int>(of.size(), 0));
    mesh.lane.assign(of.size(), std::vector<double>(of.size(), 0));
    for (std::size_t i = 0; i < of.size(); ++i) {
      for (std::size_t j = 0; j < of.size(); ++j) {
        const int index = direct(of[i], of[j]);
        if (index == -1) continue;
        const Link& link = wiring_->links[at(index)];
        mesh.lanes[i][j] = std::max(link.lanes, 1);
        mesh.lane[i][j] = link.beta / mesh.lanes[i][j];
      }
    }
    const auto [same, fresh] = known.try_emplace({mesh.lanes, mesh.lane}, static_cast<int>(classes_.size()));
    class_of_host_[at(host)] = same->second;
    if (fresh) classes_.push_back(std::move(mesh));
  }
}

int PlacementModel::direct(int a, int b) const {
  const auto found = direct_.find({a, b});
  return found == direct_.end() ? -1 : found->second;
}

BytesPerSecond PlacementModel::ring_rate(std::span<const int> slots) const {
  const int of = class_of_host_[at(slots_[at(slots.front())].host)];
  if (of == -1) return 0;
  const Lanes& mesh = classes_[at(of)];
  std::uint64_t mask = 0;
  for (const int slot : slots) mask |= std::uint64_t{1} << slots_[at(slot)].place;
  const auto [known, fresh] = mesh.rates.try_emplace(mask, 0.0);
  if (!fresh) return known->second;
  std::vector<std::size_t> members;
  for (std::size_t i = 0; i < mesh.lanes.size(); ++i) {
    if ((mask >> i & 1) != 0) members.push_back(i);
  }
  double slowest = std::numeric_limits<double>::infinity();
  std::vector<std::vector<int>> lanes(members.size(), std::vector<int>(members.size(), 0));
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (std::size_t j = 0; j < members.size(); ++j) {
      lanes[i][j] = mesh.lanes[members[i]][members[j]];
      if (lanes[i][j] > 0) slowest = std::min(slowest, mesh.lane[members[i]][members[j]]);
    }
  }
  const auto rings = static_cast<double>(nvlink_rings(lanes).size());
  known->second = rings > 0 ? rings * slowest : 0;
  return known->second;
}

std::vector<int> PlacementModel::switches_of(int slot, int height) const {
  std::vector<int> nodes;
  for (const Port& port : slots_[at(slot)].ports) {
    int node = pipes_[at(port.node)].up;
    for (int i = 0; i < height && pipes_[at(node)].up != -1; ++i) node = pipes_[at(node)].up;
    nodes.push_back(node);
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

std::string PlacementModel::name_of_pipe(int pipe) const {
  const int index = pipes_[at(pipe)].link;
  if (index == -1) return "";
  const Link& link = wiring_->links[at(index)];
  const Device& from = wiring_->devices[at(link.from)];
  const Device& to = wiring_->devices[at(link.to)];
  if (from.kind == DeviceKind::kSwitch && to.kind == DeviceKind::kSwitch) return "uplinks of " + from.name;
  std::string host;
  for (const Device& device : wiring_->devices) {
    if (device.kind == DeviceKind::kHost && device.host == (from.host >= 0 ? from.host : to.host)) host = device.name;
  }
  const Device& end = is_network(link.kind) ? from : to;
  const std::string what = std::string(wirewise::name_of(link.kind)) + " of " + (end.kind == DeviceKind::kHost ? host : end.name + " in " + host);
  return what;
}

}  // namespace wirewise
