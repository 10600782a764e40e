// Copies of host templates, joined by levels of switches. All figures are per direction.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/cluster_spec.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostDevices = 8'000'000;
constexpr Seconds kSwitchHop = 0.3e-6;  // of a data centre's switch: 0.1 to 0.3 us, wwt.com the-basics-of-high-performance-networking

class ClusterBuilder {
 public:
  explicit ClusterBuilder(const ClusterSpec& spec) : spec_(spec) {}

  Wiring build() {
    reserve();
    for (std::size_t i = 0; i < spec_.hosts.size(); ++i) {
      if (!spec_.hosts[i].out) add_host_of(i);
    }
    for (std::size_t i = 0; i < spec_.hosts.size(); ++i) {
      if (spec_.hosts[i].kind->domain_hosts > 0) join_domain(spec_.hosts[i], first_[i]);
    }
    if (!spec_.network.levels.empty()) add_network();
    tell_apart();
    return std::move(wiring_);
  }

 private:
  /// A switch, and what it carries downwards when everything below it sends.
  struct Switch {
    int device = -1;
    BytesPerSecond down = 0;
  };
  /// Switches of one group of a level, and the racks below.
  struct Group {
    std::vector<Switch> switches;
    std::set<std::string> racks;
  };

  void reserve() {
    std::size_t devices = 0, links = 0;
    for (const ClusterHost& host : spec_.hosts) {
      devices += host.kind->wiring.devices.size() + 1;
      links += host.kind->wiring.links.size() + 2 * (host.kind->ports.size() + host.kind->domain.size());
    }
    if (devices > kMostDevices) throw bad_input(fmt::format("a cluster of {} devices is larger than the {} that are described.", devices, kMostDevices), "Describe a part of it.");
    wiring_.devices.reserve(devices);
    wiring_.links.reserve(links);
    first_.assign(spec_.hosts.size(), -1);
  }

  void add_host_of(std::size_t index) {
    const ClusterHost& host = spec_.hosts[index];
    const int base = static_cast<int>(wiring_.devices.size());
    first_[index] = base;
    for (const Device& device : host.kind->wiring.devices) {
      wiring_.devices.push_back(device);
      wiring_.devices.back().host = hosts_;
    }
    Device& itself = wiring_.devices[static_cast<std::size_t>(base)];
    itself.name = host.name;
    itself.rack = host.rack;
    for (const Link& link : host.kind->wiring.links) {
      wiring_.links.push_back(link);
      wiring_.links.back().from += base;
      wiring_.links.back().to += base;
    }
    ++hosts_;
  }

  /// Hosts of one kind and rack, one after another, fill the reach of an NVSwitch outside of them. The place of one that is out stays empty.
  void join_domain(const ClusterHost& host, int base) {
    auto& [in, middle] = domains_[{host.kind->name, host.rack}];
    if (in++ % host.kind->domain_hosts == 0) middle = -1;
    if (host.out || host.kind->domain.empty()) return;
    if (middle == -1) {
      Device device;
      device.name = "nvswitch" + std::to_string(nvswitches_++);
      device.kind = DeviceKind::kNvSwitch;
      device.rack = host.rack;
      device.nvls = host.kind->domain_nvls;
      middle = add_device(wiring_, std::move(device));
    }
    for (const Link& link : host.kind->domain) add_link(wiring_, base + link.from, middle, link);
  }

  int leaf_group(std::size_t index) {
    const ClusterLevel& leaf = spec_.network.levels.front();
    if (leaf.by_rack) return rack_group_.try_emplace(spec_.hosts[index].rack, static_cast<int>(rack_group_.size())).first->second;
    return leaf.below == 0 ? 0 : static_cast<int>(index) / leaf.below;
  }

  Switch add_switch(const std::string& name, int level) {
    Device device;
    device.name = name;
    device.kind = DeviceKind::kSwitch;
    device.level = level;
    return {add_device(wiring_, std::move(device)), 0};
  }

