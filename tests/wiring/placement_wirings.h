// Machines to place ranks on.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/placement.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise::placement_test {

inline int add(Wiring& wiring, std::string name, DeviceKind kind, int host = -1, int level = 0) {
  Device device;
  device.name = std::move(name);
  device.kind = kind;
  device.host = host;
  device.level = level;
  return add_device(wiring, std::move(device));
}

inline Link link(LinkKind kind, double gbyte) {
  Link made;
  made.kind = kind;
  made.beta = gbyte * 1e9;
  made.provenance = Provenance::kSpec;
  return made;
}

/// NVIDIA's DGX-1 with V100: a hybrid cube mesh of 6 NVLinks a GPU.
inline void add_dgx1(Wiring& wiring, int number, std::vector<int> order = {0, 1, 2, 3, 4, 5, 6, 7}) {
  const int host = add(wiring, "dgx" + std::to_string(number), DeviceKind::kHost, number);
  std::vector<int> gpus(8);
  for (const int i : order) {
    gpus[static_cast<std::size_t>(i)] = add(wiring, "GPU" + std::to_string(i), DeviceKind::kGpu, number);
    add_link(wiring, host, gpus[static_cast<std::size_t>(i)], pcie_link(3, 16, Provenance::kSpec));
  }
  const int pairs[][3] = {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
                          {2, 6, 2}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};
  for (const auto& [a, b, lanes] : pairs) add_link(wiring, gpus[static_cast<std::size_t>(a)], gpus[static_cast<std::size_t>(b)], nvlink_link(2, lanes, Provenance::kSpec));
}

struct Cluster {
  Wiring wiring;
  std::vector<std::vector<int>> gpus;  // of each host, in the order of their NICs
};

/// Hosts of 8 GPUs on an NVSwitch, each with a NIC of 50 GB/s of its own. `leaves[i]` hosts hang on leaf i; leaves have `uplink` GB/s to a spine.
inline Cluster leaf_spine(const std::vector<int>& leaves, double uplink, int gpus_each = 8) {
  Cluster cluster;
  Wiring& wiring = cluster.wiring;
  const int spine = add(wiring, "spine", DeviceKind::kSwitch, -1, 1);
  int number = 0;
  for (std::size_t l = 0; l < leaves.size(); ++l) {
    const int leaf = add(wiring, "leaf" + std::to_string(l), DeviceKind::kSwitch);
    add_link(wiring, leaf, spine, link(LinkKind::kInfiniband, uplink));
    for (int h = 0; h < leaves[l]; ++h, ++number) {
      const int host = add(wiring, "node" + std::to_string(number), DeviceKind::kHost, number);
      const int nvswitch = add(wiring, "nvswitch", DeviceKind::kNvSwitch, number);
      cluster.gpus.emplace_back();
      for (int g = 0; g < gpus_each; ++g) {
        const int plx = add(wiring, "switch" + std::to_string(g), DeviceKind::kPcieSwitch, number);
        const int nic = add(wiring, "nic" + std::to_string(g), DeviceKind::kNic, number);
        const int gpu = add(wiring, "GPU" + std::to_string(g), DeviceKind::kGpu, number);
        add_link(wiring, host, plx, pcie_link(5, 16, Provenance::kSpec));
        add_link(wiring, plx, nic, pcie_link(6, 16, Provenance::kSpec));
        add_link(wiring, plx, gpu, pcie_link(6, 16, Provenance::kSpec));
        add_link(wiring, nic, leaf, link(LinkKind::kInfiniband, 50));
        add_link(wiring, gpu, nvswitch, nvlink_link(4, 18, Provenance::kSpec));
        cluster.gpus.back().push_back(gpu);
      }
    }
  }
  return cluster;
}

/// The groups of a mesh of `sizes`, outermost first, that differ in dimension `dim` only.
inline std::vector<std::vector<int>> mesh_groups(const std::vector<int>& sizes, std::size_t dim) {
  int ranks = 1, stride = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    ranks *= sizes[i];
    if (i > dim) stride *= sizes[i];
  }
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank / stride % sizes[dim] != 0) continue;
    groups.emplace_back();
    for (int i = 0; i < sizes[dim]; ++i) groups.back().push_back(rank + i * stride);
  }
  return groups;
}

