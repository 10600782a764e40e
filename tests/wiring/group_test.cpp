// What groups get: closed forms, and bandwidths that people measured on machines whose figures the model has not seen.
#include "wirewise/wiring/group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <random>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/nvlink_rings.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/tree_bandwidth.h"

namespace wirewise {
namespace {

int gpu(Wiring& wiring, int number, int host) {
  Device device;
  device.name = "GPU" + std::to_string(number);
  device.kind = DeviceKind::kGpu;
  device.host = host;
  return add_device(wiring, device);
}

int host_of(Wiring& wiring, int host) {
  Device device;
  device.name = "host" + std::to_string(host);
  device.kind = DeviceKind::kHost;
  device.host = host;
  return add_device(wiring, device);
}

std::vector<int> first_gpus(const Wiring& wiring, int count) {
  std::vector<int> gpus = devices_of(wiring, DeviceKind::kGpu);
  gpus.resize(static_cast<std::size_t>(count));
  return gpus;
}

/// The hybrid cube mesh: 6 NVLinks a GPU, as its topology matrix prints them.
Wiring dgx1() {
  Wiring wiring;
  const int host = host_of(wiring, 0);
  for (int i = 0; i < 8; ++i) add_link(wiring, host, gpu(wiring, i, 0), pcie_link(3, 16, Provenance::kSpec));
  const int pairs[][3] = {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
                          {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};
  for (const auto& [a, b, lanes] : pairs) add_link(wiring, a + 1, b + 1, nvlink_link(2, lanes, Provenance::kSpec));
  return wiring;
}

/// `hosts` of 8 GPUs round an NVSwitch, `nics` ports each on a switch of their own, all to one leaf.
Wiring switched(int hosts, int generation, int links, bool nvls, int pcie, int nics, double gbit) {
  Wiring wiring;
  Device leaf;
  leaf.name = "leaf";
  leaf.kind = DeviceKind::kSwitch;
  const int top = add_device(wiring, leaf);
  for (int h = 0; h < hosts; ++h) {
    const int host = host_of(wiring, h);
    Device middle;
    middle.name = "nvswitch";
    middle.kind = DeviceKind::kNvSwitch;
    middle.host = h;
    middle.nvls = nvls;
    const int nvswitch = add_device(wiring, middle);
    std::vector<int> bridges;
    const int count = nics > 0 ? nics : 1;
    for (int i = 0; i < count; ++i) {
      Device device;
      device.name = "switch" + std::to_string(i);
      device.kind = DeviceKind::kPcieSwitch;
      device.host = h;
      bridges.push_back(add_device(wiring, device));
      add_link(wiring, host, bridges.back(), pcie_link(pcie, 16, Provenance::kSpec));
      if (nics == 0) continue;
      device.name = "nic" + std::to_string(i);
      device.kind = DeviceKind::kNic;
      const int nic = add_device(wiring, device);
      add_link(wiring, bridges.back(), nic, pcie_link(pcie, 16, Provenance::kSpec));
      add_link(wiring, nic, top, network_link(LinkKind::kInfiniband, gbit, true, Provenance::kSpec));
    }
    for (int i = 0; i < 8; ++i) {
      const int device = gpu(wiring, i, h);
      add_link(wiring, bridges[static_cast<std::size_t>(i * count / 8)], device, pcie_link(pcie, 16, Provenance::kSpec));
      add_link(wiring, device, nvswitch, nvlink_link(generation, links, Provenance::kSpec));
    }
  }
  return wiring;
}

/// 4 GPUs on PCIe 4, two a socket.
Wiring pcie_box() {
  Wiring wiring;
  const int host = host_of(wiring, 0);
  for (int node = 0; node < 2; ++node) {
    Device numa;
    numa.name = "numa" + std::to_string(node);
    numa.kind = DeviceKind::kNumaNode;
    numa.host = 0;
    const int at = add_device(wiring, numa);
    add_link(wiring, host, at, sockets_link("AMD xGMI, Zen 3/4", Provenance::kSpec));
    for (int i = 0; i < 2; ++i) {
      Device bridge;
      bridge.name = "bridge" + std::to_string(2 * node + i);
      bridge.kind = DeviceKind::kHostBridge;
      bridge.host = 0;
      const int root = add_device(wiring, bridge);
      add_link(wiring, at, root, pcie_link(4, 16, Provenance::kSpec));
      add_link(wiring, root, gpu(wiring, 2 * node + i, 0), pcie_link(4, 16, Provenance::kSpec));
    }
  }
  return wiring;
}

struct Measured {
  std::string machine, collective, algorithm, source;
  int gpus = 0;
  double busbw = 0;
};

std::vector<Measured> measured() {
  std::ifstream in(std::string(WIREWISE_SOURCE_DIR) + "/data/measured_bandwidth.csv");
  std::string line;
  std::getline(in, line);
  std::vector<Measured> rows;
  while (std::getline(in, line)) {
    const auto cells = split(line, ',');
    if (cells[7] == "yes") continue;
    rows.push_back({cells[0], cells[3], cells[4], cells[8], std::stoi(cells[1]), std::stod(cells[6])});
  }
  return rows;
}

TEST(GroupBandwidth, AgreesWithMeasuredBusBandwidthWithinTenPercent) {
  const std::map<std::string, std::function<Wiring()>> machines{
      {"dgx1-v100", dgx1},
      {"dgx-a100", [] { return switched(1, 3, 12, false, 4, 0, 0); }},
      {"hgx-h200", [] { return switched(1, 4, 18, true, 5, 0, 0); }},
      {"a100-pcie", pcie_box},
      {"dgx-a100-2-nics", [] { return switched(2, 3, 12, false, 4, 2, 200); }},
      {"dgx-a100-8-nics", [] { return switched(2, 3, 12, false, 4, 8, 200); }},
      {"hgx-b200", [] { return switched(4, 5, 18, true, 5, 8, 400); }},
  };
  const std::vector<Measured> rows = measured();
  ASSERT_EQ(rows.size(), 16U);
  for (const Measured& row : rows) {
    const Wiring wiring = machines.at(row.machine)();
    const std::vector<int> gpus = first_gpus(wiring, row.gpus);
    const GroupBandwidth found = row.algorithm == "ring" ? ring_bandwidth(wiring, gpus)
                                 : row.algorithm == "tree" ? tree_bandwidth(wiring, gpus)
                                                           : in_switch_bandwidth(wiring, gpus).value();
    EXPECT_NEAR(found.bus / 1e9 / row.busbw, 1, 0.1) << row.machine << ", " << row.gpus << " GPUs, " << row.collective << ": predicted " << found.bus / 1e9
                                                     << " GB/s, measured " << row.busbw << " (" << row.source << "); " << found.why;
  }
}

TEST(GroupBandwidth, AllReduceTakesTheSwitchThatAddsUpOnlyAboveFourGpus) {
  const Wiring wiring = switched(1, 4, 18, true, 5, 0, 0);
  EXPECT_EQ(group_bandwidth(wiring, first_gpus(wiring, 8), GroupCollective::kAllReduce).algorithm, GroupAlgorithm::kInSwitch);
  EXPECT_EQ(group_bandwidth(wiring, first_gpus(wiring, 8), GroupCollective::kAllGather).algorithm, GroupAlgorithm::kRing);
  EXPECT_EQ(group_bandwidth(wiring, first_gpus(wiring, 4), GroupCollective::kAllReduce).algorithm, GroupAlgorithm::kRing);
  EXPECT_FALSE(in_switch_bandwidth(switched(1, 3, 12, false, 4, 0, 0), first_gpus(wiring, 8)).has_value());
}

TEST(GroupBandwidth, OversubscribedUplinksDivideTheRing) {
  // Two leaves of two hosts with one 100 Gbit/s port each; one uplink of the same speed a leaf: all hosts' rings share it once each way.
  Wiring wiring;
  std::vector<int> leaves;
  for (int i = 0; i < 3; ++i) {
    Device device;
    device.name = i < 2 ? "leaf" + std::to_string(i) : "spine";
    device.kind = DeviceKind::kSwitch;
    device.level = i < 2 ? 0 : 1;
    leaves.push_back(add_device(wiring, device));
  }
  const Link port = network_link(LinkKind::kEthernet, 100, true, Provenance::kSpec);
  Link half = port;
  half.beta /= 2;
  add_link(wiring, leaves[0], leaves[2], half);
  add_link(wiring, leaves[1], leaves[2], port);
  std::vector<int> gpus;
  for (int h = 0; h < 4; ++h) {
    const int host = host_of(wiring, h);
    gpus.push_back(gpu(wiring, 0, h));
    add_link(wiring, host, gpus.back(), pcie_link(5, 16, Provenance::kSpec));
    add_link(wiring, host, leaves[static_cast<std::size_t>(h / 2)], port);
  }
  const GroupBandwidth all = ring_bandwidth(wiring, gpus);
  EXPECT_DOUBLE_EQ(all.bus, port.beta / 2);
  EXPECT_EQ(wiring.links[static_cast<std::size_t>(all.bottleneck)].from, leaves[0]);
  EXPECT_DOUBLE_EQ(ring_bandwidth(wiring, std::vector<int>{gpus[0], gpus[1]}).bus, port.beta);
  EXPECT_DOUBLE_EQ(ring_bandwidth(wiring, std::vector<int>{gpus[2], gpus[3]}).bus, port.beta);
  // The middle of all four is what the narrow leaf sends.
  EXPECT_DOUBLE_EQ(bisection(wiring, gpus), half.beta);
  // Two rings that both cross the leaves share their uplinks; two that stay below don't.
  const std::vector<std::vector<int>> across{{gpus[0], gpus[2]}, {gpus[1], gpus[3]}};
  const std::vector<std::vector<int>> below{{gpus[0], gpus[1]}, {gpus[2], gpus[3]}};
  EXPECT_EQ(shared_links(wiring, across).size(), 4U);  // two uplinks, both ways
  EXPECT_TRUE(shared_links(wiring, below).empty());
}

TEST(GroupBandwidth, BisectionOfTheCubeMeshLiesBetweenItsQuads) {
  // 2 + 2 + 1 + 1 links lead from quad to quad, and the PCIe of the four GPUs of one; every other half cuts 10 links or more.
  const Wiring wiring = dgx1();
  const double lane = nvlink_link(2, 1, Provenance::kSpec).beta;
  const double pcie = pcie_link(3, 16, Provenance::kSpec).beta;
  EXPECT_NEAR(bisection(wiring, first_gpus(wiring, 8)), 6 * lane + 4 * pcie, 1e3);
}

TEST(GroupBandwidth, DevicesWithoutLinksAreRefusedByName) {
  Wiring wiring;
  (void)host_of(wiring, 0);
  const std::vector<int> gpus{gpu(wiring, 0, 0), gpu(wiring, 1, 0)};
  try {
    (void)ring_bandwidth(wiring, gpus);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(error.sentence().find("GPU0 and GPU1"), std::string::npos);
  }
}

TEST(GroupBandwidth, HostsApartKeepTheirOwnLinks) {
  const Wiring wiring = switched(3, 3, 12, false, 4, 2, 200);
  const std::vector<Wiring> hosts = hosts_apart(wiring);
  ASSERT_EQ(hosts.size(), 3U);
  for (const Wiring& host : hosts) {
    EXPECT_EQ(devices_of(host, DeviceKind::kGpu).size(), 8U);
    EXPECT_TRUE(devices_of(host, DeviceKind::kSwitch).empty());
    EXPECT_DOUBLE_EQ(ring_bandwidth(host, first_gpus(host, 8)).bus, ring_bandwidth(wiring, first_gpus(wiring, 8)).bus);
  }
  EXPECT_EQ(hosts[0].links.size() + hosts[1].links.size() + hosts[2].links.size() + 2 * 2 * 3, wiring.links.size());  // two ports a host, both ways
}

TEST(TreeBandwidth, FiveGpusOfTheCubeMeshHaveNoRingButAChain) {
  const Wiring wiring = dgx1();
  const std::vector<int> gpus = first_gpus(wiring, 5);
  EXPECT_EQ(group_bandwidth(wiring, gpus, GroupCollective::kAllReduce).algorithm, GroupAlgorithm::kTree);
  EXPECT_EQ(group_bandwidth(wiring, gpus, GroupCollective::kAllGather).algorithm, GroupAlgorithm::kRing);
  // Where rings are, they are better.
  for (int count : {2, 3, 4, 6, 7, 8}) EXPECT_EQ(group_bandwidth(wiring, first_gpus(wiring, count), GroupCollective::kAllReduce).algorithm, GroupAlgorithm::kRing) << count;
}

TEST(TreeBandwidth, ClosedForms) {
  // Over an NVSwitch a GPU within the chain sends all data up and all down: half its bandwidth.
  const Wiring one = switched(1, 3, 12, false, 4, 0, 0);
  const double port = nvlink_link(3, 12, Provenance::kSpec).beta;
  EXPECT_NEAR(tree_bandwidth(one, first_gpus(one, 8)).bus, port * 7 / 8, 1);
  // Between two hosts each sends a half up and a half down: the data once. From four on busiest hosts send it twice. NCCL takes 92 % of it.
  const double nic = network_link(LinkKind::kInfiniband, 100, true, Provenance::kSpec).beta;
  for (const auto& [hosts, times] : {std::pair{2, 1.0}, std::pair{3, 1.5}, std::pair{4, 2.0}, std::pair{7, 2.0}, std::pair{16, 2.0}}) {
    const Wiring wiring = switched(hosts, 3, 12, false, 4, 1, 100);
    const double n = 8.0 * hosts;
    EXPECT_NEAR(tree_bandwidth(wiring, first_gpus(wiring, 8 * hosts)).bus, 0.92 * nic / times * 2 * (n - 1) / n, 1) << hosts;
  }
}

TEST(TreeBandwidth, UplinksCarryTheEdgesThatCrossThem) {
  // Hosts 0 and 1 under one leaf, 2 and 3 under the other. 1 hangs on 2 and 2 on 0; in the mirror image 2 on 1 and 1 on 3: four halves cross each way.
  const Wiring wiring = read_cluster("[[host]]\ntemplate = \"workstation-25gbe\"\ncount = 4\n[network]\nlink = \"25 GbE\"\n[[level]]\nhosts = 2\noversubscription = 4\n[[level]]\n", "c.toml").wiring;
  std::vector<int> gpus;
  for (int host = 0; host < 4; ++host) gpus.push_back(devices_of(wiring, DeviceKind::kGpu, host).front());
  const double uplink = 2 * network_link(LinkKind::kEthernet, 25, false, Provenance::kSpec).beta / 4;
  const GroupBandwidth tree = tree_bandwidth(wiring, gpus);
  EXPECT_NEAR(tree.bus, 0.92 * uplink / 2 * 1.5, 1);
  EXPECT_TRUE(tree.why.starts_with("uplinks of leaf")) << tree.why;
  // A ring crosses each uplink once.
  EXPECT_NEAR(ring_bandwidth(wiring, gpus).bus, uplink, 1);
}

TEST(TreeBandwidth, TwoTreesSpanAllHostsAndShareTheWork) {
  for (int hosts = 2; hosts <= 300; ++hosts) {
    const auto trees = double_binary_tree(hosts);
    for (const auto& tree : trees) {
      int roots = 0;
      for (int host = 0; host < hosts; ++host) {
        const TreePlace& place = tree[static_cast<std::size_t>(host)];
        roots += place.up == -1 ? 1 : 0;
        EXPECT_LE(place.down.size(), 2U);
        int depth = 0;
        for (int at = host; at != -1; at = tree[static_cast<std::size_t>(at)].up) ASSERT_LE(++depth, 10) << hosts;  // log2(300) + 1
        for (int child : place.down) EXPECT_EQ(tree[static_cast<std::size_t>(child)].up, host);
      }
      EXPECT_EQ(roots, 1) << hosts;
    }
    for (int host = 0; host < hosts && hosts % 2 == 0 && hosts > 2; ++host) {
      const auto at = static_cast<std::size_t>(host);
      EXPECT_TRUE(trees[0][at].down.empty() || trees[1][at].down.empty()) << hosts << " " << host;
    }
    EXPECT_LE(busiest_halves(trees), 4) << hosts;
  }
}

TEST(NvlinkRings, ChainsUseEachLinkOnceBothWays) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const auto size = 2 + random() % 7;
    std::vector<std::vector<int>> lanes(size, std::vector<int>(size, 0));
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t j = 0; j < i; ++j) lanes[i][j] = lanes[j][i] = static_cast<int>(random() % 3);
    }
    auto left = lanes;
    for (const auto& chain : nvlink_chains(lanes)) {
      auto sorted = chain;
      std::sort(sorted.begin(), sorted.end());
      std::vector<int> all(size);
      std::iota(all.begin(), all.end(), 0);
      ASSERT_EQ(sorted, all) << "seed " << seed;
      for (std::size_t i = 0; i + 1 < chain.size(); ++i) {
        const auto a = static_cast<std::size_t>(chain[i]), b = static_cast<std::size_t>(chain[i + 1]);
        ASSERT_GE(std::min(--left[a][b], --left[b][a]), 0) << "seed " << seed;
      }
    }
  }
  // A path has its own chain, and no ring; the star of three has neither.
  EXPECT_EQ(nvlink_chains({{0, 2, 0}, {2, 0, 2}, {0, 2, 0}}).size(), 2U);
  EXPECT_TRUE(nvlink_chains({{0, 1, 1, 1}, {1, 0, 0, 0}, {1, 0, 0, 0}, {1, 0, 0, 0}}).empty());
}

