// Which ranks stand for which class of links, and the cluster that they make.
#include "wirewise/wiring/link_pairs.h"

#include <gtest/gtest.h>

#include "wirewise/wiring/cluster_file.h"
#include "wirewise/wiring/measured_file.h"
#include "wirewise/wiring/path.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/write.h"

namespace wirewise {
namespace {

RankSpot spot(int host, int numa, const std::string& port, const std::string& sockets = "Intel UPI, Skylake") {
  return {.host = host, .host_name = "node", .numa = numa, .sockets = sockets, .network = true, .port = port};
}

TEST(LinkPairs, OneForEachClass) {
  // Two hosts of two bound ranks a socket, a third whose port is slower, a fourth like it.
  std::vector<RankSpot> spots{spot(0, 0, "10 GbE"), spot(0, 1, "10 GbE"), spot(0, 0, "10 GbE"),
                              spot(1, 0, "10 GbE"), spot(2, -1, "1 GbE"), spot(3, -1, "1 GbE")};
  const auto pairs = class_pairs(spots);
  ASSERT_EQ(pairs.size(), 4U);
  const auto is = [&](std::size_t i, std::string_view name, LinkKind kind, int from, int to) {
    EXPECT_EQ(pairs[i].name, name);
    EXPECT_EQ(pairs[i].kind, kind);
    EXPECT_EQ(std::pair(pairs[i].from, pairs[i].to), std::pair(from, to)) << name;
  };
  is(0, "shared memory", LinkKind::kSharedMemory, 0, 2);
  is(1, "Intel UPI, Skylake", LinkKind::kSockets, 0, 1);
  is(2, "10 GbE", LinkKind::kEthernet, 0, 3);
  is(3, "1 GbE", LinkKind::kEthernet, 4, 5);
}

TEST(LinkPairs, OneOfAKindHasNoPair) {
  EXPECT_TRUE(class_pairs(std::vector<RankSpot>{spot(0, -1, "10 GbE")}).empty());
  EXPECT_TRUE(class_pairs(std::vector<RankSpot>{spot(0, -1, "10 GbE"), spot(1, -1, "1 GbE")}).empty());
  // Ranks that are bound to no node meet in memory, though which node's isn't known.
  EXPECT_EQ(class_pairs(std::vector<RankSpot>{spot(0, -1, ""), spot(0, -1, "")}).front().name, "shared memory");
  // An interface that states no speed.
  EXPECT_EQ(class_pairs(std::vector<RankSpot>{spot(0, -1, ""), spot(1, -1, "")}).front().name, "");
}

TEST(LinkPairs, PortsAreNamedByWhatTheyState) {
  EXPECT_EQ(port_class(LinkKind::kEthernet, 10, false), "10 GbE");
  EXPECT_EQ(port_class(LinkKind::kEthernet, 2.5, false), "1 GbE");
  EXPECT_EQ(port_class(LinkKind::kInfiniband, 400, true), "InfiniBand NDR");
  EXPECT_EQ(port_class(LinkKind::kEthernet, 0, false), "");
  EXPECT_EQ(port_class_by_beta(LinkKind::kEthernet, 0.05e9, false), "1 GbE");
  EXPECT_EQ(port_class_by_beta(LinkKind::kEthernet, 1.18e9, false), "10 GbE");
  EXPECT_EQ(port_class_by_beta(LinkKind::kEthernet, 1e12, false), "100 GbE");
}

TEST(LinkPairs, WhatIsMeasuredIsWhatPathsInTheDescriptionCost) {
  // The figures of whole messages go in, and come out again as latency and bandwidth of the paths between those ranks.
  const std::vector<RankSpot> spots{spot(0, 0, "10 GbE"), spot(0, 0, "10 GbE"), spot(0, 1, "10 GbE"), spot(1, -1, "10 GbE")};
  const auto pairs = class_pairs(spots);
  ASSERT_EQ(pairs.size(), 3U);
  const std::vector<LinkFit> fits{{2e-6, 9e9, 0, {8, 16}, {}, {}}, {3e-6, 5e9, 0, {8, 16}, {}, {}}, {40e-6, 1e9, 0, {8, 16}, {}, {}}};
  std::vector<MeasuredClass> classes;
  std::optional<Seconds> memory;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const Seconds alpha = alpha_of_link(pairs[i], fits[i], memory);
    if (i == 0) memory = alpha;
    classes.push_back({pairs[i].name, alpha, fits[i].beta, 0, "test", "", "", {8}});
  }
  const Wiring wiring = read_cluster(with_measured(write_cluster(wire_spots(spots)), "c.toml", classes), "c.toml").wiring;
  std::vector<int> cores = devices_of(wiring, DeviceKind::kCpu);
  ASSERT_EQ(cores.size(), 4U);
  EXPECT_EQ(wiring.devices[static_cast<std::size_t>(devices_of(wiring, DeviceKind::kHost)[1])].name, "node-2");
  const Paths paths(wiring);
  const auto near = paths.find(cores[0], cores[1]).value(), across = paths.find(cores[0], cores[2]).value(),
             far = paths.find(cores[0], cores[3]).value();
  EXPECT_NEAR(near.latency, 2e-6, 1e-9);
  EXPECT_DOUBLE_EQ(near.bandwidth, 9e9);
  EXPECT_NEAR(across.latency, 3e-6, 1e-9);
  EXPECT_DOUBLE_EQ(across.bandwidth, 5e9);
  EXPECT_DOUBLE_EQ(far.bandwidth, 1e9);
  for (const Path& path : {near, across, far}) EXPECT_EQ(path.provenance, Provenance::kMeasured);
}

TEST(LinkPairs, DescriptionsSayWhatTheyHave) {
  const Wiring pod =
      read_cluster("[[host]]\ntemplate = \"dgx-a100\"\nnames = [\"a\", \"b\"]\n[[override]]\nhosts = \"b\"\nlink = \"InfiniBand EDR\"\n",
                   "c.toml")
          .wiring;
  const KnownClasses known = known_classes(pod);
  EXPECT_FALSE(known.cores);
  EXPECT_EQ(known.ports, (std::vector<std::string>{"InfiniBand HDR", "InfiniBand EDR"}));
  EXPECT_EQ(port_class_of(pod, "a"), "InfiniBand HDR");
  EXPECT_EQ(port_class_of(pod, "b"), "InfiniBand EDR");
  EXPECT_EQ(port_class_of(pod, "c"), "");
  const std::vector<RankSpot> spots{spot(0, -1, "10 GbE"), spot(1, -1, "10 GbE")};
  EXPECT_TRUE(known_classes(wire_spots(spots)).cores);
}

}  // namespace
}  // namespace wirewise