/// pp, dp, tp with the bytes that a rank sends of each in a step.
inline RankTraffic mesh_traffic(int pp, int dp, int tp, double pp_bytes, double dp_bytes, double tp_bytes) {
  RankTraffic traffic;
  traffic.ranks = pp * dp * tp;
  const std::vector<int> sizes{pp, dp, tp};
  traffic.phases.push_back({"pp", TrafficPattern::kChain, pp_bytes, mesh_groups(sizes, 0)});
  traffic.phases.push_back({"dp", TrafficPattern::kRing, dp_bytes, mesh_groups(sizes, 1)});
  traffic.phases.push_back({"tp", TrafficPattern::kRing, tp_bytes, mesh_groups(sizes, 2)});
  return traffic;
}

template <class T>
void shuffle(std::vector<T>& values, std::mt19937& random) {
  for (std::size_t left = values.size(); left > 1; --left) std::swap(values[left - 1], values[random() % left]);
}

/// A small machine of up to `most` devices: hosts with sockets, PCIe switches, NVLinks or an NVSwitch, NICs of their own or shared, leaves.
inline Wiring random_wiring(std::mt19937& random, int most) {
  Wiring wiring;
  const auto pick = [&](int least, int greatest) { return least + static_cast<int>(random() % static_cast<unsigned>(greatest - least + 1)); };
  const int hosts = pick(1, 4);
  std::vector<int> leaves;
  const int spine = add(wiring, "spine", DeviceKind::kSwitch, -1, 1);
  for (int i = 0; i < pick(1, 3); ++i) {
    leaves.push_back(add(wiring, "leaf" + std::to_string(i), DeviceKind::kSwitch));
    add_link(wiring, leaves.back(), spine, link(LinkKind::kEthernet, pick(1, 20)));
  }
  int left = most;
  for (int h = 0; h < hosts && left > 0; ++h) {
    const int host = add(wiring, "host" + std::to_string(h), DeviceKind::kHost, h);
    std::vector<int> nodes, gpus;
    for (int n = 0; n < pick(1, 2); ++n) {
      nodes.push_back(add(wiring, "numa" + std::to_string(n), DeviceKind::kNumaNode, h));
      add_link(wiring, host, nodes.back(), link(LinkKind::kSockets, pick(8, 40)));
    }
    const int style = pick(0, 2);  // PCIe, NVLinks, NVSwitch
    const int nvswitch = style == 2 ? add(wiring, "nvswitch", DeviceKind::kNvSwitch, h) : -1;
    const int count = h + 1 == hosts ? left : pick(1, std::max(1, std::min(left, 4)));
    for (int g = 0; g < count; ++g, --left) {
      const int gpu = add(wiring, "GPU" + std::to_string(g), DeviceKind::kGpu, h);
      add_link(wiring, nodes[random() % nodes.size()], gpu, link(LinkKind::kPcie, pick(6, 30)));
      if (nvswitch != -1) add_link(wiring, gpu, nvswitch, nvlink_link(3, pick(6, 12), Provenance::kSpec));
      for (const int other : gpus) {
        if (style == 1 && pick(0, 1) == 0) add_link(wiring, gpu, other, nvlink_link(2, pick(1, 2), Provenance::kSpec));
      }
      gpus.push_back(gpu);
    }
    for (int n = 0; n < pick(1, 2); ++n) {
      const int nic = add(wiring, "nic" + std::to_string(n), DeviceKind::kNic, h);
      add_link(wiring, nodes[random() % nodes.size()], nic, link(LinkKind::kPcie, pick(6, 30)));
      add_link(wiring, nic, leaves[random() % leaves.size()], link(LinkKind::kEthernet, pick(5, 9)));
    }
  }
  return wiring;
}

/// Phases over random partitions of the ranks.
inline RankTraffic random_traffic(std::mt19937& random, int ranks) {
  RankTraffic traffic;
  traffic.ranks = ranks;
  const auto phases = 1 + random() % 3;
  for (unsigned p = 0; p < phases; ++p) {
    TrafficPhase phase;
    phase.name = "phase" + std::to_string(p);
    phase.pattern = static_cast<TrafficPattern>(random() % 3);
    phase.bytes = static_cast<double>(1 + random() % 100) * 1e6;
    std::vector<int> all;
    for (int r = 0; r < ranks; ++r) all.push_back(r);
    shuffle(all, random);
    const std::size_t size = 1 + random() % 4;
    for (std::size_t i = 0; i < all.size(); i += size) {
      phase.groups.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(i), all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), i + size)));
    }
    traffic.phases.push_back(std::move(phase));
  }
  return traffic;
}

}  // namespace wirewise::placement_test
