#include "wirewise/wiring/discover.h"

#include <algorithm>
#include <map>
#include <set>

#include "wirewise/base/text.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/sysfs.h"

namespace wirewise {
namespace {

/// NVLink's generation by the GPU's: Pascal 1, Volta and Turing 2, Ampere 3, Hopper 4, Blackwell 5.
int nvlink_generation(int compute_major) {
  switch (compute_major) {
    case 6: return 1;
    case 7: return 2;
    case 8: return 3;
    case 9: return 4;
    default: return compute_major >= 10 ? 5 : 0;
  }
}

class Discovery {
 public:
  explicit Discovery(const Machine& machine) : machine_(machine), wiring_(reading_.wiring) { reading_.format = Format::kThisMachine; }

  Reading run() {
    add_host();
    add_gpus();
    add_nics();
    raise_bridges();
    add_nvlinks();
    for (const RdmaPort& port : machine_.rdma) {
      std::vector<std::string> parts{port.link_layer, port.rate, port.state};
      std::erase(parts, "");
      if (!parts.empty()) fact(port.device + ":" + std::to_string(port.port), "rdma", join(parts, ", "));
    }
    if (machine_.pci.empty() && machine_.net.empty()) {
      note("no PCI device and no network interface can be seen: /sys isn't mounted here, or shows none. GPUs and NICs are missing.");
      reading_.partial = true;
    }
    const GpuDirect& direct = machine_.gpudirect;
    if (!direct.driver.empty()) fact(machine_.host, "nvidia kernel driver", direct.driver + (direct.open_module ? ", open" : ", closed"));
    if (!direct.peer_memory.empty()) fact(machine_.host, "GPUDirect RDMA", direct.peer_memory + " is loaded");
    else if (direct.open_module && direct.dmabuf_kernel) fact(machine_.host, "GPUDirect RDMA", "by dma-buf");
    const std::string nvml = machine_.nvml.present ? "driver " + machine_.nvml.driver : machine_.nvml.absence;
    if (!nvml.empty()) fact(machine_.host, "NVML", nvml);
    return std::move(reading_);
  }

 private:
  void fact(std::string subject, std::string name, std::string value) { reading_.facts.push_back({std::move(subject), std::move(name), std::move(value)}); }
  void note(std::string text) { reading_.notes.push_back({0, 0, std::move(text)}); }

  int add(DeviceKind kind, std::string name, int parent, Link link, int numa) {
    Device device;
    device.name = std::move(name);
    device.kind = kind;
    device.host = 0;
    device.numa = numa;
    const int added = add_device(wiring_, std::move(device));
    if (parent >= 0) add_link(wiring_, parent, added, std::move(link));
    return added;
  }
  Device& at(int index) { return wiring_.devices[static_cast<std::size_t>(index)]; }

  void add_host() {
    host_ = add(DeviceKind::kHost, machine_.host, -1, {}, -1);
    const Processors& processors = machine_.processors;
    at(host_).model = processors.model;
    std::map<int, int> nodes_in, socket_device;
    for (const NumaNode& node : processors.nodes) ++nodes_in[node.socket];
    const std::string_view between = sockets_class(processors.model);
    const Link sockets = sockets_link(between, Provenance::kSpec);
    Link inside = make_link(link_class("AMD xGMI, Zen 3/4"), 1, Provenance::kAssumed, "within a socket, at least as between two");
    for (const NumaNode& node : processors.nodes) {
      at(host_).memory += node.memory;
      int parent = host_;
      if (node.socket >= 0 && nodes_in[node.socket] > 1) {
        const auto [known, fresh] = socket_device.try_emplace(node.socket, -1);
        if (fresh) known->second = add(DeviceKind::kSocket, "socket" + std::to_string(node.socket), host_, sockets, -1);
        parent = known->second;
      }
      const int added = add(DeviceKind::kNumaNode, "numa" + std::to_string(node.number), parent, parent == host_ ? sockets : inside, node.number);
      at(added).cpus = node.cpus;
      at(added).memory = node.memory;
      numa_[node.number] = added;
    }
  }

