#include "wirewise/wiring/ib_fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "wirewise/base/text.h"
#include "wirewise/wiring/link_classes.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostNodes = 200000;
constexpr std::size_t kMostCables = 1000000;

/// The reduction node (SHARP) that sits in a switch and looks like an adapter of some host: "Mellanox Technologies Aggregation Node".
bool sums(const IbNode& node) { return !node.is_switch && node.label.find("Aggregation Node") != std::string::npos; }

class Builder {
 public:
  Builder(const IbFabric& fabric, Reading& reading) : fabric_(fabric), reading_(reading) {}

  void add() {
    add_devices();
    add_cables();
  }

 private:
  void note(int line, std::string text) { reading_.notes.push_back({line, 0, std::move(text)}); }
  [[nodiscard]] const IbNode& node(const std::string& name) const { return fabric_.nodes.at(name); }

  /// The host that an adapter is in. Labels that firmware gave name none: such an adapter is a host of its own.
  [[nodiscard]] static std::string host_of(const std::string& name, const IbNode& adapter) {
    return names_host(adapter.label) ? adapter.label.substr(0, adapter.label.rfind(' ')) : name;
  }

  void add_devices() {
    std::map<std::string, int> host_index;
    std::set<std::pair<int, std::string>> names;  // taken in each host
    for (const std::string& name : fabric_.order) {
      if (node(name).is_switch || sums(node(name))) continue;
      const std::string host_name = host_of(name, node(name));
      const int index = static_cast<int>(host_index.size());
      if (!host_index.try_emplace(host_name, index).second) continue;
      names.emplace(index, host_name);
      Device host;
      host.name = host_name;
      host.host = index;
      host_device_[host_name] = add_device(reading_.wiring, std::move(host));
    }
    const std::map<std::string, int> level = levels();
    std::size_t unnamed = 0;
    for (const std::string& name : fabric_.order) {
      const IbNode& one = node(name);
      if (sums(one)) continue;
      Device device;
      device.model = one.label;
      if (one.is_switch) {
        device.kind = DeviceKind::kSwitch;
        device.name = name;
        device.level = level.at(name);
        device_[name] = add_device(reading_.wiring, std::move(device));
        continue;
      }
      const std::string host = host_of(name, one);
      device.kind = DeviceKind::kNic;
      device.host = host_index.at(host);
      device.placed = false;
      device.name = host == name ? "nic0" : one.label.substr(one.label.rfind(' ') + 1);
      if (device.name.empty() || !names.emplace(device.host, device.name).second) device.name = name;
      device_[name] = add_device(reading_.wiring, std::move(device));
      add_link(reading_.wiring, host_device_.at(host), device_[name], pcie_link(0, 0, Provenance::kAssumed));
      unnamed += host == name ? 1 : 0;
    }
    if (unnamed > 0) note(0, std::to_string(unnamed) + " adapters don't say which host they are in; each stands as a host of its own, named by its GUID.");
  }

  /// Leaves have adapters (but for the reduction nodes that sit in every switch); others are as high as they are far from a leaf.
  std::map<std::string, int> levels() const {
    std::map<std::string, std::set<std::string>> near;
    std::map<std::string, int> level;
    std::vector<std::string> reached;
    for (const IbCable& cable : fabric_.cables) {
      for (const auto& [a, b] : {std::pair{cable.from, cable.to}, std::pair{cable.to, cable.from}}) {
        const IbNode& other = node(b);
        if (!node(a).is_switch) continue;
        if (other.is_switch) near[a].insert(b);
        else if (!sums(other) && level.emplace(a, 0).second) reached.push_back(a);
      }
    }
    for (std::size_t i = 0; i < reached.size(); ++i) {
      const std::string at = reached[i];
      for (const std::string& other : near[at]) {
        if (level.emplace(other, level[at] + 1).second) reached.push_back(other);
      }
    }
    for (const std::string& name : fabric_.order) {
      if (node(name).is_switch) level.emplace(name, 0);
    }
    return level;
  }

