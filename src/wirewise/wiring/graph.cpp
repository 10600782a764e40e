// Putting a graph together and asking it simple things.
#include <algorithm>
#include <map>
#include <utility>

#include "wirewise/wiring/wiring.h"

namespace wirewise {

int add_device(Wiring& wiring, Device device) {
  wiring.devices.push_back(std::move(device));
  return static_cast<int>(wiring.devices.size()) - 1;
}

void add_link(Wiring& wiring, int a, int b, Link link) {
  link.from = a;
  link.to = b;
  wiring.links.push_back(link);
  std::swap(link.from, link.to);
  wiring.links.push_back(std::move(link));
}

int hosts_of(const Wiring& wiring) noexcept {
  int hosts = 0;
  for (const Device& device : wiring.devices) hosts = std::max(hosts, device.host + 1);
  return hosts;
}

int find_device(const Wiring& wiring, std::string_view name, int host) noexcept {
  const auto found = std::find_if(wiring.devices.begin(), wiring.devices.end(), [&](const Device& d) { return d.host == host && d.name == name; });
  return found == wiring.devices.end() ? -1 : static_cast<int>(found - wiring.devices.begin());
}

std::vector<int> devices_of(const Wiring& wiring, DeviceKind kind, int host) {
  std::vector<int> found;
  for (std::size_t i = 0; i < wiring.devices.size(); ++i) {
    const Device& device = wiring.devices[i];
    if (device.kind == kind && (host == -1 || device.host == host)) found.push_back(static_cast<int>(i));
  }
  return found;
}

std::vector<std::vector<int>> devices_by_host(const Wiring& wiring, std::optional<DeviceKind> kind) {
  std::vector<std::vector<int>> hosts(static_cast<std::size_t>(hosts_of(wiring)));
  for (std::size_t i = 0; i < wiring.devices.size(); ++i) {
    const Device& device = wiring.devices[i];
    if (device.host >= 0 && (!kind || device.kind == *kind)) hosts[static_cast<std::size_t>(device.host)].push_back(static_cast<int>(i));
  }
  return hosts;
}

std::vector<Wiring> hosts_apart(const Wiring& wiring) {
  std::vector<Wiring> hosts(static_cast<std::size_t>(hosts_of(wiring)));
  std::vector<int> place(wiring.devices.size(), -1);
  for (std::size_t i = 0; i < wiring.devices.size(); ++i) {
    const Device& device = wiring.devices[i];
    if (device.host >= 0) place[i] = add_device(hosts[static_cast<std::size_t>(device.host)], device);
  }
  std::map<std::pair<int, int>, int> outside;  // of a host and an NVSwitch outside: its place there
  const auto place_in = [&](int host, int device) {
    const Device& of = wiring.devices[static_cast<std::size_t>(device)];
    if (of.host >= 0) return of.host == host ? place[static_cast<std::size_t>(device)] : -1;
    if (of.kind != DeviceKind::kNvSwitch) return -1;
    const auto [known, fresh] = outside.try_emplace({host, device}, -1);
    if (fresh) known->second = add_device(hosts[static_cast<std::size_t>(host)], of);
    return known->second;
  };
  for (const Link& link : wiring.links) {
    const int host = std::max(wiring.devices[static_cast<std::size_t>(link.from)].host, wiring.devices[static_cast<std::size_t>(link.to)].host);
    if (host < 0) continue;
    Link copy = link;
    copy.from = place_in(host, link.from);
    copy.to = place_in(host, link.to);
    if (copy.from >= 0 && copy.to >= 0) hosts[static_cast<std::size_t>(host)].links.push_back(std::move(copy));
  }
  return hosts;
}

std::vector<std::vector<int>> links_by_device(const Wiring& wiring) {
  std::vector<std::vector<int>> out(wiring.devices.size());
  for (std::size_t i = 0; i < wiring.links.size(); ++i) out[static_cast<std::size_t>(wiring.links[i].from)].push_back(static_cast<int>(i));
  return out;
}

}  // namespace wirewise
