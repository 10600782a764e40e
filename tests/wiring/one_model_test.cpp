// topo's figures, what crosses the middle and place's phases are of one model: for every machine that is shipped, alone and in clusters.
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "wirewise/wiring/cluster_file.h"
#include "wirewise/wiring/embedded.h"
#include "wirewise/wiring/group.h"
#include "wirewise/wiring/group_time.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/path.h"
#include "wirewise/wiring/placement.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/relation.h"
#include "wirewise/wiring/write.h"
#include "wiring/placement_wirings.h"

namespace wirewise {
namespace {

using placement_test::add;
using placement_test::link;

bool has(std::string_view text, std::string_view word) { return text.find(word) != std::string_view::npos; }

Wiring cluster(const std::string& machine, int hosts, const std::string& more = "") {
  return read_cluster("[[host]]\ntemplate = \"" + machine + "\"\ncount = " + std::to_string(hosts) + "\n" + more, "c.toml").wiring;
}

std::vector<int> gpus_of(const Wiring& wiring) { return devices_of(wiring, DeviceKind::kGpu); }

double ring_of(const Wiring& wiring) { return ring_bandwidth(wiring, gpus_of(wiring)).bus / 1e9; }

/// Bytes a second of a ring over all GPUs, as placement prices it.
double placed(const Wiring& wiring) {
  const std::vector<int> gpus = gpus_of(wiring);
  TrafficPhase phase{"dp", TrafficPattern::kRing, 1e9, {{}}};
  for (std::size_t i = 0; i < gpus.size(); ++i) phase.groups[0].push_back(static_cast<int>(i));
  return 1 / communication_time(wiring, {static_cast<int>(gpus.size()), {phase}}, gpus).seconds;
}

TEST(OneModel, RingsCostWhatPlacementSaysAndNoMoreThanTheMiddleCarries) {
  int compared = 0;
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.name.starts_with("hosts/")) continue;
    const std::string name(file.name.substr(6, file.name.size() - 11));
    for (const int hosts : {1, 2, 4}) {
      const Wiring wiring = cluster(name, hosts);
      const std::vector<int> gpus = gpus_of(wiring);
      if (gpus.size() < 2) continue;
      SCOPED_TRACE(name + " x " + std::to_string(hosts));
      const double ring = ring_of(wiring), middle = bisection(wiring, gpus) / 1e9;
      EXPECT_NEAR(placed(wiring) / ring, 1, 1e-6);
      // A ring crosses the middle once each way; trees and switches that sum carry the data, not the bus bandwidth, across it.
      EXPECT_LE(ring, middle * (1 + 1e-9));
      const GroupBandwidth best = group_bandwidth(wiring, gpus, GroupCollective::kAllReduce);
      EXPECT_GE(best.bus / 1e9, ring * (1 - 1e-9));
      if (best.algorithm == GroupAlgorithm::kRing) {
        EXPECT_NEAR(best.bus / 1e9 / ring, 1, 1e-9);
      }
      EXPECT_LE(best.bus / 1e9 / bus_factor(GroupCollective::kAllReduce, gpus.size()), middle * (1 + 1e-9));
      ++compared;
    }
  }
  EXPECT_GT(compared, 60);
}

/// A host of sockets with GPUs and, on `nvswitches`, each GPU's NVLinks; figures within a few times each other, so that any link may limit.
Wiring random_host(std::mt19937& random, int nvswitches) {
  const auto gbyte = [&] { return std::uniform_real_distribution<double>(20, 100)(random); };
  Wiring wiring;
  const int host = add(wiring, "host", DeviceKind::kHost, 0);
  std::vector<int> middles;
  for (int i = 0; i < nvswitches; ++i) middles.push_back(add(wiring, "nvswitch" + std::to_string(i), DeviceKind::kNvSwitch, 0));
  std::vector<int> sockets;
  for (int i = 0; i < 2 + static_cast<int>(random() % 2); ++i) {
    sockets.push_back(add(wiring, "numa" + std::to_string(i), DeviceKind::kNumaNode, 0));
    add_link(wiring, host, sockets.back(), link(LinkKind::kSockets, gbyte()));
  }
  for (int i = 0; i < 2 + static_cast<int>(random() % 7); ++i) {
    const int gpu = add(wiring, "GPU" + std::to_string(i), DeviceKind::kGpu, 0);
    add_link(wiring, sockets[random() % sockets.size()], gpu, link(LinkKind::kPcie, gbyte()));
    const double each = gbyte();
    for (const int middle : middles) add_link(wiring, gpu, middle, link(LinkKind::kNvlink, each));
  }
  return wiring;
}

TEST(OneModel, RandomHostsCostInTopoWhatPlacementSays) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const Wiring wiring = random_host(random, static_cast<int>(seed % 3));
    EXPECT_NEAR(placed(wiring) / ring_of(wiring), 1, 1e-6) << "seed " << seed;
  }
}

