// From the parts of a topology file to the graph: devices host by host (GPUs, NICs, then what they hang on), each with its link upwards, and
// last the links between GPUs.
#include <algorithm>

#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/nccl_parts.h"

namespace wirewise {
namespace {

Link links_of(const NcclPart& gpu, int count) { return gpu.gfx.empty() ? nvlinks_of(gpu.compute_capability, count) : xgmi_of(gpu.gfx, count); }

class Builder {
 public:
  Builder(const NcclParts& parts, Wiring& wiring) : parts_(parts), wiring_(wiring), device_(parts.parts.size(), -1), ports_(parts.parts.size()) {
    for (std::size_t i = 0; i < parts.parts.size(); ++i) {
      if (const int parent = parts.parts[i].parent; parent != -1) ports_[static_cast<std::size_t>(parent)].push_back(static_cast<int>(i));
    }
  }

  void host(int host) {
    Device device;
    device.name = "host" + std::to_string(host);
    device.host = host;
    const int top = add_device(wiring_, std::move(device));
    for (int gpu : parts_.gpus(host)) add(gpu, part(gpu).name);
    for (int nic : parts_.nics) {
      if (part(nic).host == host) add(nic, part(nic).name);
    }
    int switches = 0;
    const int count = static_cast<int>(parts_.parts.size());
    for (int i = 0; i < count; ++i) {
      if (part(i).host != host || device_of(i) != -1) continue;
      if (part(i).kind == DeviceKind::kHostBridge && ports_[static_cast<std::size_t>(i)].empty()) continue;
      add(i, part(i).kind == DeviceKind::kPcieSwitch ? "switch" + std::to_string(switches++) : part(i).name);
    }
    for (int i = 0; i < count; ++i) {
      if (part(i).host == host && device_of(i) != -1) hang(i, top);
    }
    gpu_links(host);
  }

 private:
  [[nodiscard]] Link pcie_of(int index) const {
    const NcclPart& from = part(index);
    if (!from.inside_chip) return pcie_link(from.generation, from.lanes, Provenance::kDriver);
    std::vector<Link> below;
    for (const int port : ports_[static_cast<std::size_t>(index)]) below.push_back(pcie_of(port));
    return below.empty() ? pcie_link(from.generation, from.lanes, Provenance::kDriver) : inside_chip_link(below);
  }
  [[nodiscard]] const NcclPart& part(int index) const { return parts_.parts[static_cast<std::size_t>(index)]; }
  [[nodiscard]] int device_of(int index) const { return device_[static_cast<std::size_t>(index)]; }
  /// The device of the NUMA node that a part is under.
  [[nodiscard]] int node_of(int index) const {
    while (part(index).kind != DeviceKind::kNumaNode) index = part(index).parent;
    return device_of(index);
  }

  void add(int index, std::string name) {
    const NcclPart& from = part(index);
    Device device;
    device.name = std::move(name);
    device.kind = from.kind;
    device.host = from.host;
    device.numa = from.numa;
    device.placed = from.placed;
    device.pci = from.pci;
    device.model = from.model;
    device.cpus = from.cpus;
    device_[static_cast<std::size_t>(index)] = add_device(wiring_, std::move(device));
  }

  void hang(int index, int top) {
    const NcclPart& from = part(index);
    if (from.kind == DeviceKind::kNumaNode) {
      const std::string_view sockets = sockets_class(from.cpu);
      add_link(wiring_, top, device_of(index), sockets_link(sockets, sockets.empty() ? Provenance::kAssumed : Provenance::kSpec));
      return;
    }
    Link link = pcie_of(index);
    if (from.kind == DeviceKind::kHostBridge) {
      link = {};
      link.kind = LinkKind::kPcie;
      for (int port : ports_[static_cast<std::size_t>(index)]) {
        const Link below = pcie_of(port);
        link.beta += below.beta;
        link.spec += below.spec;
      }
      link.source = "as wide as its ports together";
    }
    add_link(wiring_, device_of(from.parent), device_of(index), std::move(link));
  }

  void gpu_links(int host) {
    const NcclGpuLinks& links = parts_.gpu_links[static_cast<std::size_t>(host)];
    for (const auto& [gpu, link] : links.c2c) add_link(wiring_, node_of(gpu), device_of(gpu), link);
    for (const auto& [pair, count] : links.between) {
      const int a = device_of(pair.first), b = device_of(pair.second);
      add_link(wiring_, std::min(a, b), std::max(a, b), links_of(part(pair.first), count));
    }
    for (const auto& [gpu, count] : links.to_cpu) add_link(wiring_, node_of(gpu), device_of(gpu), links_of(part(gpu), count));
    if (links.to_switch.empty()) return;
    Device nvswitch;
    nvswitch.name = "nvswitch0";
    nvswitch.kind = DeviceKind::kNvSwitch;
    nvswitch.host = host;
    nvswitch.nvls = std::all_of(links.to_switch.begin(), links.to_switch.end(), [&](const auto& link) { return links_of(part(link.first), 1).generation >= 4; });
    const int middle = add_device(wiring_, std::move(nvswitch));
    for (int gpu : parts_.gpus(host)) {
      if (const auto found = links.to_switch.find(gpu); found != links.to_switch.end()) add_link(wiring_, device_of(gpu), middle, links_of(part(gpu), found->second));
    }
  }

  const NcclParts& parts_;
  Wiring& wiring_;
  std::vector<int> device_;              // of each part; -1: none
  std::vector<std::vector<int>> ports_;  // of each part: those that hang on it
};

}  // namespace

std::vector<int> NcclParts::of_kind(DeviceKind kind, int host) const {
  std::vector<int> found;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].kind == kind && parts[i].host == host) found.push_back(static_cast<int>(i));
  }
  return found;
}

std::vector<int> NcclParts::gpus(int host) const {
  std::vector<int> found = of_kind(DeviceKind::kGpu, host);
  std::sort(found.begin(), found.end(), [&](int a, int b) { return parts[static_cast<std::size_t>(a)].number < parts[static_cast<std::size_t>(b)].number; });
  return found;
}

void build_nccl_graph(const NcclParts& parts, Wiring& wiring) {
  Builder builder(parts, wiring);
  for (int host = 0; host < parts.hosts; ++host) builder.host(host);
}

}  // namespace wirewise
