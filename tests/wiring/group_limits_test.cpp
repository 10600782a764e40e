// What limits a group is the link that is named, with its own provenance; what leaves a host for the network goes by all ways that are as near.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "wiring/placement_wirings.h"
#include "wirewise/base/error.h"
#include "wirewise/wiring/cluster_file.h"
#include "wirewise/wiring/group.h"
#include "wirewise/wiring/group_time.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/network_ring.h"
#include "wirewise/wiring/path.h"
#include "wirewise/wiring/placement.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {
namespace {

using placement_test::add;
using placement_test::link;

std::vector<int> gpus_of(const Wiring& wiring) { return devices_of(wiring, DeviceKind::kGpu); }

Wiring shipped(const char* name) { return read_shipped(name).value().wiring; }

Wiring cluster(const std::string& text) { return read_cluster(text, "c.toml").wiring; }

const Link& bottleneck(const Wiring& wiring, const GroupBandwidth& found) { return wiring.links.at(static_cast<std::size_t>(found.bottleneck)); }

TEST(GroupLimits, TheFigureIsAsCertainAsTheLinkThatLimits) {
  Wiring wiring = shipped("dgx-a100");
  const std::vector<int> gpus = gpus_of(wiring);
  EXPECT_EQ(ring_bandwidth(wiring, gpus).provenance, Provenance::kSpec);
  EXPECT_EQ(tree_bandwidth(wiring, gpus).provenance, Provenance::kSpec);
  for (Link& one : wiring.links) {  // one GPU's NVLinks were measured, and are slower
    if (one.from != gpus[5] || one.kind != LinkKind::kNvlink) continue;
    one.beta = 100e9;
    one.provenance = Provenance::kMeasured;
  }
  for (const GroupBandwidth& found : {ring_bandwidth(wiring, gpus), tree_bandwidth(wiring, gpus)}) {
    EXPECT_EQ(found.provenance, Provenance::kMeasured);
    EXPECT_EQ(bottleneck(wiring, found).from, gpus[5]);
  }
  EXPECT_DOUBLE_EQ(ring_bandwidth(wiring, gpus).bus, 100e9);
  const Wiring measured = cluster("[[host]]\ntemplate = \"workstation-25gbe\"\ncount = 2\n[[measured]]\nclass = \"25 GbE\"\nbeta_GBps = 1\n");
  EXPECT_EQ(ring_bandwidth(measured, gpus_of(measured)).provenance, Provenance::kMeasured);
}

TEST(GroupLimits, WhatLimitsInsideIsNotCalledTheNetwork) {
  // 18 NVLinks of 5 GB/s against eight ports of 400 Gbit/s.
  const Wiring slow = cluster("[[host]]\ntemplate = \"hgx-h100\"\ncount = 2\n[[measured]]\nclass = \"NVLink 4\"\nbeta_GBps = 5\n");
  const GroupBandwidth inside = ring_bandwidth(slow, gpus_of(slow));
  EXPECT_NEAR(inside.bus, 90e9, 1);
  EXPECT_EQ(inside.why, "18 NVLinks a GPU to the NVSwitch");
  // Uplinks that are as wide as the ports below them: the ports limit just as much, and are what a person has more of.
  const Wiring even = placement_test::leaf_spine({2, 2}, 50, 1).wiring;
  EXPECT_EQ(ring_bandwidth(even, gpus_of(even)).why, "1 network port a host");
}

TEST(GroupLimits, NvswitchesOfAHostAddUp) {
  Wiring wiring;
  const int host = add(wiring, "host", DeviceKind::kHost, 0);
  std::vector<int> middles;
  for (int i = 0; i < 4; ++i) {
    middles.push_back(add(wiring, "nvswitch" + std::to_string(i), DeviceKind::kNvSwitch, 0));
    wiring.devices.back().nvls = true;
  }
  for (int i = 0; i < 8; ++i) {
    const int gpu = add(wiring, "GPU" + std::to_string(i), DeviceKind::kGpu, 0);
    add_link(wiring, host, gpu, pcie_link(5, 16, Provenance::kSpec));
    for (std::size_t m = 0; m < middles.size(); ++m) add_link(wiring, gpu, middles[m], nvlink_link(4, m < 2 ? 5 : 4, Provenance::kSpec));
  }
  const Wiring one = shipped("hgx-h100");  // 18 links to one
  for (const auto& bandwidth : {ring_bandwidth, tree_bandwidth}) EXPECT_NEAR(bandwidth(wiring, gpus_of(wiring)).bus, bandwidth(one, gpus_of(one)).bus, 1);
  EXPECT_NEAR(in_switch_bandwidth(wiring, gpus_of(wiring)).value().bus, in_switch_bandwidth(one, gpus_of(one)).value().bus, 1);
  EXPECT_EQ(ring_bandwidth(wiring, gpus_of(wiring)).why, "18 NVLinks a GPU to the NVSwitches");
  wiring.devices[static_cast<std::size_t>(middles[3])].nvls = false;
  EXPECT_FALSE(in_switch_bandwidth(wiring, gpus_of(wiring)).has_value());
}

TEST(GroupLimits, ARingGoesRoundTheTreeOfPcie) {
  // The fastest peer of GPU0 is on the other socket, whose fastest is on its own: a ring in that order would cross twice.
  Wiring wiring;
  const int host = add(wiring, "host", DeviceKind::kHost, 0);
  const int near = add(wiring, "numa0", DeviceKind::kNumaNode, 0), far = add(wiring, "numa1", DeviceKind::kNumaNode, 0);
  for (const int node : {near, far}) add_link(wiring, host, node, link(LinkKind::kSockets, 50));
  int number = 0;
  for (const auto& [node, gbyte] : {std::pair{near, 100.0}, std::pair{far, 100.0}, std::pair{near, 40.0}, std::pair{far, 30.0}})
    add_link(wiring, node, add(wiring, "GPU" + std::to_string(number++), DeviceKind::kGpu, 0), link(LinkKind::kPcie, gbyte));
  EXPECT_DOUBLE_EQ(ring_bandwidth(wiring, gpus_of(wiring)).bus, 30e9);
}

/// What a host's devices get into the network, by the names of the ports.
std::map<std::string, double> exits(const Wiring& wiring, int host) {
  std::map<std::string, double> named;
  const auto found = exits_of(wiring, {{host, devices_of(wiring, DeviceKind::kGpu, host)}});
  for (const Exit& exit : found.at(host)) named[wiring.devices[static_cast<std::size_t>(exit.device)].name] = exit.bandwidth / 1e9;
  return named;
}

/// GPUs and ports on one PCIe switch, all links to it of `pcie` GB/s.
Wiring one_switch(int gpus, const std::vector<double>& ports, double pcie) {
  Wiring wiring;
  const int leaf = add(wiring, "leaf", DeviceKind::kSwitch);
  const int host = add(wiring, "host", DeviceKind::kHost, 0), middle = add(wiring, "switch0", DeviceKind::kPcieSwitch, 0);
  add_link(wiring, host, middle, link(LinkKind::kPcie, pcie));
  for (int i = 0; i < gpus; ++i) add_link(wiring, middle, add(wiring, "GPU" + std::to_string(i), DeviceKind::kGpu, 0), link(LinkKind::kPcie, pcie));
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const int nic = add(wiring, "nic" + std::to_string(i), DeviceKind::kNic, 0);
    add_link(wiring, middle, nic, link(LinkKind::kPcie, pcie));
    add_link(wiring, nic, leaf, link(LinkKind::kInfiniband, ports[i]));
  }
  return wiring;
}