TEST(OneModel, ARackOfNvswitchesIsUsedAsAHostsAre) {
  const Wiring rack = read_shipped("gb200-nvl72-rack").value().wiring;
  const std::vector<int> gpus = gpus_of(rack);
  ASSERT_EQ(gpus.size(), 72U);
  const double port = nvlink_link(5, 18, Provenance::kSpec).beta;
  EXPECT_NEAR(port, 721.8e9, 1e6);
  EXPECT_NEAR(ring_bandwidth(rack, gpus).bus, port, 1);
  const std::vector<int> tray(gpus.begin(), gpus.begin() + 4);
  EXPECT_NEAR(group_bandwidth(rack, tray, GroupCollective::kAllReduce).bus, port, 1);
  // Switches that sum: NCCL's closed form for all 72.
  const GroupBandwidth all = group_bandwidth(rack, gpus, GroupCollective::kAllReduce);
  EXPECT_EQ(all.algorithm, GroupAlgorithm::kInSwitch);
  EXPECT_NEAR(all.bus, port * 0.74 * 2 * (71.0 / 72) * (71.0 / 72), 1);
  const std::string text = write_groups(rack);
  EXPECT_FALSE(has(text, "C2C")) << text;
  EXPECT_FALSE(has(text, "network port")) << text;
  EXPECT_TRUE(has(text, "all-reduce of 4 GPUs: 721.8 GB/s")) << text;
  // Two racks meet over the network: over 4 ports of 48 GB/s a tray more than a GPU's NVLinks hand on, over one of 12 GB/s less.
  EXPECT_NEAR(ring_of(cluster("gb200-nvl72", 36)), 721.8, 1e-6);
  EXPECT_NEAR(ring_of(cluster("gb200-nvl72", 36, "[network]\nlink = \"InfiniBand EDR\"\nnics = 1\n")), 18 * 12.0, 1e-6);
}

TEST(OneModel, OneNicIsReachedOverTheGpuBesideIt) {
  const std::string one = "[network]\nnics = 1\n";
  EXPECT_NEAR(ring_of(cluster("hgx-h100", 4, one)), 48, 1e-9);
  EXPECT_NEAR(ring_of(cluster("dgx-a100", 4, one)), 24, 1e-9);
  EXPECT_NEAR(ring_of(cluster("dgx-1", 4, one)), 12, 1e-9);
  // A bottleneck that is the sockets is called so: four GPUs on PCIe, one NIC of 50 GB/s.
  const Wiring box = read_cluster("[[host]]\ntemplate = \"box\"\ncount = 2\n[[template]]\nname = \"box\"\nsockets = \"AMD xGMI, Zen 2\"\ngpus = { count = 4, pcie = 5 }\n"
                                  "nics = { count = 1, link = \"InfiniBand NDR\", pcie = 5 }\nnuma = [{ node = 0 }, { node = 1 }]\n"
                                  "bridge = [{ numa = 0, gpus = [0, 1], nics = [0] }, { numa = 1, gpus = [2, 3] }]\n",
                                  "c.toml").wiring;
  const GroupBandwidth found = ring_bandwidth(box, gpus_of(box));
  EXPECT_NEAR(found.bus / 1e9, 16, 1e-9);
  EXPECT_EQ(box.links[static_cast<std::size_t>(found.bottleneck)].kind, LinkKind::kSockets);
  EXPECT_TRUE(has(found.why, "sockets")) << found.why;
}

TEST(OneModel, MeasuredFiguresAreOfOneLink) {
  const auto with = [](const std::string& machine, const std::string& measured) { return cluster(machine, 1, "[[measured]]\nsource = \"a bench\"\n" + measured); };
  const Wiring a100 = with("dgx-a100", "class = \"NVLink 3\"\nbeta_GBps = 21\n");
  EXPECT_NEAR(ring_of(a100), 252, 1e-9);
  EXPECT_EQ(ring_bandwidth(a100, gpus_of(a100)).provenance, Provenance::kMeasured);
  EXPECT_NEAR(ring_of(with("dgx-1", "class = \"NVLink 2\"\nbeta_GBps = 20\n")), 120, 1e-9);
  for (const char* units : {"1", "2"}) {
    const Wiring some = with("dgx-1", "class = \"NVLink 2\"\nbeta_GBps = 20\nunits = " + std::string(units) + "\n");
    const GroupBandwidth found = ring_bandwidth(some, gpus_of(some));
    EXPECT_EQ(found.provenance, Provenance::kMeasured) << units;
    EXPECT_NEAR(found.bus / 1e9, 120, 1e-9) << units;
  }
  // A connection's figure stays one: PCIe as it is, an NVSwitch a GPU.
  EXPECT_NEAR(ring_of(with("dgx-a100", "class = \"NVSwitch 2\"\nbeta_GBps = 230\n")), 230, 1e-9);
}

