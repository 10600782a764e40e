// Whether ranks may spin: only where each can have a core of its own.
#include "wirewise/comm/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

#include "comm/ranks.h"
#include "wirewise/base/cgroup.h"
#include "wirewise/comm/local_communicator.h"

namespace wirewise::comm {
namespace {

using Cpus = std::vector<std::vector<int>>;

TEST(Cores, RanksBoundToOneCoreEachHaveTheirOwn) {
  EXPECT_TRUE(cores_suffice(Cpus{{0}, {1}}, {}));
  EXPECT_TRUE(cores_suffice(Cpus{{0, 1}, {0, 1}}, {}));
  EXPECT_TRUE(cores_suffice(Cpus{{0, 1}, {0}}, {})) << "the first may make way";
  EXPECT_TRUE(cores_suffice(Cpus{{0, 1}, {1, 2}, {0, 1}}, {}));
}

TEST(Cores, RanksOnOneCoreHaveNot) {
  EXPECT_FALSE(cores_suffice(Cpus{{0}, {0}}, {}));
  EXPECT_FALSE(cores_suffice(Cpus{{0, 1}, {0, 1}, {0, 1}}, {}));
  EXPECT_FALSE(cores_suffice(Cpus{{0}, {0}, {1, 2, 3}}, {})) << "there are cores enough, but not for the first two";
  EXPECT_FALSE(cores_suffice(Cpus{{}, {0}}, {})) << "what can't be known counts for nothing";
}

TEST(Cores, AQuotaLimitsThemTogether) {
  EXPECT_FALSE(cores_suffice(Cpus{{0}, {1}}, 1.5));
  EXPECT_TRUE(cores_suffice(Cpus{{0}, {1}}, 2.0));
  EXPECT_TRUE(cores_suffice(Cpus{{0}}, 0.5)) << "nobody else is there";
}

TEST(Cores, AgreesWithTryingAllAssignments) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    Cpus cpus(1 + random() % 5);
    for (auto& own : cpus) {
      for (int cpu = 0; cpu < 5; ++cpu) {
        if (random() % 3 == 0) own.push_back(cpu);
      }
    }
    std::vector<int> order(5);
    std::iota(order.begin(), order.end(), 0);
    bool possible = false;
    do {
      bool fits = true;
      for (std::size_t r = 0; r < cpus.size(); ++r) fits = fits && std::find(cpus[r].begin(), cpus[r].end(), order[r]) != cpus[r].end();
      possible = possible || fits;
    } while (std::next_permutation(order.begin(), order.end()));
    ASSERT_EQ(cores_suffice(cpus, {}), possible) << "seed " << seed << ", round " << round;
  }
}

/// What two processes find, each bound to the core given.
std::string found_by(int first, int second) {
  const testing::TemporaryFolder folder;
  const auto results = testing::run_ranks(2, [&](int rank) {
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(static_cast<std::size_t>(rank == 0 ? first : second), &only);
    EXPECT_EQ(::sched_setaffinity(0, sizeof only, &only), 0);
    const auto comm = make_communicator(std::make_shared<FileStore>(folder.path() / "s"), rank, 2);
    const bool own = static_cast<const LocalCommunicator&>(*comm).group()->link().own_core;
    comm->barrier().wait();
    return std::string(own ? "own " : "shared ");
  });
  return results[0].output + results[1].output;
}

TEST(Cores, BoundProcessesKnowWhetherTheyShareACore) {
  const std::vector<int> cpus = allowed_cpus();
  const auto quota = cgroup_limits().cpus;
  if (cpus.size() < 2 || (quota && *quota < 2)) GTEST_SKIP() << "needs two cores";
  EXPECT_EQ(found_by(cpus[0], cpus[1]), "own own ");
  EXPECT_EQ(found_by(cpus[0], cpus[0]), "shared shared ");
}

}  // namespace
}  // namespace wirewise::comm
