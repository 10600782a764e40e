// Random machines for properties: hosts with sockets, NUMA nodes, bridges, PCIe switches, GPUs and NICs anywhere, NVLinks of any kind, and a
// network of switches. Every figure, provenance and source is random, so that a writer that keeps only usual ones is found.
#pragma once

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise::same {

class RandomWiring {
 public:
  explicit RandomWiring(unsigned seed) : random_(seed) {}

  /// `figures`: links with any figures, else those that classes of links have.
  Wiring make(int hosts, bool figures) {
    figures_ = figures;
    wiring_ = {};
    for (int host = 0; host < hosts; ++host) add_host(host);
    if (hosts > 1 || chance(2)) add_network();
    return wiring_;
  }

  int below(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  bool chance(int of) { return below(of) == 0; }

 private:
  Link figure(Link link) {
    if (!figures_) return link;
    link.beta = std::uniform_real_distribution<double>(1e6, 9e11)(random_);
    link.alpha = std::uniform_real_distribution<double>(0, 1e-4)(random_);
    link.spec = chance(3) ? 0 : link.beta * 1.1;
    link.provenance = static_cast<Provenance>(below(4));
    link.source = chance(3) ? "" : "measured by \"us\", " + std::to_string(below(100)) + "\n";
    return link;
  }
  Link pcie() { return figure(pcie_link(chance(4) ? 0 : 1 + below(6), 1 << below(5), Provenance::kDriver)); }

  int add(DeviceKind kind, const std::string& name, int host, int numa) {
    Device device;
    device.name = name;
    device.kind = kind;
    device.host = host;
    device.numa = numa;
    return add_device(wiring_, device);
  }

  /// A switch or an end of PCIe.
  void hang(int parent, int host, int numa, int depth) {
    const int kind = below(depth < 3 ? 3 : 2);
    if (kind == 2) {
      const int own = add(DeviceKind::kPcieSwitch, "switch" + std::to_string(switches_++), host, numa);
      add_link(wiring_, parent, own, pcie());
      for (int i = 0, many = 1 + below(3); i < many; ++i) hang(own, host, numa, depth + 1);
      return;
    }
    const bool gpu = kind == 0;
    const int own = add(gpu ? DeviceKind::kGpu : DeviceKind::kNic, gpu ? "GPU" + std::to_string(gpus_.size()) : (chance(2) ? "NIC" : "mlx5_") + std::to_string(nics_.size()), host, numa);
    Device& device = wiring_.devices[static_cast<std::size_t>(own)];
    if (chance(3)) device.pci = "0000:" + std::string(1, static_cast<char>('a' + host % 6)) + std::string(1, "0123456789abcdef"[gpus_.size() % 16]) + ":" + (gpu ? "00" : "1f") + "." + std::to_string(nics_.size() % 8);
    if (taken_.contains(device.pci)) device.pci.clear();
    if (!device.pci.empty()) taken_.insert(device.pci);
    if (gpu) {
      constexpr const char* kModels[] = {"", "NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-16GB", "a \"GPU\" \\ of $(mine)"};
      device.model = kModels[below(4)];
      device.memory = chance(2) ? 0 : static_cast<Bytes>(1 + below(1 << 30)) * 3;
    }
    add_link(wiring_, parent, own, pcie());
    (gpu ? gpus_ : nics_).push_back(own);
  }

  void add_host(int host) {
    gpus_.clear();
    nics_.clear();
    taken_.clear();
    switches_ = 0;
    const int top = add(DeviceKind::kHost, "host-" + std::to_string(host) + (chance(3) ? " [1-3], \"x\"" : ""), host, -1);
    wiring_.devices[static_cast<std::size_t>(top)].rack = chance(2) ? "rack" + std::to_string(host / 2) : "";
    int bridges = 0;
    for (int numa = 0, many = 1 + below(3); numa < many; ++numa) {
      int parent = top;
      if (chance(4)) {
        parent = add(DeviceKind::kSocket, "socket" + std::to_string(numa), host, -1);
        add_link(wiring_, top, parent, figure(sockets_link("AMD xGMI, Zen 2", Provenance::kSpec)));
      }
      const int node = add(DeviceKind::kNumaNode, "numa" + std::to_string(numa), host, numa);
      wiring_.devices[static_cast<std::size_t>(node)].cpus = chance(2) ? "" : std::to_string(8 * numa) + "-" + std::to_string(8 * numa + 7);
      add_link(wiring_, parent, node, figure(sockets_link(chance(2) ? "Intel UPI, Skylake" : "", Provenance::kSpec)));
      for (int i = 0, some = below(3); i < some; ++i) {
        const int bridge = add(DeviceKind::kHostBridge, "bridge" + std::to_string(bridges++), host, numa);
        add_link(wiring_, node, bridge, pcie());
        for (int j = 0, ports = below(4); j < ports; ++j) hang(bridge, host, numa, 0);
      }
      if (chance(4)) hang(node, host, numa, 3);
    }
    if (gpus_.size() < 2) return;
    const int way = below(3);
    if (way == 0) {
      const int middle = add(DeviceKind::kNvSwitch, "nvswitch0", host, -1);
      wiring_.devices[static_cast<std::size_t>(middle)].nvls = true;
      for (int gpu : gpus_) add_link(wiring_, gpu, middle, figure(nvlink_link(4, 18, Provenance::kSpec)));
    } else if (way == 1) {
      for (std::size_t i = 0; i < gpus_.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          if (chance(2)) add_link(wiring_, gpus_[j], gpus_[i], figure(nvlink_link(1 + below(5), 1 + below(4), Provenance::kDriver)));
        }
      }
    }
  }

  void add_network() {
    const int leaves = 1 + below(3);
    std::vector<int> leaf;
    for (int i = 0; i < leaves; ++i) leaf.push_back(add(DeviceKind::kSwitch, "leaf" + std::to_string(i), -1, -1));
    const int spine = add(DeviceKind::kSwitch, "spine", -1, -1);
    wiring_.devices[static_cast<std::size_t>(spine)].level = 1;
    for (int i : leaf) add_link(wiring_, i, spine, figure(make_link(link_class("InfiniBand NDR"), 4, Provenance::kSpec)));
    for (int nic : devices_of(wiring_, DeviceKind::kNic)) add_link(wiring_, nic, leaf[static_cast<std::size_t>(below(leaves))], figure(make_link(link_class(chance(2) ? "InfiniBand NDR" : "25 GbE"), 1, Provenance::kSpec)));
    for (std::size_t i = 0; i < wiring_.devices.size(); ++i) {
      if (wiring_.devices[i].kind == DeviceKind::kGpu && chance(2)) wiring_.rank_device.push_back(static_cast<int>(i));
    }
  }

  std::mt19937 random_;
  Wiring wiring_;
  std::vector<int> gpus_, nics_;
  std::set<std::string> taken_;
  int switches_ = 0;
  bool figures_ = false;
};

}  // namespace wirewise::same