  /// Each cable once, though both of its ends may be described.
  void add_cables() {
    std::set<std::pair<std::pair<std::string, int>, std::pair<std::string, int>>> seen;
    std::map<std::string, int> count;
    for (const IbCable& cable : fabric_.cables) {
      const std::pair a{cable.from, cable.port}, b{cable.to, cable.far_port};
      if (!seen.emplace(std::min(a, b), std::max(a, b)).second) continue;
      if (sums(node(cable.from)) || sums(node(cable.to))) {  // inside the switch
        reading_.facts.push_back({sums(node(cable.from)) ? cable.to : cable.from, "reductions in the switch (SHARP)", "yes", cable.line});
        continue;
      }
      if (cable.from == cable.to) {
        note(cable.line, "a cable leads from " + printable(cable.from) + " back to it; it joins nothing and was left out.");
        continue;
      }
      const bool known = cable.gbit > 0;
      Link link = network_link(LinkKind::kInfiniband, known ? cable.gbit : 200, true, known ? Provenance::kDriver : Provenance::kAssumed);
      // The class is by Gbit/s; fewer lanes of a faster kind are called as people call them: 2xHDR is HDR100.
      if (const auto x = cable.rate.find('x'); known && x != std::string::npos && cable.rate.substr(0, x) != "4" && link.source.starts_with("InfiniBand ")) {
        const std::string of = cable.rate.substr(x + 1);
        link.source = "InfiniBand " + of + fmt::format("{:.0f}", cable.gbit) + ", as " + link.source;
      }
      add_link(reading_.wiring, device_.at(cable.from), device_.at(cable.to), std::move(link));
      ++count[known ? cable.rate : "unknown rate"];
    }
    for (const auto& [rate, cables] : count) reading_.facts.push_back({"cables", rate, std::to_string(cables), 0});
  }

  const IbFabric& fabric_;
  Reading& reading_;
  std::map<std::string, int> host_device_, device_;
};

}  // namespace

std::optional<double> ib_lane_rate(std::string_view speed) {
  static const std::map<std::string_view, double> rates{{"SDR", 2.5}, {"DDR", 5}, {"QDR", 10}, {"FDR10", 10}, {"FDR", 14}, {"EDR", 25}, {"HDR", 50}, {"NDR", 100}, {"XDR", 200}};
  const auto found = rates.find(speed);
  return found == rates.end() ? std::nullopt : std::optional(found->second);
}

std::string_view ib_speed_name(double signalled) noexcept {
  constexpr std::pair<double, std::string_view> kSpeeds[] = {{2.5, "SDR"}, {5, "DDR"}, {10, "QDR"}, {10.3125, "FDR10"}, {14.0625, "FDR"}, {25.78125, "EDR"}, {53.125, "HDR"}, {106.25, "NDR"}, {212.5, "XDR"}};
  for (const auto& [rate, name] : kSpeeds) {
    if (std::abs(signalled - rate) < rate * 0.01) return name;
  }
  return {};
}

bool names_host(std::string_view label) noexcept {
  const std::size_t blank = label.rfind(' ');
  return blank != std::string_view::npos && label.find(' ') == blank && blank > 0;
}

IbNode& IbFabric::node(const std::string& name, std::string_view file, int line) {
  const auto [found, fresh] = nodes.try_emplace(name);
  if (fresh) {
    if (nodes.size() > kMostNodes) throw unreadable(file, line, 0, "there are more than " + std::to_string(kMostNodes) + " switches and adapters.");
    found->second.is_switch = name[0] == 'S';
    found->second.line = line;
    order.push_back(name);
  }
  return found->second;
}

void IbFabric::add(IbCable cable, std::string_view file) {
  if (cables.size() >= kMostCables) throw unreadable(file, cable.line, 0, "there are more than " + std::to_string(kMostCables) + " ports.");
  cables.push_back(std::move(cable));
}

void add_fabric(const IbFabric& fabric, Reading& reading) { Builder(fabric, reading).add(); }

}  // namespace wirewise