TEST(OneModel, SwitchesOfOneChipCarryWhatHangsBelowThem) {
  const Wiring two = cluster("dgx-a100", 2);
  EXPECT_NEAR(ring_of(two), 192, 1e-9);
  EXPECT_NEAR(placed(two), 192, 1e-6);
  const int inner = find_device(two, "switch1"), outer = find_device(two, "switch0");
  for (const Link& link : two.links) {
    if (link.from != outer || link.to != inner) continue;
    EXPECT_NEAR(link.beta / 1e9, 48, 1e-9);
  }
  EXPECT_EQ(Relations(two).between(find_device(two, "GPU0"), find_device(two, "NIC0")).pcie, Connection::kPxb);
  // Without evidence they are chips of their own.
  const Wiring unknown = read_cluster("[[host]]\ntemplate = \"box\"\n[[template]]\nname = \"box\"\ngpus = { count = 2, pcie = 4 }\nnics = { count = 2, link = \"InfiniBand HDR\", pcie = 4 }\n"
                                      "bridge = [{ switch = [{ pcie = 4, switch = [{ pcie = 4, gpus = [0, 1] }, { pcie = 4, nics = [0, 1] }] }] }]\n",
                                      "c.toml").wiring;
  for (const Link& link : unknown.links) {
    if (link.kind != LinkKind::kPcie || unknown.devices[static_cast<std::size_t>(link.to)].kind != DeviceKind::kPcieSwitch) continue;
    EXPECT_NEAR(link.beta / 1e9, 24, 1e-9);
  }
}

std::string broadcom(const std::string& ids_above, const std::string& ids_below) {
  const auto pci = [](const std::string& bus, const std::string& pci_class, const std::string& ids) {
    return "<pci busid=\"0000:" + bus + ":00.0\" class=\"" + pci_class + "\" " + ids + " link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">";
  };
  const std::string gpu = " vendor=\"0x10de\" device=\"0x20b0\" subsystem_vendor=\"0x10de\" subsystem_device=\"0x134f\"";
  return "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"143\" modelid=\"49\">" + pci("01", "0x060400", ids_above) + pci("02", "0x060400", ids_below) +
         pci("07", "0x030200", gpu) + "<gpu dev=\"0\" sm=\"80\" rank=\"0\" gdr=\"1\"/></pci>" + pci("0a", "0x030200", gpu) + "<gpu dev=\"1\" sm=\"80\" rank=\"1\" gdr=\"1\"/></pci></pci></pci></cpu></system>";
}

TEST(OneModel, BroadcomsTwoLevelSwitchesAreKnownByTheirNumbers) {
  const auto ids = [](const char* device, const char* vendor, const char* sub) {
    return std::string("vendor=\"0x1000\" device=\"") + device + "\" subsystem_vendor=\"" + vendor + "\" subsystem_device=\"" + sub + "\"";
  };
  const auto between = [](const std::string& text) {
    const Wiring wiring = read_wiring(text, "topo.xml").wiring;
    for (const Link& link : wiring.links) {
      if (wiring.devices[static_cast<std::size_t>(link.from)].kind == DeviceKind::kPcieSwitch && wiring.devices[static_cast<std::size_t>(link.to)].kind == DeviceKind::kPcieSwitch) return link.beta / 1e9;
    }
    return 0.0;
  };
  EXPECT_NEAR(between(broadcom(ids("0xc010", "0x1000", "0xa096"), ids("0xc010", "0x1000", "0xa096"))), 48, 1e-9);
  EXPECT_NEAR(between(broadcom(ids("0xc030", "0x1000", "0x0100"), ids("0xc030", "0x1000", "0x1100"))), 48, 1e-9);
  EXPECT_NEAR(between(broadcom(ids("0xc030", "0x1000", "0x0100"), ids("0xc030", "0x1000", "0x0100"))), 24, 1e-9);  // two chips
  EXPECT_NEAR(between(broadcom(ids("0xc010", "0x15d9", "0xa096"), ids("0xc010", "0x15d9", "0xa096"))), 24, 1e-9);
  EXPECT_NEAR(between(broadcom("", "")), 24, 1e-9);
}

TEST(OneModel, AnUnknownLatencyIsSaidAndNotTakenFor0) {
  const Bytes sizes[] = {1 << 20};
  const std::string rack = write_groups(read_shipped("gb200-nvl72-rack").value().wiring, sizes);
  EXPECT_FALSE(has(rack, "of 0 us")) << rack;
  // xGMI between sockets has no published latency: it counts as that of its kind which has, and says so.
  const Wiring box = read_cluster("[[host]]\ntemplate = \"box\"\n[[template]]\nname = \"box\"\nsockets = \"AMD xGMI, Zen 2\"\ngpus = { count = 2, pcie = 4 }\n"
                                  "numa = [{ node = 0 }, { node = 1 }]\nbridge = [{ numa = 0, gpus = [0] }, { numa = 1, gpus = [1] }]\n",
                                  "c.toml").wiring;
  const std::string text = write_groups(box, sizes);
  EXPECT_TRUE(has(text, "latency assumed for AMD xGMI, Zen 2 as Intel QPI")) << text;
  EXPECT_TRUE(has(text, "at least")) << text;
  const GroupTime found = group_time(box, gpus_of(box), GroupCollective::kAllReduce, 8);
  EXPECT_EQ(found.provenance, Provenance::kAssumed);
  EXPECT_TRUE(found.at_least);
  EXPECT_FALSE(has(write_groups(cluster("dgx-a100", 1), sizes), "at least"));
}

}  // namespace
}  // namespace wirewise
