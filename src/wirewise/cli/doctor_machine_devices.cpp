// Checks of what is plugged in: PCIe links, peer-to-peer, RDMA, and GPUs against their peers.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "wirewise/base/text.h"
#include "wirewise/cli/doctor_machine.h"
#include "wirewise/wiring/relation.h"

namespace wirewise {
namespace {

const Device& at(const Wiring& wiring, int index) { return wiring.devices[static_cast<std::size_t>(index)]; }

std::string named(const Device& device) { return device.pci.empty() ? device.name : device.name + " (" + device.pci + ")"; }

std::vector<int> gpus_and_nics(const Wiring& wiring) {
  std::vector<int> all = devices_of(wiring, DeviceKind::kGpu);
  const std::vector<int> nics = devices_of(wiring, DeviceKind::kNic);
  all.insert(all.end(), nics.begin(), nics.end());
  return all;
}

/// Devices whose text is not that of most of their peers; none where no text has a majority.
template <typename TextOf>
void differing(const Wiring& wiring, const std::vector<int>& devices, TextOf text_of, const std::string& title, const std::string& remedy, std::vector<Finding>& findings) {
  std::map<std::string, std::vector<int>> by_text;
  for (int device : devices) by_text[text_of(device)].push_back(device);
  const auto most = std::max_element(by_text.begin(), by_text.end(), [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (by_text.size() < 2 || most->second.size() * 2 <= devices.size()) return;
  for (const auto& [text, odd] : by_text) {
    if (text == most->first) continue;
    std::vector<std::string> names;
    for (int device : odd) names.push_back(named(at(wiring, device)));
    findings.push_back({Severity::kWarning, title, fmt::format("{}: {}; the other {}: {}.", join(names, ", "), text, most->second.size(), most->first), remedy});
  }
}

}  // namespace

std::vector<Finding> check_pcie_links(const MachineFacts& facts) {
  std::vector<Finding> findings;
  for (int index : gpus_and_nics(facts.reading.wiring)) {
    const Device& device = at(facts.reading.wiring, index);
    const PciDevice* pci = find_pci(facts.machine, device.pci);
    if (pci == nullptr || pci->lanes == 0) continue;
    const PciDevice* port = pci->above.empty() ? nullptr : find_pci(facts.machine, pci->above.back());
    const auto least = [](int a, int b) { return b > 0 ? std::min(a, b) : a; };
    const int lanes = least(pci->most_lanes, port == nullptr ? 0 : port->most_lanes);
    const int generation = least(pci->most_generation, port == nullptr ? 0 : port->most_generation);
    if (pci->lanes < lanes) {
      findings.push_back({Severity::kWarning, named(device) + " runs on fewer PCIe lanes than it could.", fmt::format("x{} of x{} (current_link_width, max_link_width).", pci->lanes, lanes),
                          "Seat the card again, clean its contacts, look for a riser or a slot that is shared; then a BIOS setting that splits the slot."});
    } else if (pci->lanes < pci->most_lanes) {
      findings.push_back({Severity::kInfo, named(device) + " sits in a slot of fewer lanes than it has.", fmt::format("The card has x{}, its slot x{}.", pci->most_lanes, lanes),
                          "Move it to a wider slot if there is one."});
    }
    if (pci->generation == 0 || pci->generation >= generation) continue;
    const bool gpu = device.kind == DeviceKind::kGpu;
    findings.push_back({gpu ? Severity::kInfo : Severity::kWarning, named(device) + " runs its PCIe link at a lower generation than it could.",
                        fmt::format("Generation {} of {} (current_link_speed, max_link_speed).{}", pci->generation, generation, gpu ? " GPUs slow their link while they idle: that alone is nothing wrong." : ""),
                        gpu ? "Look again under load." : "Seat the card again, set the slot's generation in the BIOS to automatic, and look for corrected errors in dmesg."});
  }
  return findings;
}

std::vector<Finding> check_peer_to_peer(const MachineFacts& facts) {
  std::vector<Finding> findings;
  const std::vector<int> gpus = devices_of(facts.reading.wiring, DeviceKind::kGpu);
  const bool peers = gpus.size() > 1 || (!gpus.empty() && !facts.machine.rdma.empty());
  if (!peers) return {};
  std::set<std::string> redirecting;
  bool hidden = false, translated = false;
  for (int index : gpus) {
    const PciDevice* pci = find_pci(facts.machine, at(facts.reading.wiring, index).pci);
    if (pci == nullptr) continue;
    translated = translated || pci->iommu.starts_with("DMA");
    for (std::size_t i = 1; i < pci->above.size(); ++i) {  // ports of switches: a root port's redirection changes nothing
      const PciDevice* port = find_pci(facts.machine, pci->above[i]);
      if (port == nullptr) continue;
      hidden = hidden || !port->acs;
      if (port->acs && (*port->acs & 0xc) != 0) redirecting.insert(port->address);  // request and completion redirect
    }
  }
  if (!redirecting.empty()) {
    const std::vector<std::string> ports(redirecting.begin(), redirecting.end());
    findings.push_back({Severity::kError, "Access Control Services send peer-to-peer traffic up to the root complex.",
                        "ACS request or completion redirect is on at the switch ports " + join(ports, ", ") + ". GPUs behind one switch then hang in their first collective, or get wrong data, or are slow.",
                        "Turn ACS off in the BIOS, or at each port with setpci (ECAP_ACS+6.w=0) after each boot. Where that can't be, NCCL_P2P_DISABLE=1 is slow but right."});
  }
  if (translated) {
    findings.push_back({Severity::kWarning, "The IOMMU translates what the GPUs access.",
                        "Their IOMMU groups are of the type DMA. Peer-to-peer over PCIe then goes through the root complex, or hangs.",
                        "Boot with iommu=pt, or turn the IOMMU off in the BIOS; verify transfers between each pair before training."});
  }
  if (hidden && redirecting.empty()) {
    findings.push_back({Severity::kInfo, "Whether ACS is in the way of peer-to-peer can't be seen.", "The extended configuration of the PCIe switches above the GPUs can be read by root alone.",
                        "Run wirewise doctor once as root."});
  }
  return findings;
}

std::vector<Finding> check_rdma(const MachineFacts& facts) {
  std::vector<Finding> findings;
  std::vector<std::string> lacking;
  for (const PciDevice& device : facts.machine.pci) {
    const bool has = std::any_of(facts.machine.rdma.begin(), facts.machine.rdma.end(), [&](const RdmaPort& port) { return port.pci == device.address; });
    if (is_nic(device) && device.vendor == 0x15b3 && !has && !device.virtual_function) lacking.push_back(device.address);
  }
  if (!lacking.empty()) {
    findings.push_back({Severity::kWarning, "A NIC that has RDMA is used without it.", "NVIDIA (Mellanox) adapters without a device in /sys/class/infiniband: " + join(lacking, ", ") + ".",
                        facts.container ? "Pass /dev/infiniband into the container (--device=/dev/infiniband --cap-add=IPC_LOCK), and load mlx5_ib on the host." : "Load the kernel module mlx5_ib (rdma-core)."});
  }
  if (const auto wanted = facts.variables.find("NCCL_IB_HCA"); wanted != facts.variables.end() && !wanted->second.starts_with('^')) {
    const bool exact = wanted->second.starts_with('=');
    std::vector<std::string> absent;
    for (const std::string& word : split(exact ? wanted->second.substr(1) : wanted->second, ',')) {
      const std::string name = word.substr(0, word.find(':'));
      const auto same = [&](const RdmaPort& port) { return exact ? port.device == name : port.device.starts_with(name); };
      if (!name.empty() && std::none_of(facts.machine.rdma.begin(), facts.machine.rdma.end(), same)) absent.push_back(name);
    }
    std::vector<std::string> known;
    for (const RdmaPort& port : facts.machine.rdma) {
      if (std::find(known.begin(), known.end(), port.device) == known.end()) known.push_back(port.device);
    }
    if (!absent.empty()) {
      findings.push_back({Severity::kWarning, "NCCL is told to use RDMA adapters that aren't here.", fmt::format("NCCL_IB_HCA={}: there is no {}. Where none is left, NCCL takes sockets.", wanted->second, join(absent, ", ")),
                          known.empty() ? "This machine shows no RDMA adapter: load its driver, or pass /dev/infiniband into the container." : "Its adapters are " + join(known, ", ") + "."});
    }
  }
  bool active = false;
  for (const RdmaPort& port : facts.machine.rdma) active = active || port.state == "ACTIVE";
  for (const RdmaPort& port : facts.machine.rdma) {
    if (port.state == "ACTIVE") continue;
    findings.push_back({active ? Severity::kInfo : Severity::kWarning, fmt::format("The RDMA port {}:{} is {}.", port.device, port.port, port.state.empty() ? "in an unknown state" : port.state),
                        port.link_layer + ", " + port.rate + ".", "If it should carry traffic: check cable and switch; on InfiniBand that a subnet manager runs."});
  }
  const bool nvidia = std::any_of(facts.machine.pci.begin(), facts.machine.pci.end(), [](const PciDevice& device) { return is_gpu(device) && device.vendor == 0x10de; });
  const GpuDirect& direct = facts.machine.gpudirect;
  if (nvidia && active && direct.peer_memory.empty() && !(direct.open_module && direct.dmabuf_kernel)) {
    findings.push_back({Severity::kWarning, "No GPUDirect RDMA: NICs can't reach the GPUs' memory.",
                        fmt::format("nvidia_peermem is not loaded, and dma-buf needs the driver's open kernel modules ({}) and Linux 5.12 ({}).",
                                    direct.driver.empty() ? "no driver is loaded" : direct.open_module ? "they are" : "they are not", facts.machine.kernel.empty() ? "unknown" : facts.machine.kernel),
                        "modprobe nvidia_peermem, or install the driver with its open kernel modules."});
  }
  return findings;
}

std::vector<Finding> check_wiring(const Wiring& wiring) {
  std::vector<Finding> findings;
  const Relations relations(wiring);
  const auto out = links_by_device(wiring);
  const auto gpus_by_host = devices_by_host(wiring, DeviceKind::kGpu), nics_by_host = devices_by_host(wiring, DeviceKind::kNic);
  for (std::size_t host = 0; host < gpus_by_host.size(); ++host) {
    const std::vector<int>&gpus = gpus_by_host[host], &nics = nics_by_host[host];
    const auto nvlinks = [&](int gpu) {
      int count = 0;
      for (int link : out[static_cast<std::size_t>(gpu)]) {
        if (wiring.links[static_cast<std::size_t>(link)].kind == LinkKind::kNvlink) count += wiring.links[static_cast<std::size_t>(link)].lanes;
      }
      return fmt::format("{} NVLinks", count);
    };
    const auto pcie = [&](int gpu) {
      for (int link : out[static_cast<std::size_t>(gpu)]) {
        const Link& one = wiring.links[static_cast<std::size_t>(link)];
        if (one.kind == LinkKind::kPcie && one.provenance != Provenance::kAssumed) return fmt::format("PCIe {} x{}", one.generation, one.lanes);
      }
      return std::string("PCIe not known");
    };
    const auto model = [&](int gpu) { return at(wiring, gpu).model.empty() ? std::string("model not known") : at(wiring, gpu).model; };
    differing(wiring, gpus, nvlinks, "GPUs have other numbers of NVLinks than their peers.", "See nvidia-smi nvlink --status: links that are down or lead nowhere want a reset, or the card a repair.", findings);
    differing(wiring, gpus, pcie, "GPUs have another PCIe link than their peers.", "Collectives run at the pace of the slowest: see each card's slot and link.", findings);
    differing(wiring, gpus, model, "GPUs are of another model than their peers.", "Every step waits for the slowest, and memory is planned by the smallest: leave the odd ones out.", findings);
    std::vector<std::string> far;
    for (int gpu : gpus) {
      Connection nearest = Connection::kUnknown;
      for (int nic : nics) nearest = std::min(nearest, relations.between(gpu, nic).pcie);
      if (nearest == Connection::kSys) far.push_back(named(at(wiring, gpu)));
    }
    if (!far.empty()) {
      findings.push_back({Severity::kWarning, "GPUs are far from every NIC.", join(far, ", ") + ": the nearest NIC is on another NUMA node, so all traffic to other hosts crosses the sockets.",
                          "Move a NIC to their side, or give the ranks that talk to other hosts the near GPUs."});
    }
  }
  return findings;
}

std::vector<Finding> check_reading(const Reading& reading, const std::string& file) {
  std::vector<Finding> findings = check_wiring(reading.wiring);
  for (const Note& note : reading.notes) {
    findings.push_back({note.remedy.empty() ? Severity::kInfo : Severity::kWarning, note.text, file + (note.line > 0 ? ":" + std::to_string(note.line) : ""), note.remedy});
  }
  sort_findings(findings);
  return findings;
}

}  // namespace wirewise