  /// The link of a device: what it runs at; of a GPU, which slows its link when it idles, what it and the port above it can.
  Link link_of(const PciDevice& device, bool idles) {
    int generation = device.generation;
    if (idles && device.most_generation > 0) {
      generation = device.most_generation;
      const PciDevice* port = device.above.empty() ? nullptr : find_pci(machine_, device.above.back());
      if (port != nullptr && port->most_generation > 0) generation = std::min(generation, port->most_generation);
      generation = std::max(generation, device.generation);
    }
    if (generation > 0 || device.lanes > 0 || device.gbyte <= 0) return pcie_link(generation, device.lanes, Provenance::kDriver);
    Link link = pcie_link(4, 16, Provenance::kDriver);
    link.beta *= device.gbyte * 1e9 / link.spec;
    link.spec = device.gbyte * 1e9;
    link.generation = link.lanes = 0;
    link.source = "PCIe, by its speed alone";
    return link;
  }

  /// The host bridge, or the innermost PCIe switch, that a device hangs on.
  int parent_of(const PciDevice& device) {
    auto [bridge, fresh] = bridge_.try_emplace(device.host_bridge, -1);
    if (fresh) {
      int numa = device.numa;
      if (!numa_.contains(numa) && machine_.processors.nodes.size() == 1) numa = machine_.processors.nodes.front().number;
      int above = host_;
      if (numa_.contains(numa)) {
        above = numa_[numa];
      } else {
        note(device.host_bridge + " is near no NUMA node that this machine names, so its devices hang on the host itself.");
        numa = -1;
      }
      bridge->second = add(DeviceKind::kHostBridge, "bridge" + std::to_string(bridges_++), above, pcie_link(0, 0, Provenance::kAssumed), numa);
      at(bridge->second).pci = device.host_bridge.starts_with("pci") ? device.host_bridge.substr(3) : std::string();
    }
    // A root port, then an upstream and a downstream port for each switch.
    int parent = bridge->second;
    for (std::size_t i = 1; i < device.above.size(); i += 2) {
      auto [known, is_new] = switch_.try_emplace(device.above[i], -1);
      if (is_new) {
        const PciDevice* port = find_pci(machine_, device.above[i]);
        const Link link = port == nullptr ? pcie_link(0, 0, Provenance::kAssumed) : link_of(*port, false);
        known->second = add(DeviceKind::kPcieSwitch, "switch" + std::to_string(switches_++), parent, link, at(bridge->second).numa);
        at(known->second).pci = device.above[i];
      }
      parent = known->second;
    }
    return parent;
  }

  int add_leaf(DeviceKind kind, const std::string& name, const PciDevice& device) {
    const int parent = parent_of(device);
    const int added = add(kind, name, parent, link_of(device, kind == DeviceKind::kGpu), device.numa >= 0 ? device.numa : at(parent).numa);
    at(added).pci = device.address;
    at(added).cpus = device.cpus;
    return added;
  }

