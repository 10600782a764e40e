// The price of a placement and the best placement, against a cost written a second time from its definition.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <numeric>

#include "wiring/naive_cost.h"
#include "wiring/placement_wirings.h"
#include "wirewise/wiring/placement.h"

namespace wirewise {
namespace {

using namespace placement_test;

constexpr unsigned kSeed = 20250117;
const bool kFull = std::getenv("WIREWISE_FULL") != nullptr;

struct Case {
  Wiring wiring;
  std::vector<int> devices;
  RankTraffic traffic;
};

Case random_case(unsigned seed, int size) {
  std::mt19937 random(seed);
  Case made;
  made.wiring = random_wiring(random, size);
  made.devices = devices_of(made.wiring, DeviceKind::kGpu);
  made.traffic = random_traffic(random, seed % 3 != 0 ? size : 1 + static_cast<int>(random() % static_cast<unsigned>(size)));
  return made;
}

TEST(PlacementNaive, PricesOfRandomPlacementsAreThoseOfTheDefinition) {
  int compared = 0, skipped = 0;
  for (int size = 1; size <= 8; ++size) {
    for (unsigned i = 0; i < (kFull ? 4000U : 250U); ++i) {
      const unsigned seed = kSeed + static_cast<unsigned>(10000 * size) + i;
      Case at = random_case(seed, size);
      NaiveCost naive(at.wiring);
      std::mt19937 random(seed);
      for (int order = 0; order < 4; ++order) {
        shuffle(at.devices, random);
        const std::vector<int> device(at.devices.begin(), at.devices.begin() + at.traffic.ranks);
        const auto expected = naive.seconds(at.traffic, device);
        if (!expected) {
          ++skipped;
          continue;
        }
        ++compared;
        const CommunicationTime time = communication_time(at.wiring, at.traffic, device);
        ASSERT_NEAR(time.seconds, *expected, 1e-9 * *expected) << "seed " << seed << ", " << size << " devices, order " << order;
      }
    }
  }
  EXPECT_LT(skipped, compared / 50);  // machines with more rings than can be tried
}

TEST(PlacementNaive, TheBestOfAllPlacementsByTheDefinitionIsWhatPlaceFinds) {
  int skipped = 0, cases = 0;
  for (int size = 1; size <= 8; ++size) {
    const unsigned most = size == 8 ? (kFull ? 40 : 1) : size == 7 ? (kFull ? 100 : 4) : size == 6 ? (kFull ? 500 : 15) : (kFull ? 1000 : 60);
    for (unsigned i = 0; i < most; ++i) {
      const unsigned seed = kSeed + 7 + static_cast<unsigned>(10000 * size) + i;
      const Case at = random_case(seed, size);
      NaiveCost naive(at.wiring);
      std::vector<int> order = at.devices;
      std::sort(order.begin(), order.end());
      double least = std::numeric_limits<double>::infinity();
      bool known = true;
      const auto ranks = static_cast<std::ptrdiff_t>(at.traffic.ranks);
      do {
        const auto seconds = naive.seconds(at.traffic, {order.begin(), order.begin() + ranks});
        known = known && seconds.has_value();
        if (seconds) least = std::min(least, *seconds);
        std::reverse(order.begin() + ranks, order.end());  // those that hold no rank in one order only
      } while (known && std::next_permutation(order.begin(), order.end()));
      ++cases;
      if (!known) {
        ++skipped;
        continue;
      }
      const Placement placed = place(at.wiring, at.traffic);
      ASSERT_TRUE(placed.exact);
      ASSERT_NEAR(placed.time.seconds, least, 1e-8 * least) << "seed " << seed << ", " << size << " devices";
    }
  }
  EXPECT_LE(skipped, cases / 20);
}

TEST(PlacementNaive, DgxOnes) {
  Wiring wiring;
  add_dgx1(wiring, 0);
  NaiveCost naive(wiring);
  std::vector<int> device = devices_of(wiring, DeviceKind::kGpu);
  const RankTraffic traffic = mesh_traffic(1, 2, 4, 0, 50e6, 400e6);
  std::mt19937 random(kSeed);
  for (int order = 0; order < 200; ++order) {
    shuffle(device, random);
    const auto expected = naive.seconds(traffic, device);
    ASSERT_TRUE(expected);
    ASSERT_NEAR(communication_time(wiring, traffic, device).seconds, *expected, 1e-9 * *expected) << order;
  }
}

}  // namespace
}  // namespace wirewise
