// Paths, links, relations, rings and placements' prices on wirings so small that a person works out the figure.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "wiring/placement_wirings.h"
#include "wirewise/wiring/group.h"
#include "wirewise/wiring/group_time.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/link_fit.h"
#include "wirewise/wiring/max_flow.h"
#include "wirewise/wiring/path.h"
#include "wirewise/wiring/placement.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/relation.h"

namespace wirewise {
namespace {

using namespace placement_test;

Link of(LinkKind kind, double gbyte, Provenance provenance, double microseconds = 0) {
  Link made = link(kind, gbyte);
  made.provenance = provenance;
  made.alpha = microseconds * 1e-6;
  return made;
}

RankTraffic ring_of(int ranks, double bytes, int groups = 1) {
  RankTraffic traffic;
  traffic.ranks = ranks;
  TrafficPhase phase{"dp", TrafficPattern::kRing, bytes, std::vector<std::vector<int>>(static_cast<std::size_t>(groups))};
  for (int r = 0; r < ranks; ++r) phase.groups[static_cast<std::size_t>(r % groups)].push_back(r);
  traffic.phases.push_back(std::move(phase));
  return traffic;
}

TEST(ClosedForms, APathSumsLatenciesAndHasItsSlowestLinkAndItsLeastCertainFigure) {
  Wiring wiring;
  const int host = add(wiring, "host", DeviceKind::kHost, 0);
  const int bridge = add(wiring, "bridge", DeviceKind::kHostBridge, 0);
  const int a = add(wiring, "GPU0", DeviceKind::kGpu, 0), b = add(wiring, "GPU1", DeviceKind::kGpu, 0);
  add_link(wiring, host, bridge, of(LinkKind::kPcie, 100, Provenance::kSpec));
  add_link(wiring, bridge, a, of(LinkKind::kPcie, 20, Provenance::kMeasured, 1));
  add_link(wiring, bridge, b, of(LinkKind::kPcie, 10, Provenance::kDriver, 2));
  const Path path = Paths(wiring).find(a, b).value();
  EXPECT_DOUBLE_EQ(path.bandwidth, 10e9);
  EXPECT_EQ(wiring.links[static_cast<std::size_t>(path.bottleneck)].to, b);
  EXPECT_NEAR(path.latency, 3e-6, 1e-12);
  EXPECT_EQ(path.provenance, Provenance::kDriver);
  EXPECT_EQ(Paths(wiring).find(b, a)->provenance, Provenance::kDriver);
  const Provenance rising[] = {Provenance::kAssumed, Provenance::kSpec, Provenance::kDriver, Provenance::kMeasured};
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) EXPECT_EQ(less_certain(rising[i], rising[j]), rising[std::min(i, j)]);
  }
}

TEST(ClosedForms, PathsGoRoundGpusAndTakeTheFastestWayNotTheShortest) {
  Wiring wiring;
  const int host = add(wiring, "host", DeviceKind::kHost, 0);
  std::vector<int> gpus;
  for (int i = 0; i < 3; ++i) {
    gpus.push_back(add(wiring, "GPU" + std::to_string(i), DeviceKind::kGpu, 0));
    add_link(wiring, host, gpus.back(), of(LinkKind::kPcie, 10, Provenance::kSpec));
  }
  add_link(wiring, gpus[0], gpus[1], of(LinkKind::kNvlink, 100, Provenance::kSpec));
  add_link(wiring, gpus[1], gpus[2], of(LinkKind::kNvlink, 100, Provenance::kSpec));
  EXPECT_DOUBLE_EQ(Paths(wiring).find(gpus[0], gpus[2])->bandwidth, 10e9);  // GPU1 passes nothing on
  EXPECT_DOUBLE_EQ(Paths(wiring).find(gpus[0], gpus[1])->bandwidth, 100e9);
  add_link(wiring, gpus[0], gpus[2], of(LinkKind::kNvlink, 1, Provenance::kSpec));
  EXPECT_EQ(Paths(wiring).find(gpus[0], gpus[2])->links.size(), 2U);  // 10 GB/s by the host, not 1 GB/s at once
}