  /// Links are described by the names of hosts and of what stands outside of them, so these are all different.
  void tell_apart() const {
    std::set<std::string_view> names;
    for (const Device& device : wiring_.devices) {
      if (device.host >= 0 && device.kind != DeviceKind::kHost) continue;
      if (!names.insert(device.name).second) throw bad_input("two hosts or switches are named " + printable(device.name) + ".", "Give each [[level]] a name of its own, which no host begins with.");
    }
  }

  void add_network() {
    const ClusterNetwork& network = spec_.network;
    std::vector<Group> groups;
    std::map<std::pair<int, std::size_t>, std::size_t> leaf_of;  // (group, rail) to its place in the group
    const ClusterLevel& leaf = network.levels.front();
    for (std::size_t i = 0; i < spec_.hosts.size(); ++i) {
      const ClusterHost& host = spec_.hosts[i];
      const auto group = static_cast<std::size_t>(leaf_group(i));
      if (groups.size() <= group) groups.resize(group + 1);
      groups[group].racks.insert(host.rack);
      const std::size_t all = host.kind->ports.size();
      const std::size_t ports = network.nics > 0 ? std::min(all, static_cast<std::size_t>(network.nics)) : all;
      for (std::size_t port = 0; port < ports; ++port) {
        const std::size_t rail = network.rails ? port : port % static_cast<std::size_t>(leaf.switches);
        const auto [place, fresh] = leaf_of.try_emplace({static_cast<int>(group), rail}, groups[group].switches.size());
        if (fresh) {
          std::string name = leaf.name + std::to_string(group);
          if (network.rails) name += "-rail" + std::to_string(rail);
          else if (leaf.switches > 1) name += "-" + std::to_string(rail);
          groups[group].switches.push_back(add_switch(name, 0));
        }
        Switch& at = groups[group].switches[place->second];
        Link link = make_link(port_of(host), 1, Provenance::kSpec);
        at.down += link.beta;
        if (!host.out && host.kind->ports[port] >= 0) add_link(wiring_, first_[i] + host.kind->ports[port], at.device, std::move(link));
      }
    }
    for (std::size_t level = 1; level < network.levels.size(); ++level) groups = add_level(groups, static_cast<int>(level));
    for (const Group& group : groups) {
      if (group.racks.size() != 1 || group.racks.begin()->empty()) continue;
      for (const Switch& one : group.switches) wiring_.devices[static_cast<std::size_t>(one.device)].rack = *group.racks.begin();
    }
    if (groups.size() > 1) {
      throw bad_input(fmt::format("nothing joins the {} groups of level {}.", groups.size(), printable(network.levels.back().name)),
                      "Add a [[level]] above, or let one group hold all that is below.");
    }
  }