TEST(GroupLimits, PortsShareTheWayOfTheGpuThatUsesThem) {
  using Exits = std::map<std::string, double>;
  EXPECT_EQ(exits(one_switch(1, {20, 20}, 24), 0), (Exits{{"nic0", 12}, {"nic1", 12}}));  // both over one GPU's link
  EXPECT_EQ(exits(one_switch(2, {20, 20}, 24), 0), (Exits{{"nic0", 20}, {"nic1", 20}}));  // each over a GPU's own
  EXPECT_EQ(exits(one_switch(1, {20, 10}, 24), 0), (Exits{{"nic0", 12}, {"nic1", 10}}));
  EXPECT_EQ(exits(one_switch(1, {20, 9}, 24), 0), (Exits{{"nic0", 20}}));  // for logging in: less than half as fast
}

TEST(GroupLimits, OfUplinksTheSlowestIsNamed) {
  Wiring wiring;
  const int leaf = add(wiring, "leaf", DeviceKind::kSwitch), spine = add(wiring, "spine", DeviceKind::kSwitch, -1, 1);
  for (const double gbyte : {40.0, 10.0, 20.0}) add_link(wiring, leaf, spine, link(LinkKind::kInfiniband, gbyte));
  const std::vector<SwitchLevel> levels = switch_levels(wiring);
  ASSERT_EQ(levels.size(), 1U);
  const Uplinks& up = levels[0].up.at(static_cast<std::size_t>(levels[0].island[static_cast<std::size_t>(leaf)]));
  EXPECT_DOUBLE_EQ(up.capacity, 70e9);
  EXPECT_DOUBLE_EQ(wiring.links[static_cast<std::size_t>(up.slowest)].beta, 10e9);
}

