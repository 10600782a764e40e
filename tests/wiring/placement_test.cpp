// Ranks lie where they should: against all placements of small machines, and where people know the right answer.
#include "wirewise/wiring/placement.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "wiring/placement_wirings.h"
#include "wirewise/base/error.h"
#include "wirewise/wiring/cluster_file.h"
#include "wirewise/wiring/placement_cost.h"

namespace wirewise {
namespace {

using namespace placement_test;

/// The least cost over all placements, one after the other.
Seconds least_of_all(const Wiring& wiring, const std::vector<int>& devices, const RankTraffic& traffic) {
  const PlacementModel model(wiring, devices);
  PlacementPricer pricer(model, traffic);
  std::vector<int> order(devices.size());
  std::iota(order.begin(), order.end(), 0);
  Seconds least = std::numeric_limits<double>::infinity();
  do {
    least = std::min(least, pricer.cost(std::span(order).first(static_cast<std::size_t>(traffic.ranks))).seconds);
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

TEST(Placement, EqualsTheExhaustiveOptimumUpTo8Devices) {
  const unsigned seed = 20240611;
  const bool full = std::getenv("WIREWISE_FULL") != nullptr;
  for (int size = 1; size <= 8; ++size) {
    const int cases = size == 8 ? (full ? 200 : 12) : size == 7 ? (full ? 1000 : 60) : full ? 3000 : 150;
    for (int i = 0; i < cases; ++i) {
      std::mt19937 random(seed + static_cast<unsigned>(1000 * size + i));
      const Wiring wiring = random_wiring(random, size);
      const std::vector<int> devices = devices_of(wiring, DeviceKind::kGpu);
      const int ranks = i % 2 == 0 ? size : 1 + static_cast<int>(random() % static_cast<unsigned>(size));
      const RankTraffic traffic = random_traffic(random, ranks);
      const Placement placed = place(wiring, traffic);
      ASSERT_TRUE(placed.exact);
      const Seconds least = least_of_all(wiring, devices, traffic);
      ASSERT_NEAR(placed.time.seconds, least, 1e-8 * least) << "seed " << seed << ", " << size << " devices, case " << i;
      ASSERT_DOUBLE_EQ(communication_time(wiring, traffic, placed.device).seconds, placed.time.seconds);
      ASSERT_EQ(std::set<int>(placed.device.begin(), placed.device.end()).size(), static_cast<std::size_t>(ranks));
    }
  }
}

TEST(Placement, TensorParallelGroupsOf4LandInsideAQuadOfTheCubeMesh) {
  std::mt19937 random(3);
  for (int i = 0; i < 10; ++i) {
    std::vector<int> order{0, 1, 2, 3, 4, 5, 6, 7};
    if (i > 0) shuffle(order, random);
    Wiring wiring;
    add_dgx1(wiring, 0, order);
    const Placement placed = place(wiring, mesh_traffic(1, 2, 4, 0, 50e6, 400e6));
    for (int group = 0; group < 2; ++group) {
      std::set<int> quads;
      for (int r = 0; r < 4; ++r) quads.insert((wiring.devices[static_cast<std::size_t>(placed.device[static_cast<std::size_t>(4 * group + r)])].name.back() - '0') / 4);
      EXPECT_EQ(quads.size(), 1U) << "group " << group << ", order " << i;
    }
    EXPECT_LT(placed.time.seconds, 1.0001 * placed.random.seconds);
  }
}

TEST(Placement, QuadsAlsoWhereSeveralCubeMeshesMakeACluster) {
  Wiring wiring;
  const int leaf = add(wiring, "leaf", DeviceKind::kSwitch);
  std::mt19937 random(4);
  for (int h = 0; h < 4; ++h) {
    std::vector<int> order{0, 1, 2, 3, 4, 5, 6, 7};
    shuffle(order, random);
    add_dgx1(wiring, h, order);
    const int nic = add(wiring, "nic", DeviceKind::kNic, h);
    add_link(wiring, find_device(wiring, "dgx" + std::to_string(h), h), nic, pcie_link(3, 16, Provenance::kSpec));
    add_link(wiring, nic, leaf, link(LinkKind::kInfiniband, 12));
  }
  std::vector<int> devices = devices_of(wiring, DeviceKind::kGpu);
  shuffle(devices, random);
  PlacementOptions options;
  options.devices = devices;
  const Placement placed = place(wiring, mesh_traffic(1, 8, 4, 0, 50e6, 400e6), options);
  for (std::size_t group = 0; group < 8; ++group) {
    std::set<std::pair<int, int>> quads;
    for (std::size_t r = 0; r < 4; ++r) {
      const Device& gpu = wiring.devices[static_cast<std::size_t>(placed.device[4 * group + r])];
      quads.emplace(gpu.host, (gpu.name.back() - '0') / 4);
    }
    EXPECT_EQ(quads.size(), 1U) << "group " << group;
  }
}

TEST(Placement, AShuffledClusterOf512IsRestored) {
  const Cluster cluster = leaf_spine(std::vector<int>(8, 8), 100);
  const RankTraffic traffic = mesh_traffic(2, 32, 8, 100e6, 1e9, 10e9);
  std::vector<int> ideal;
  for (const auto& gpus : cluster.gpus) ideal.insert(ideal.end(), gpus.begin(), gpus.end());
  const Seconds best = communication_time(cluster.wiring, traffic, ideal).seconds;
  for (unsigned seed = 1; seed <= 3; ++seed) {
    std::mt19937 random(seed);
    PlacementOptions options;
    options.devices = ideal;
    shuffle(options.devices, random);
    const Placement placed = place(cluster.wiring, traffic, options);
    EXPECT_NEAR(placed.time.seconds, best, 1e-9 * best) << "seed " << seed;
    EXPECT_GT(placed.linear.seconds, 2 * best);  // shuffled, and taken as they come
    EXPECT_GT(placed.random.seconds, 2 * best);
  }
}

TEST(Placement, UnevenLeavesKeepDataParallelGroupsTogether) {
  // 3 + 5 + 4 + 4 hosts and 4 stages of 4 hosts each: the leaf of 5 gives one up, to the leaf of 3.
  const Cluster cluster = leaf_spine({3, 5, 4, 4}, 50);
  const RankTraffic traffic = mesh_traffic(4, 4, 8, 10e6, 4e9, 10e9);
  const Placement placed = place(cluster.wiring, traffic);
  int whole = 0;
  for (int stage = 0; stage < 4; ++stage) {
    std::set<int> leaves;
    for (int r = 0; r < 32; ++r) {
      const int host = cluster.wiring.devices[static_cast<std::size_t>(placed.device[static_cast<std::size_t>(32 * stage + r)])].host;
      leaves.insert(host < 3 ? 0 : host < 8 ? 1 : host < 12 ? 2 : 3);
    }
    whole += leaves.size() == 1 ? 1 : 0;
  }
  EXPECT_EQ(whole, 3);
  EXPECT_LE(placed.time.seconds, placed.linear.seconds);
}

TEST(Placement, HostsThatAreTakenOutStayEmpty) {
  const Cluster cluster = leaf_spine({4, 4}, 100);
  PlacementOptions options;
  for (std::size_t h = 0; h < 8; ++h) {
    if (h == 1 || h == 6) continue;
    options.devices.insert(options.devices.end(), cluster.gpus[h].begin(), cluster.gpus[h].end());
  }
  const Placement placed = place(cluster.wiring, mesh_traffic(2, 3, 8, 10e6, 1e9, 10e9), options);
  for (int stage = 0; stage < 2; ++stage) {
    std::set<int> leaves;
    for (int r = 0; r < 24; ++r) {
      const int host = cluster.wiring.devices[static_cast<std::size_t>(placed.device[static_cast<std::size_t>(24 * stage + r)])].host;
      EXPECT_TRUE(host != 1 && host != 6);
      leaves.insert(host / 4);
    }
    EXPECT_EQ(leaves.size(), 1U);
  }
}

TEST(Placement, ChoosesHostsOnTheFewestLeaves) {
  // 4 hosts are wanted. Free: 3 on the first leaf, 2 on the second, 4 on the third, 6 on the last.
  const Cluster cluster = leaf_spine({3, 2, 4, 6}, 50);
  PlacementOptions options;
  options.nodes = 4;
  const Placement placed = place(cluster.wiring, mesh_traffic(1, 4, 8, 0, 1e9, 10e9), options);
  std::set<int> hosts;
  for (const int device : placed.device) hosts.insert(cluster.wiring.devices[static_cast<std::size_t>(device)].host);
  EXPECT_EQ(hosts, (std::set<int>{5, 6, 7, 8}));  // the leaf that they fill
}

TEST(Placement, NodesHoldEquallyManyRanks) {
  const Cluster cluster = leaf_spine({4, 4}, 50);
  PlacementOptions options;
  options.nodes = 6;
  const Placement placed = place(cluster.wiring, mesh_traffic(1, 6, 4, 0, 1e9, 10e9), options);
  std::map<int, int> on_host;
  for (const int device : placed.device) ++on_host[cluster.wiring.devices[static_cast<std::size_t>(device)].host];
  EXPECT_EQ(on_host.size(), 6U);
  for (const auto& [host, ranks] : on_host) EXPECT_EQ(ranks, 4) << host;
  // A group of 3 leaves gaps in hosts of 4.
  const Placement odd = place(cluster.wiring, mesh_traffic(1, 8, 3, 0, 1e9, 10e9), options);
  on_host.clear();
  for (const int device : odd.device) ++on_host[cluster.wiring.devices[static_cast<std::size_t>(device)].host];
  EXPECT_EQ(on_host.size(), 6U);
}

// Few ranks on hosts with room to spare: which GPUs of a host they take decides whose NICs and sockets they share. Exchanging one rank alone
// doesn't lead there, as the other host's NIC stays shared.
TEST(Placement, FewRanksOnGivenHostsLieAsWellAsAnywhere) {
  const unsigned seed = 1019;
  for (const char* kind : {"8xl40s", "8x4090", "dgx-1", "dgx-a100"}) {
    const Wiring wiring = read_cluster("[[host]]\ntemplate = \"" + std::string(kind) + "\"\ncount = 2\n[network]\n", "c.toml").wiring;
    const std::vector<int> devices = devices_of(wiring, DeviceKind::kGpu);
    const PlacementModel model(wiring, devices);
    for (unsigned i = 0; i < 4; ++i) {
      std::mt19937 random(seed + i);
      const RankTraffic traffic = i == 0 ? mesh_traffic(1, 2, 2, 0, 14.8e9, 8.59e9) : random_traffic(random, 4);
      PlacementPricer pricer(model, traffic);
      Seconds least = std::numeric_limits<double>::infinity();
      std::vector<int> slots(4);
      for (int code = 0; code < 16 * 16 * 16 * 16; ++code) {
        int second = 0;
        for (int r = 0; r < 4; ++r) {
          slots[static_cast<std::size_t>(r)] = code >> (4 * r) & 15;
          second += slots[static_cast<std::size_t>(r)] / 8;
        }
        if (second == 2 && std::set<int>(slots.begin(), slots.end()).size() == 4) least = std::min(least, pricer.cost(slots).seconds);
      }
      PlacementOptions options;
      options.nodes = 2;
      const Placement placed = place(wiring, traffic, options);
      EXPECT_NEAR(placed.time.seconds, least, 1e-8 * least) << kind << ", seed " << seed + i;
      EXPECT_LE(placed.time.seconds, placed.random.seconds * (1 + 1e-9)) << kind << ", seed " << seed + i;
    }
  }
}

// However ranks and whole hosts are moved: so many hosts, equally many ranks on each, all of them free.
TEST(Placement, EveryNumberOfNodesIsKeptTo) {
  const unsigned seed = 5007;
  for (const char* kind : {"8xl40s", "dgx-1", "4x3090"}) {
    const Wiring wiring = read_cluster("[[host]]\ntemplate = \"" + std::string(kind) + "\"\ncount = 5\nper_rack = 2\n[network]\n[[level]]\nby_rack = true\noversubscription = 4\n[[level]]\n", "c.toml").wiring;
    const int on_each = static_cast<int>(devices_of(wiring, DeviceKind::kGpu, 0).size());
    for (unsigned i = 0; i < 40; ++i) {
      std::mt19937 random(seed + i);
      PlacementOptions options;
      for (const int gpu : devices_of(wiring, DeviceKind::kGpu)) {
        if (random() % 8 != 0) options.devices.push_back(gpu);
      }
      options.nodes = 1 + static_cast<int>(random() % 4);
      const int each = 1 + static_cast<int>(random() % static_cast<unsigned>(on_each / 2));
      const Placement placed = place(wiring, random_traffic(random, options.nodes * each), options);
      std::map<int, int> on_host;
      for (const int device : placed.device) {
        ++on_host[wiring.devices[static_cast<std::size_t>(device)].host];
        EXPECT_NE(std::find(options.devices.begin(), options.devices.end(), device), options.devices.end());
      }
      EXPECT_EQ(on_host.size(), static_cast<std::size_t>(options.nodes)) << kind << ", seed " << seed + i;
      for (const auto& [host, ranks] : on_host) EXPECT_EQ(ranks, each) << kind << ", seed " << seed + i;
      EXPECT_EQ(std::set<int>(placed.device.begin(), placed.device.end()).size(), placed.device.size());
    }
  }
}

TEST(Placement, GroupsThatWouldShareANicAreSpread) {
  // 2 hosts of 4 GPUs, 2 NICs each: GPUs 0 and 1 near the first, 2 and 3 near the second. Two rings of 2 ranks over both hosts, the other ranks idle.
  Wiring wiring;
  const int leaf = add(wiring, "leaf", DeviceKind::kSwitch);
  for (int h = 0; h < 2; ++h) {
    const int host = add(wiring, "host" + std::to_string(h), DeviceKind::kHost, h);
    for (int n = 0; n < 2; ++n) {
      const int plx = add(wiring, "switch" + std::to_string(n), DeviceKind::kPcieSwitch, h);
      const int nic = add(wiring, "nic" + std::to_string(n), DeviceKind::kNic, h);
      add_link(wiring, host, plx, pcie_link(4, 16, Provenance::kSpec));
      add_link(wiring, plx, nic, pcie_link(4, 16, Provenance::kSpec));
      add_link(wiring, nic, leaf, link(LinkKind::kInfiniband, 12));
      for (int g = 0; g < 2; ++g) add_link(wiring, plx, add(wiring, "GPU" + std::to_string(2 * n + g), DeviceKind::kGpu, h), pcie_link(4, 16, Provenance::kSpec));
    }
  }
  RankTraffic traffic;
  traffic.ranks = 8;
  // tp of 4 fills a host; data parallel pairs 0-4 and 1-5 send, the others don't.
  traffic.phases.push_back({"tp", TrafficPattern::kRing, 100e9, {{0, 1, 2, 3}, {4, 5, 6, 7}}});
  traffic.phases.push_back({"dp", TrafficPattern::kRing, 12e9, {{0, 4}, {1, 5}}});
  const Placement placed = place(wiring, traffic);
  EXPECT_NEAR(placed.time.phases[1].seconds, 1.0, 1e-9);
  std::vector<int> ordered = devices_of(wiring, DeviceKind::kGpu);
  EXPECT_NEAR(communication_time(wiring, traffic, ordered).phases[1].seconds, 2.0, 1e-9);  // both rings over the first NICs
}

TEST(Placement, SixteenThousandRanksLieInTheirHosts) {
  const Cluster cluster = leaf_spine(std::vector<int>(64, 32), 800);
  const RankTraffic traffic = mesh_traffic(8, 256, 8, 100e6, 1e9, 10e9);
  const Placement placed = place(cluster.wiring, traffic);
  for (std::size_t rank = 0; rank < placed.device.size(); rank += 8) {
    std::set<int> hosts;
    for (std::size_t r = 0; r < 8; ++r) hosts.insert(cluster.wiring.devices[static_cast<std::size_t>(placed.device[rank + r])].host);
    ASSERT_EQ(hosts.size(), 1U);
  }
  EXPECT_LT(placed.time.seconds, placed.random.seconds / 2);
}

TEST(Placement, RefusesWhatCannotBePlaced) {
  const Cluster cluster = leaf_spine({2}, 50);
  const RankTraffic many = mesh_traffic(1, 4, 8, 0, 1, 1);
  EXPECT_THROW((void)place(cluster.wiring, many), Error);
  RankTraffic twice = mesh_traffic(1, 2, 8, 0, 1, 1);
  twice.phases[0].groups = {{0, 1}, {1, 2}};
  EXPECT_THROW((void)place(cluster.wiring, twice), Error);
  PlacementOptions options;
  options.nodes = 3;
  EXPECT_THROW((void)place(cluster.wiring, mesh_traffic(1, 2, 8, 0, 1, 1), options), Error);
  Wiring apart;  // two hosts that nothing joins
  for (int h = 0; h < 2; ++h) add_link(apart, add(apart, "host" + std::to_string(h), DeviceKind::kHost, h), add(apart, "GPU0", DeviceKind::kGpu, h), pcie_link(4, 16, Provenance::kSpec));
  try {
    (void)place(apart, mesh_traffic(1, 1, 2, 0, 0, 1));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    EXPECT_NE(std::string(error.what()).find("joined"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace wirewise