TEST(NvlinkRings, UseNoLinkTwiceAndVisitAll) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const int size = 2 + static_cast<int>(random() % 9);
    std::vector<std::vector<int>> lanes(static_cast<std::size_t>(size), std::vector<int>(static_cast<std::size_t>(size), 0));
    for (int i = 0; i < size; ++i) {
      for (int j = 0; j < size; ++j) lanes[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] = i == j ? 0 : static_cast<int>(random() % 3);
    }
    auto left = lanes;
    for (const auto& ring : nvlink_rings(lanes)) {
      auto sorted = ring;
      std::sort(sorted.begin(), sorted.end());
      std::vector<int> all(static_cast<std::size_t>(size));
      std::iota(all.begin(), all.end(), 0);
      ASSERT_EQ(sorted, all) << "seed " << seed;
      for (std::size_t i = 0; i < ring.size(); ++i) {
        ASSERT_GE(--left[static_cast<std::size_t>(ring[i])][static_cast<std::size_t>(ring[(i + 1) % ring.size()])], 0) << "seed " << seed;
      }
    }
  }
}

TEST(NvlinkRings, CompleteGraphsGiveOneRingForEachLinkOfAGpu) {
  // n GPUs, all joined by one link each way: n - 1 directed rings, but for 4 and 6, where there is no such decomposition (Bermond and Faber).
  for (int size : {2, 3, 5, 7, 8}) {
    std::vector<std::vector<int>> lanes(static_cast<std::size_t>(size), std::vector<int>(static_cast<std::size_t>(size), 1));
    for (int i = 0; i < size; ++i) lanes[static_cast<std::size_t>(i)][static_cast<std::size_t>(i)] = 0;
    const auto rings = nvlink_rings(lanes).size();
    EXPECT_GE(rings, static_cast<std::size_t>(size % 2 == 1 || size == 2 ? size - 1 : size - 2)) << size;
    EXPECT_LE(rings, static_cast<std::size_t>(size - 1));
  }
}

TEST(NvlinkRings, OneGpuThatCantBePassedGivesNone) {
  // 0 - 1 - 2: 1 is in the middle, no way round.
  EXPECT_TRUE(nvlink_rings({{0, 2, 0}, {2, 0, 2}, {0, 2, 0}}).empty());
}

}  // namespace
}  // namespace wirewise