TEST(ClosedForms, LinksBetweenTwoClassesAreScaledFromTheNearerInRatio) {
  const LinkClass& ten = link_class("10 GbE");
  const Link twelve = network_link(LinkKind::kEthernet, 12.5, false, Provenance::kDriver);
  EXPECT_DOUBLE_EQ(twelve.spec, 1.25 * ten.spec);
  EXPECT_DOUBLE_EQ(twelve.beta, 1.25 * ten.usable);
  // 3 Gbit/s is 3 times 1 and 3.3 times below 10; on a line 1 is nearer too, but 60 is 1.5 times 40 and 1.67 below 100: never 100's.
  EXPECT_NEAR(network_link(LinkKind::kEthernet, 60, false, Provenance::kDriver).beta, 1.5 * link_class("40 GbE").usable, 1);
  EXPECT_NE(network_link(LinkKind::kEthernet, 4, false, Provenance::kDriver).source.find("10 GbE"), std::string::npos);  // 2.5 times, not 4
  // A class's latency is from device to device, half of it at either end; NVLinks are one link.
  const LinkClass& hdr = link_class("InfiniBand HDR");
  ASSERT_GT(hdr.latency, 0);
  EXPECT_DOUBLE_EQ(2 * make_link(hdr, 1, Provenance::kSpec).alpha, hdr.latency);
  EXPECT_DOUBLE_EQ(make_link(link_class("NVLink 3"), 1, Provenance::kSpec).alpha, link_class("NVLink 3").latency);
  EXPECT_DOUBLE_EQ(pcie_link(1, 16, Provenance::kSpec).spec, 4e9);
  EXPECT_DOUBLE_EQ(pcie_link(2, 8, Provenance::kSpec).spec, 4e9);
}

TEST(ClosedForms, APairHasAsManyNvlinksAsItsPoorerEnd) {
  Wiring wiring;
  const int host = add(wiring, "host", DeviceKind::kHost, 0);
  const int nvswitch = add(wiring, "nvswitch0", DeviceKind::kNvSwitch, 0);
  const int a = add(wiring, "GPU0", DeviceKind::kGpu, 0), b = add(wiring, "GPU1", DeviceKind::kGpu, 0);
  for (const int device : {a, b}) add_link(wiring, host, device, pcie_link(4, 16, Provenance::kSpec));
  add_link(wiring, a, nvswitch, nvlink_link(4, 18, Provenance::kSpec));
  add_link(wiring, b, nvswitch, nvlink_link(4, 16, Provenance::kSpec));
  EXPECT_EQ(name_of(Relations(wiring).between(a, b)), "NV16");
  EXPECT_EQ(name_of(Relations(wiring).between(b, a)), "NV16");
}