  std::vector<Group> add_level(std::vector<Group>& lower, int level) {
    const ClusterLevel& own = spec_.network.levels[static_cast<std::size_t>(level)];
    const ClusterLevel& below = spec_.network.levels[static_cast<std::size_t>(level) - 1];
    const std::size_t each = own.below > 0 ? static_cast<std::size_t>(own.below) : lower.size();
    std::vector<Group> groups((lower.size() + each - 1) / std::max<std::size_t>(each, 1));
    const bool many = groups.size() > 1;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (int s = 0; s < own.switches; ++s) {
        const std::string name = own.name + (many && own.switches > 1 ? fmt::format("{}-{}", g, s) : std::to_string(many ? static_cast<int>(g) : s));
        groups[g].switches.push_back(add_switch(name, level));
      }
    }
    for (std::size_t i = 0; i < lower.size(); ++i) {
      Group& group = groups[i / each];
      group.racks.insert(lower[i].racks.begin(), lower[i].racks.end());
      for (const Switch& from : lower[i].switches) {
        if (lower[i].racks.size() == 1) wiring_.devices[static_cast<std::size_t>(from.device)].rack = *lower[i].racks.begin();
        for (Switch& to : group.switches) {
          Link link = uplink(from.down, below, static_cast<double>(group.switches.size()));
          to.down += link.beta;
          add_link(wiring_, from.device, to.device, std::move(link));
        }
      }
    }
    return groups;
  }

  /// One of `upwards` links by which a switch with `down` below it reaches the level above.
  [[nodiscard]] Link uplink(BytesPerSecond down, const ClusterLevel& of, double upwards) const {
    const LinkClass& port = of.uplink != nullptr ? *of.uplink : spec_.network.port != nullptr ? *spec_.network.port : first_port();
    Link link = make_link(port, 1, Provenance::kSpec);
    const double ports = of.uplinks > 0 ? of.uplinks / upwards : down / of.oversubscription / upwards / port.usable;
    link.spec = port.spec * ports;
    link.beta = port.usable * ports;
    link.alpha = kSwitchHop;
    link.lanes = static_cast<int>(ports + 0.5);
    link.source = fmt::format("{:.4g} x {}", ports, port.name);
    return link;
  }

  [[nodiscard]] const LinkClass& port_of(const ClusterHost& host) const {
    if (host.port != nullptr) return *host.port;
    if (spec_.network.port != nullptr) return *spec_.network.port;
    if (!host.kind->port_class.empty()) return link_class(std::string_view(host.kind->port_class));
    throw bad_input("host " + printable(host.name) + " has NICs whose links to the network aren't described.", "Name the network's link: [network] with link = \"25 GbE\".");
  }

  [[nodiscard]] const LinkClass& first_port() const {
    for (const ClusterHost& host : spec_.hosts) {
      if (!host.kind->port_class.empty()) return link_class(std::string_view(host.kind->port_class));
    }
    throw bad_input("the network's switches have uplinks, but no host has a NIC.", "Name the network's link.");
  }

  const ClusterSpec& spec_;
  Wiring wiring_;
  std::vector<int> first_;  // device of each host; -1 where it is out
  std::map<std::pair<std::string, std::string>, std::pair<int, int>> domains_;  // of a kind of host and a rack: hosts so far, the NVSwitch that they fill
  std::map<std::string, int> rack_group_;
  int hosts_ = 0, nvswitches_ = 0;
};

}  // namespace

Wiring build_cluster(const ClusterSpec& spec) { return ClusterBuilder(spec).build(); }

HostTemplate without(const HostTemplate& kind, const std::vector<int>& gpus, const std::vector<int>& nics) {
  std::vector<bool> gone(kind.wiring.devices.size(), false);
  const auto remove = [&](const std::vector<int>& numbers, DeviceKind what) {
    const std::vector<int> all = devices_of(kind.wiring, what, 0);
    for (int number : numbers) {
      if (static_cast<std::size_t>(number) >= all.size()) {
        throw bad_input(fmt::format("a host of kind {} has {} {}s, so number {} can't be taken out.", printable(kind.name), all.size(), name_of(what), number));
      }
      gone[static_cast<std::size_t>(all[static_cast<std::size_t>(number)])] = true;
    }
  };
  remove(gpus, DeviceKind::kGpu);
  remove(nics, DeviceKind::kNic);
  HostTemplate left = kind;
  left.wiring.devices.clear();
  left.wiring.links.clear();
  left.ports.clear();
  left.domain.clear();
  std::vector<int> place(gone.size(), -1);
  for (std::size_t i = 0; i < gone.size(); ++i) {
    if (!gone[i]) place[i] = add_device(left.wiring, kind.wiring.devices[i]);
  }
  const auto moved = [&](int device) { return place[static_cast<std::size_t>(device)]; };
  for (const Link& link : kind.wiring.links) {
    if (moved(link.from) < 0 || moved(link.to) < 0) continue;
    left.wiring.links.push_back(link);
    left.wiring.links.back().from = moved(link.from);
    left.wiring.links.back().to = moved(link.to);
  }
  for (int port : kind.ports) left.ports.push_back(port < 0 ? -1 : moved(port));  // the others keep their rails
  for (const Link& link : kind.domain) {
    if (moved(link.from) < 0) continue;
    left.domain.push_back(link);
    left.domain.back().from = moved(link.from);
  }
  return left;
}

}  // namespace wirewise