TEST(GroupLimits, AWaitOverPcieIsNotCalledNvlink) {
  Wiring wiring;
  const int host = add(wiring, "host", DeviceKind::kHost, 0);
  for (int i = 0; i < 4; ++i) add_link(wiring, host, add(wiring, "GPU" + std::to_string(i), DeviceKind::kGpu, 0), link(LinkKind::kPcie, 10));
  const std::vector<int> gpus = gpus_of(wiring);
  add_link(wiring, gpus[0], gpus[1], link(LinkKind::kNvlink, 50));
  const RankTraffic pairs{4, {{"tp", TrafficPattern::kRing, 10e9, {{0, 1}, {2, 3}}}}};
  const PhaseTime time = communication_time(wiring, pairs, gpus).phases.at(0);
  EXPECT_DOUBLE_EQ(time.seconds, 1);
  EXPECT_EQ(time.where, "pcie of GPU2 in host");
  EXPECT_EQ(wiring.links.at(static_cast<std::size_t>(time.bottleneck)).kind, LinkKind::kPcie);
}

TEST(GroupTimes, StepsBetweenHostsAreThoseOfTheRingAndOfTheTreesDepth) {
  // Two hosts of two GPUs: of the 6 steps of an all-reduce 4 can cross, twice round both cables.
  const Wiring two = cluster("[[host]]\ntemplate = \"4x3090\"\ncount = 2\n");
  std::vector<int> some;
  for (int host = 0; host < 2; ++host) {
    const std::vector<int> own = devices_of(two, DeviceKind::kGpu, host);
    some.insert(some.end(), {own[0], own[1]});
  }
  const std::string from = group_time(two, some, GroupCollective::kAllReduce, 1, GroupAlgorithm::kRing).from;
  EXPECT_TRUE(from.starts_with("2 steps of ") && from.find(" and 4 steps of ") != std::string::npos) << from;
  // NCCL's binary trees of 3 and of 5 hosts are 2 and 3 hosts deep: up and down again.
  for (const auto& [hosts, steps] : {std::pair{2, 2}, std::pair{3, 4}, std::pair{4, 4}, std::pair{5, 6}}) {
    const Wiring wiring = cluster("[[host]]\ntemplate = \"4x3090\"\ncount = " + std::to_string(hosts) + "\n");
    std::vector<int> firsts;
    for (int host = 0; host < hosts; ++host) firsts.push_back(devices_of(wiring, DeviceKind::kGpu, host).front());
    const std::string tree = group_time(wiring, firsts, GroupCollective::kAllReduce, 1, GroupAlgorithm::kTree).from;
    EXPECT_TRUE(tree.starts_with(std::to_string(steps) + " steps of ")) << hosts << ": " << tree;
  }
}