TEST(ClosedForms, BusFactors) {
  EXPECT_DOUBLE_EQ(bus_factor(GroupCollective::kAllReduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor(GroupCollective::kAllGather, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(GroupCollective::kAllReduce, 1), 0);
}

TEST(ClosedForms, SwitchesThatSumNeedFiveGpus) {
  Wiring wiring;
  const int host = add(wiring, "host", DeviceKind::kHost, 0);
  const int nvswitch = add(wiring, "nvswitch0", DeviceKind::kNvSwitch, 0);
  wiring.devices.back().nvls = true;
  std::vector<int> gpus;
  for (int i = 0; i < 8; ++i) {
    gpus.push_back(add(wiring, "GPU" + std::to_string(i), DeviceKind::kGpu, 0));
    add_link(wiring, host, gpus.back(), pcie_link(5, 16, Provenance::kSpec));
    add_link(wiring, gpus.back(), nvswitch, nvlink_link(4, 18, Provenance::kSpec));
  }
  EXPECT_FALSE(in_switch_bandwidth(wiring, std::vector<int>(gpus.begin(), gpus.begin() + 4)));
  EXPECT_TRUE(in_switch_bandwidth(wiring, std::vector<int>(gpus.begin(), gpus.begin() + 5)));
}

/// `hosts` on two leaves by turns, each with a GPU and `ports` ports of 10 GB/s; each leaf has `uplinks` links of 10 GB/s to as many spines.
Wiring two_leaves(int hosts, int ports, int uplinks, const std::vector<double>& gbyte = {}) {
  Wiring wiring;
  std::vector<int> leaves;
  for (int i = 0; i < 2; ++i) leaves.push_back(add(wiring, "leaf" + std::to_string(i), DeviceKind::kSwitch));
  for (int i = 0; i < uplinks; ++i) {
    const int spine = add(wiring, "spine" + std::to_string(i), DeviceKind::kSwitch, -1, 1);
    for (const int leaf : leaves) add_link(wiring, leaf, spine, link(LinkKind::kInfiniband, 10));
  }
  for (int h = 0; h < hosts; ++h) {
    const int host = add(wiring, "host" + std::to_string(h), DeviceKind::kHost, h);
    add_link(wiring, host, add(wiring, "GPU0", DeviceKind::kGpu, h), link(LinkKind::kPcie, 1000));
    for (int p = 0; p < ports; ++p) {
      const int nic = add(wiring, "nic" + std::to_string(p), DeviceKind::kNic, h);
      add_link(wiring, host, nic, link(LinkKind::kPcie, 1000));
      add_link(wiring, nic, leaves[static_cast<std::size_t>(h % 2)], link(LinkKind::kInfiniband, gbyte.empty() ? 10 : gbyte[static_cast<std::size_t>(h)]));
    }
  }
  return wiring;
}

TEST(ClosedForms, RingsOverSeveralPortsShareTheUplinks) {
  const auto bus = [](const Wiring& wiring) { return ring_bandwidth(wiring, devices_of(wiring, DeviceKind::kGpu)).bus; };
  EXPECT_DOUBLE_EQ(bus(two_leaves(4, 2, 1)), 10e9);  // two rings at half an uplink each
  EXPECT_DOUBLE_EQ(bus(two_leaves(4, 2, 2)), 20e9);  // as much as both ports
  EXPECT_DOUBLE_EQ(bus(two_leaves(4, 4, 3)), 30e9);
  EXPECT_DOUBLE_EQ(bus(two_leaves(4, 1, 4, {10, 4, 10, 20})), 4e9);  // the slowest host decides, wherever it stands
}

TEST(ClosedForms, UplinksOfALeafCountTogetherInAPlacementToo) {
  for (const int uplinks : {1, 2, 4}) {
    const Wiring wiring = two_leaves(4, 1, uplinks);
    const std::vector<int> gpus = devices_of(wiring, DeviceKind::kGpu);
    // Two groups, each across both leaves: 8 GB a rank, 16 GB over the uplinks of a leaf, 8 GB over a port.
    const std::vector<int> device{gpus[0], gpus[2], gpus[1], gpus[3]};
    EXPECT_NEAR(communication_time(wiring, ring_of(4, 8e9, 2), device).seconds, std::max(1.6 / uplinks, 0.8), 1e-9);
  }
}

TEST(ClosedForms, APipeIsAsWideAsItsNarrowerDirection) {
  Wiring wiring;
  const int host = add(wiring, "host", DeviceKind::kHost, 0);
  std::vector<int> gpus;
  for (int i = 0; i < 2; ++i) {
    gpus.push_back(add(wiring, "GPU" + std::to_string(i), DeviceKind::kGpu, 0));
    add_link(wiring, host, gpus.back(), link(LinkKind::kPcie, 20));
  }
  wiring.links.back().beta = 5e9;  // from GPU1 to the host
  EXPECT_NEAR(communication_time(wiring, ring_of(2, 10e9), gpus).seconds, 2, 1e-9);
}

TEST(ClosedForms, LinksToSeveralNvswitchesAddUp) {
  Wiring wiring;
  const int host = add(wiring, "host", DeviceKind::kHost, 0);
  const int first = add(wiring, "nvswitch0", DeviceKind::kNvSwitch, 0), second = add(wiring, "nvswitch1", DeviceKind::kNvSwitch, 0);
  std::vector<int> gpus;
  for (int i = 0; i < 2; ++i) {
    gpus.push_back(add(wiring, "GPU" + std::to_string(i), DeviceKind::kGpu, 0));
    add_link(wiring, host, gpus.back(), link(LinkKind::kPcie, 20));
    for (const int middle : {first, second}) add_link(wiring, gpus.back(), middle, link(LinkKind::kNvlink, 50));
  }
  EXPECT_NEAR(communication_time(wiring, ring_of(2, 10e9), gpus).seconds, 0.1, 1e-9);
}

TEST(ClosedForms, PortsForLoggingInCarryNoCollectives) {
  Wiring wiring;
  const int leaf = add(wiring, "leaf", DeviceKind::kSwitch);
  std::vector<int> gpus;
  for (int h = 0; h < 2; ++h) {
    const int host = add(wiring, "host" + std::to_string(h), DeviceKind::kHost, h);
    const int near = add(wiring, "switch0", DeviceKind::kPcieSwitch, h);
    add_link(wiring, host, near, link(LinkKind::kPcie, 100));
    gpus.push_back(add(wiring, "GPU0", DeviceKind::kGpu, h));
    add_link(wiring, near, gpus.back(), link(LinkKind::kPcie, 100));
    const int slow = add(wiring, "eth0", DeviceKind::kNic, h), fast = add(wiring, "mlx5_0", DeviceKind::kNic, h);
    add_link(wiring, near, slow, link(LinkKind::kPcie, 100));  // nearer to the GPU than the fast one
    add_link(wiring, host, fast, link(LinkKind::kPcie, 100));
    add_link(wiring, slow, leaf, link(LinkKind::kEthernet, 0.1));
    add_link(wiring, fast, leaf, link(LinkKind::kInfiniband, 25));
  }
  EXPECT_NEAR(communication_time(wiring, ring_of(2, 25e9), gpus).seconds, 1, 1e-9);
}

TEST(ClosedForms, WithANumberOfHostsTheBestOfAllSuchPlacementsIsFound) {
  constexpr unsigned kSeed = 20260131;
  int cases = 0;
  for (unsigned i = 0; i < 400 && cases < 60; ++i) {
    std::mt19937 random(kSeed + i);
    const Wiring wiring = random_wiring(random, 6);
    const auto by_host = devices_by_host(wiring, DeviceKind::kGpu);
    const auto room = std::count_if(by_host.begin(), by_host.end(), [](const auto& gpus) { return gpus.size() >= 2; });
    if (room < 2) continue;
    ++cases;
    const RankTraffic traffic = random_traffic(random, 4);
    PlacementOptions options;
    options.nodes = 2;
    std::vector<int> order = devices_of(wiring, DeviceKind::kGpu);
    std::sort(order.begin(), order.end());
    double least = 1e300;
    do {
      std::map<int, int> on_host;
      for (int r = 0; r < 4; ++r) ++on_host[wiring.devices[static_cast<std::size_t>(order[static_cast<std::size_t>(r)])].host];
      if (on_host.size() == 2 && on_host.begin()->second == 2) least = std::min(least, communication_time(wiring, traffic, std::span(order).first(4)).seconds);
      std::reverse(order.begin() + 4, order.end());  // those that hold no rank in one order only
    } while (std::next_permutation(order.begin(), order.end()));
    const Placement placed = place(wiring, traffic, options);
    ASSERT_NEAR(placed.time.seconds, least, 1e-8 * least) << "seed " << kSeed + i;
    std::map<int, int> on_host;
    for (const int device : placed.device) ++on_host[wiring.devices[static_cast<std::size_t>(device)].host];
    ASSERT_EQ(on_host.size(), 2U);
    ASSERT_EQ(on_host.begin()->second, 2);
  }
  EXPECT_GE(cases, 40);
}

TEST(ClosedForms, RandomOrderIsTheMedianAndReasonsNameNvlink) {
  Wiring wiring;
  add_dgx1(wiring, 0);
  const Placement placed = place(wiring, mesh_traffic(1, 2, 4, 0, 50e6, 400e6));
  // Two pairs on two hosts: a third of all orders keeps both pairs at home. The best of several nearly always does, the median seldom.
  const Cluster cluster = leaf_spine({2}, 50, 2);
  int far = 0;
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    PlacementOptions options;
    options.seed = seed;
    const Placement pairs = place(cluster.wiring, mesh_traffic(1, 2, 2, 0, 0, 1e9), options);
    far += pairs.random.seconds > 1.5 * pairs.time.seconds ? 1 : 0;
  }
  EXPECT_GE(far, 12);
  bool said = false;
  for (const std::string& line : placed.why) said = said || line.find("tp: 2 of 2 groups over NVLink alone") != std::string::npos;
  EXPECT_TRUE(said) << placed.why.front();
}

TEST(ClosedForms, UplinksStayWhereAHostIsTakenOut) {
  const auto uplink = [](const std::string& out) {
    const Wiring wiring = read_cluster("[[host]]\ntemplate = \"hgx-h100\"\ncount = 4\nprefix = \"n\"\n" + out + "[[level]]\nhosts = 2\n[[level]]\n", "c.toml").wiring;
    for (const Link& each : wiring.links) {
      const Device &from = wiring.devices[static_cast<std::size_t>(each.from)], &to = wiring.devices[static_cast<std::size_t>(each.to)];
      if (from.kind == DeviceKind::kSwitch && to.kind == DeviceKind::kSwitch && from.level < to.level) return each.beta;
    }
    return 0.0;
  };
  EXPECT_GT(uplink(""), 0);
  EXPECT_DOUBLE_EQ(uplink("out = \"n1\"\n"), uplink(""));  // nobody pulls its cable
}

TEST(ClosedForms, AFlowTakesBackWhatItSentTheWrongWay) {
  MaxFlow graph(6);  // source 0, a 1, b 2, c 3, d 4, sink 5
  const int edges[][2] = {{0, 1}, {0, 2}, {1, 3}, {1, 4}, {2, 3}, {3, 5}, {4, 5}};
  for (const auto& [from, to] : edges) graph.add_edge(from, to, 10);
  EXPECT_DOUBLE_EQ(graph.solve(0, 5), 20);  // a's first way is over c, which b has no way around
}

TEST(ClosedForms, AFitWithoutLatencyPassesTheOrigin) {
  // Times that bend upwards have no alpha: 1 ms for 1 MB, 2.2 for 2. The line through the origin of least relative errors has
  // pace (s1/t1 + s2/t2) / (s1^2/t1^2 + s2^2/t2^2); a line through both points would be a quarter slower.
  const std::vector<MessageTime> messages{{1'000'000, 1.0e-3}, {2'000'000, 2.2e-3}};
  const LinkFit fit = fit_link(messages);
  EXPECT_EQ(fit.alpha, 0);
  const double first = 1e9, second = 2e6 / 2.2e-3;
  EXPECT_NEAR(fit.beta, (first * first + second * second) / (first + second), 0.005e9);
}

}  // namespace
}  // namespace wirewise