  void add_gpus() {
    const auto in_nvml = [&](const std::string& address) {
      const auto& gpus = machine_.nvml.gpus;
      const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const NvmlGpu& gpu) { return gpu.pci == address; });
      return found == gpus.end() ? nullptr : &*found;
    };
    int count = 0;
    for (const PciDevice& device : machine_.pci) {
      const NvmlGpu* nvml = in_nvml(device.address);
      if ((!is_gpu(device) || device.virtual_function) && nvml == nullptr) continue;
      const int added = add_leaf(DeviceKind::kGpu, "GPU" + std::to_string(count++), device);
      gpu_[device.address] = added;
      for (const auto& [address, model] : machine_.gpu_models) {
        if (address == device.address) at(added).model = model;
      }
      if (nvml != nullptr) describe(added, *nvml);
      else if (device.vendor == 0x10de && machine_.nvml.present) note("The GPU at " + device.address + " is on the PCI bus, but the driver doesn't show it.");
    }
    for (const NvmlGpu& gpu : machine_.nvml.gpus) {
      if (!gpu.failure.empty()) note("The driver's GPU " + std::to_string(gpu.index) + " doesn't answer: " + gpu.failure + ".");
      if (!gpu.failure.empty() || gpu_.contains(gpu.pci)) continue;
      // A sandbox may hide the PCI bus but not the driver.
      const int generation = gpu.most_generation > 0 ? gpu.most_generation : gpu.generation;
      const int added = add(DeviceKind::kGpu, "GPU" + std::to_string(count++), host_, pcie_link(generation, gpu.lanes, Provenance::kDriver), -1);
      at(added).placed = false;
      at(added).pci = gpu.pci;
      gpu_[gpu.pci] = added;
      describe(added, gpu);
      note("The GPU at " + gpu.pci + " is not on the PCI bus that this process sees: its place isn't known.");
    }
  }

  void describe(int index, const NvmlGpu& gpu) {
    at(index).model = gpu.name;
    at(index).memory = gpu.memory;
    if (gpu.mig) fact(at(index).name, "MIG", "on");
  }

  void add_nics() {
    std::set<std::string> taken;
    int count = 0;
    for (const PciDevice& device : machine_.pci) {
      if (!is_nic(device)) continue;
      std::vector<std::string> verbs, interfaces;
      for (const RdmaPort& port : machine_.rdma) {
        if (port.pci == device.address && (verbs.empty() || verbs.back() != port.device)) verbs.push_back(port.device);
      }
      bool wireless = false;
      for (const NetDevice& net : machine_.net) {
        if (net.pci != device.address) continue;
        interfaces.push_back(net.name);
        wireless = wireless || net.wireless;
      }
      if (wireless || (device.virtual_function && verbs.empty() && interfaces.empty())) continue;
      std::string name = !verbs.empty() ? verbs.front() : !interfaces.empty() ? interfaces.front() : "NIC" + std::to_string(count);
      while (!taken.insert(name).second) name += "'";
      ++count;
      const int added = add_leaf(DeviceKind::kNic, name, device);
      std::string model;
      for (const std::string& interface : interfaces) model += (model.empty() ? "" : ", ") + interface;
      if (!verbs.empty() || interfaces.size() > 1) at(added).model = model;
      for (const NetDevice& net : machine_.net) {
        if (net.pci != device.address) continue;
        fact(net.name, "ethernet", (net.speed > 0 ? std::to_string(net.speed) + " Mbit/s" : std::string("speed not stated")) + (net.state.empty() ? "" : ", " + net.state));
      }
    }
  }

  /// A host bridge is taken to carry what all its ports carry together: nothing states it.
  void raise_bridges() {
    for (Link& link : wiring_.links) {
      const int bridge = at(link.to).kind == DeviceKind::kHostBridge ? link.to : at(link.from).kind == DeviceKind::kHostBridge ? link.from : -1;
      const int other = bridge == link.to ? link.from : link.to;
      const DeviceKind above = at(other).kind;
      if (bridge == -1 || (above != DeviceKind::kNumaNode && above != DeviceKind::kHost)) continue;
      BytesPerSecond beta = 0, spec = 0;
      for (const Link& port : wiring_.links) {
        if (port.from != bridge || port.to == other) continue;
        beta += port.beta;
        spec += port.spec;
      }
      if (beta <= 0) continue;  // what a file leaves out
      link.beta = beta;
      link.spec = spec;
      link.lanes = link.generation = 0;
      link.source = "as all its ports together";
    }
  }

