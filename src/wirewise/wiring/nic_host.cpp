#include "wirewise/wiring/nic_host.h"

#include <fmt/format.h>

#include <map>

#include "wirewise/base/text.h"
#include "wirewise/wiring/link_classes.h"

namespace wirewise {
namespace {

bool is_up(const std::string& state) { return state.find("Active") != std::string::npos || state.find("ACTIVE") != std::string::npos; }

}  // namespace

void add_nic_host(const std::vector<NicSeen>& nics, Reading& reading) {
  Wiring& wiring = reading.wiring;
  Device host;
  host.name = "host0";
  host.host = 0;
  const int at = add_device(wiring, std::move(host));
  std::map<std::string, int> networks;
  for (const NicSeen& nic : nics) {
    Device device;
    device.name = nic.name;
    device.kind = DeviceKind::kNic;
    device.host = 0;
    device.placed = false;
    device.model = nic.model;
    const int index = add_device(wiring, std::move(device));
    add_link(wiring, at, index, pcie_link(0, 0, Provenance::kAssumed));
    if (!nic.model.empty()) reading.facts.push_back({nic.name, "type", nic.model, nic.line});
    if (!nic.firmware.empty()) reading.facts.push_back({nic.name, "firmware", nic.firmware, nic.line});
    for (const NicPort& port : nic.ports) {
      const std::string subject = nic.name + " port " + std::to_string(port.number);
      if (!port.state.empty()) reading.facts.push_back({subject, "state", port.state, port.line});
      if (!port.layer.empty()) reading.facts.push_back({subject, "link layer", port.layer == "Ethernet" && nic.rdma ? "Ethernet (RoCE)" : port.layer, port.line});
      if (port.gbit > 0) reading.facts.push_back({subject, "rate", fmt::format("{:g} Gbit/s", port.gbit), port.line});
      if (!is_up(port.state)) {
        if (!port.state.empty()) {
          reading.notes.push_back({port.line, 0, subject + " is down (" + port.state + ")" + (port.gbit > 0 ? fmt::format(": its rate of {:g} Gbit/s is not that of a cable.", port.gbit) : ".")});
        }
        continue;
      }
      const bool ethernet = port.layer == "Ethernet";
      const std::string network = ethernet ? "Ethernet" : "InfiniBand";
      if (!networks.contains(network)) {
        Device middle;
        middle.name = network;
        middle.kind = DeviceKind::kSwitch;
        networks[network] = add_device(wiring, std::move(middle));
      }
      const LinkKind kind = ethernet ? LinkKind::kEthernet : LinkKind::kInfiniband;
      add_link(wiring, index, networks[network], network_link(kind, port.gbit > 0 ? port.gbit : 100, !ethernet || nic.rdma, port.gbit > 0 ? Provenance::kDriver : Provenance::kAssumed));
      if (port.gbit <= 0) reading.notes.push_back({port.line, 0, "the rate of " + subject + " isn't stated; 100 Gbit/s is assumed."});
    }
  }
}

}  // namespace wirewise