TEST(GroupTimes, CurvesAreOfOneHost) {
  // Two hosts of four GPUs whose NVLinks limit them, as on one host of eight; but nobody measured that across a network.
  Wiring wiring;
  const int leaf = add(wiring, "leaf", DeviceKind::kSwitch);
  for (int h = 0; h < 2; ++h) {
    const int host = add(wiring, "host" + std::to_string(h), DeviceKind::kHost, h), middle = add(wiring, "nvswitch0", DeviceKind::kNvSwitch, h);
    for (int i = 0; i < 4; ++i) {
      const int gpu = add(wiring, "GPU" + std::to_string(i), DeviceKind::kGpu, h);
      add_link(wiring, host, gpu, link(LinkKind::kPcie, 2000));
      add_link(wiring, gpu, middle, nvlink_link(3, 12, Provenance::kSpec));
    }
    add_link(wiring, host, leaf, link(LinkKind::kInfiniband, 1000));
  }
  const std::vector<int> all = gpus_of(wiring), four(all.begin(), all.begin() + 4);
  ASSERT_EQ(bottleneck(wiring, group_bandwidth(wiring, all, GroupCollective::kAllReduce)).kind, LinkKind::kNvlink);
  EXPECT_TRUE(group_time(wiring, four, GroupCollective::kAllReduce, 1 << 20).from.starts_with("as measured"));
  EXPECT_FALSE(group_time(wiring, all, GroupCollective::kAllReduce, 1 << 20).from.starts_with("as measured"));
}

TEST(GroupTimes, ATimeIsMeasuredWhereAllItsLinksAre) {
  Wiring wiring;
  const int host = add(wiring, "host", DeviceKind::kHost, 0);
  for (int i = 0; i < 2; ++i) add_link(wiring, host, add(wiring, "GPU" + std::to_string(i), DeviceKind::kGpu, 0), pcie_link(4, 16, Provenance::kSpec));
  const auto at_least = [&] { return group_time(wiring, gpus_of(wiring), GroupCollective::kAllReduce, 8).at_least; };
  EXPECT_TRUE(at_least());
  for (Link& one : wiring.links) {
    one.provenance = Provenance::kMeasured;
    EXPECT_TRUE(at_least()) << "one of two links of a step was measured";
    one.provenance = Provenance::kSpec;
  }
  for (Link& one : wiring.links) one.provenance = Provenance::kMeasured;
  EXPECT_FALSE(at_least());
}

TEST(LatencyOf, AnUnknownOneIsThatOfTheNearestGenerationAndAMeasuredOneStays) {
  Link six = pcie_link(6, 16, Provenance::kSpec);
  ASSERT_EQ(six.alpha, 0);
  EXPECT_DOUBLE_EQ(latency_of(six).alpha, pcie_link(5, 16, Provenance::kSpec).alpha);
  EXPECT_NE(latency_of(six).as.find("PCIe 6"), std::string::npos) << latency_of(six).as;
  EXPECT_NE(latency_of(six).as.find("PCIe 5"), std::string::npos) << latency_of(six).as;
  six.provenance = Provenance::kMeasured;  // which is 0, as measured
  EXPECT_EQ(latency_of(six).alpha, 0);
  EXPECT_EQ(latency_of(six).as, "");
  const Link xgmi = make_link(link_class("xGMI, MI300"), 1, Provenance::kSpec);
  EXPECT_DOUBLE_EQ(latency_of(xgmi).alpha, nvlink_link(4, 1, Provenance::kSpec).alpha);
  EXPECT_NE(latency_of(xgmi).as.find("as NVLink"), std::string::npos) << latency_of(xgmi).as;
  EXPECT_DOUBLE_EQ(latency_of(pcie_link(4, 16, Provenance::kSpec)).alpha, pcie_link(4, 16, Provenance::kSpec).alpha);
}

TEST(OneChip, ASwitchWithoutOneAboveIsNone) {
  try {
    (void)cluster("[[host]]\ntemplate = \"box\"\n[[template]]\nname = \"box\"\ngpus = { count = 2, pcie = 4 }\nbridge = [{ switch = [{ pcie = 4, one_chip = true, gpus = [0, 1] }] }]\n");
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_NE(error.sentence().find("no switch above"), std::string::npos) << error.sentence();
  }
}

}  // namespace
}  // namespace wirewise