  void add_nvlinks() {
    std::map<int, int> to_switch;
    std::map<std::pair<int, int>, int> direct;
    int generation = 0, major = 0;
    for (const NvmlGpu& gpu : machine_.nvml.gpus) {
      if (!gpu_.contains(gpu.pci)) continue;
      const int from = gpu_[gpu.pci];
      generation = std::max(generation, nvlink_generation(gpu.compute_major));
      major = std::max(major, gpu.compute_major);
      int unknown = 0;
      for (const NvmlLink& link : gpu.nvlinks) {
        if (!link.active) continue;
        const PciDevice* remote = find_pci(machine_, link.remote);
        if (link.to_switch || (remote != nullptr && remote->type >> 8 == 0x0680)) ++to_switch[from];
        else if (gpu_.contains(link.remote) && gpu_[link.remote] != from) ++direct[std::minmax(from, gpu_[link.remote])];
        else ++unknown;
      }
      if (unknown > 0) note(std::to_string(unknown) + " active NVLinks of " + at(from).name + " lead to a device that isn't named.");
    }
    for (const auto& [ends, count] : direct) {
      add_link(wiring_, ends.first, ends.second, nvlink_link(generation, (count + 1) / 2, Provenance::kDriver));  // each end has counted it
    }
    if (to_switch.empty()) return;
    const int middle = add(DeviceKind::kNvSwitch, "nvswitch0", -1, {}, -1);
    at(middle).nvls = major >= 9;
    for (const auto& [gpu, count] : to_switch) add_link(wiring_, gpu, middle, nvlink_link(generation, count, Provenance::kDriver));
  }

  const Machine& machine_;
  Reading reading_;
  Wiring& wiring_;
  int host_ = -1, bridges_ = 0, switches_ = 0;
  std::map<int, int> numa_;
  std::map<std::string, int> bridge_, switch_, gpu_;
};

}  // namespace

std::string_view sockets_class(std::string_view cpu) {
  if (cpu.find("EPYC 7") != std::string::npos) {  // the last digit is the generation
    const std::size_t at = cpu.find("EPYC 7") + 8;
    return cpu.size() > at && cpu[at] <= '2' ? "AMD xGMI, Zen 2" : "AMD xGMI, Zen 3/4";
  }
  if (cpu.find("EPYC") != std::string::npos) return "AMD xGMI, Zen 3/4";
  for (const char* model : {"Platinum 84", "Gold 64", "Platinum 85", "Gold 65", "Xeon(R) 6"}) {
    if (cpu.find(model) != std::string::npos) return "Intel UPI, Sapphire Rapids";
  }
  if (cpu.find("Xeon") != std::string::npos) return "Intel UPI, Skylake";
  return "";
}

Machine inspect_machine(const Places& places) {
  Machine machine;
  machine.host = sysfs::line_of(places.root / "proc/sys/kernel/hostname");
  if (machine.host.empty()) machine.host = "this machine";
  machine.kernel = sysfs::line_of(places.root / "proc/sys/kernel/osrelease");
  machine.processors = read_processors(places.root);
  machine.pci = read_pci(places.root);
  machine.net = read_net(places.root);
  machine.rdma = read_rdma(places.root);
  machine.gpudirect = read_gpudirect(places.root);
  machine.nvml = read_nvml(places.nvml);
  for (const std::string& address : sysfs::names_in(places.root / "proc/driver/nvidia/gpus")) {
    const std::string text = sysfs::text_of(places.root / "proc/driver/nvidia/gpus" / address / "information", 4096);
    const std::size_t at = text.find("Model:");
    if (at == std::string::npos) continue;
    const std::size_t start = text.find_first_not_of(" \t", at + 6);
    if (start != std::string::npos) machine.gpu_models.emplace_back(pci_address(address), text.substr(start, text.find('\n', start) - start));
  }
  return machine;
}

Reading wire(const Machine& machine) { return Discovery(machine).run(); }

Reading discover(const Places& places) { return wire(inspect_machine(places)); }

}  // namespace wirewise
