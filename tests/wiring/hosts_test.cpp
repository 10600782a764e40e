// Hosts: every rank has a device of its own, linked to its host's memory both ways, and hosts to each other.
#include <gtest/gtest.h>

#include <set>

#include "wirewise/base/error.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise {
namespace {

TEST(OneHost, RanksMeetInOneMemory) {
  for (int ranks : {1, 2, 7, 64}) {
    const Wiring wiring = one_host(ranks);
    ASSERT_EQ(wiring.rank_device.size(), static_cast<std::size_t>(ranks));
    const std::set<int> devices(wiring.rank_device.begin(), wiring.rank_device.end());
    EXPECT_EQ(devices.size(), static_cast<std::size_t>(ranks)) << "ranks share a device";
    std::set<std::pair<int, int>> links;
    for (const auto& link : wiring.links) {
      ASSERT_TRUE(links.emplace(link.from, link.to).second) << "a link twice";
      EXPECT_EQ(link.kind, LinkKind::kSharedMemory);
      EXPECT_GT(link.alpha, 0);
      EXPECT_GT(link.beta, 0);
      EXPECT_FALSE(link.source.empty());
    }
    for (int device : devices) {
      EXPECT_EQ(wiring.devices.at(static_cast<std::size_t>(device)).kind, DeviceKind::kCpu);
      EXPECT_TRUE(links.contains({device, 0}) && links.contains({0, device}));
    }
    std::set<std::string> names;
    for (const auto& device : wiring.devices) {
      EXPECT_TRUE(names.insert(device.name).second) << device.name;
      EXPECT_EQ(device.host, 0);
    }
  }
}

TEST(OneHost, NoRanksAreRefused) {
  EXPECT_THROW((void)one_host(0), Error);
  EXPECT_THROW((void)one_host(-3), Error);
}

TEST(Hosts, AreJoinedByANetworkBothWays) {
  Link network = assumed_network();
  network.beta = 123e6;
  const Wiring wiring = wire_hosts({0, 1, 0, 1, 2}, network);
  std::multiset<std::pair<int, int>> by_host;
  for (const auto& link : wiring.links) {
    const Device &from = wiring.devices.at(static_cast<std::size_t>(link.from)), &to = wiring.devices.at(static_cast<std::size_t>(link.to));
    if (link.kind == LinkKind::kSharedMemory) {
      EXPECT_EQ(from.host, to.host);
      continue;
    }
    EXPECT_EQ(link.beta, network.beta);
    EXPECT_TRUE((from.kind == DeviceKind::kSwitch) != (to.kind == DeviceKind::kSwitch));
    by_host.emplace(from.host, to.host);
  }
  EXPECT_EQ(by_host, (std::multiset<std::pair<int, int>>{{0, -1}, {-1, 0}, {1, -1}, {-1, 1}, {2, -1}, {-1, 2}}));
  for (std::size_t rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(wiring.devices.at(static_cast<std::size_t>(wiring.rank_device[rank])).host, (std::vector<int>{0, 1, 0, 1, 2})[rank]);
  }
}

TEST(Hosts, GapsInTheirNumbersAreRefused) {
  EXPECT_THROW((void)wire_hosts({}), Error);
  EXPECT_THROW((void)wire_hosts({0, 2}), Error);
}

TEST(Wiring, EveryKindAndProvenanceHasItsName) {
  std::set<std::string_view> names;
  for (auto kind : {LinkKind::kSharedMemory, LinkKind::kPcie, LinkKind::kNvlink, LinkKind::kEthernet, LinkKind::kInfiniband}) {
    EXPECT_TRUE(names.insert(name_of(kind)).second);
  }
  for (auto provenance : {Provenance::kSpec, Provenance::kDriver, Provenance::kMeasured, Provenance::kAssumed}) {
    EXPECT_TRUE(names.insert(name_of(provenance)).second);
  }
  EXPECT_FALSE(names.contains("unknown"));
}

}  // namespace
}  // namespace wirewise
