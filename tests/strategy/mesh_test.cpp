// A mesh is a bijection between ranks and coordinates, outermost pp, innermost tp, and its groups cut the ranks up.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "wirewise/base/error.h"
#include "wirewise/strategy/strategy.h"

namespace wirewise {
namespace {

using Dim = Mesh::Dim;
constexpr Dim kDims[] = {Dim::kPp, Dim::kDpReplicate, Dim::kDpShard, Dim::kCp, Dim::kTp};

std::vector<int> digits(const Mesh::Coordinate& c) { return {c.pp, c.dp_replicate, c.dp_shard, c.cp, c.tp}; }

Strategy mesh_of(int pp, int dp_replicate, int dp_shard, int cp, int tp) {
  Strategy strategy;
  strategy.pp = pp, strategy.dp_replicate = dp_replicate, strategy.dp_shard = dp_shard, strategy.cp = cp, strategy.tp = tp;
  return strategy;
}

template <typename Check>
void for_random_meshes(Check check) {
  constexpr std::uint64_t kSeed = 7001;
  for (std::uint64_t seed = kSeed; seed < kSeed + 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto draw = [&] { return std::uniform_int_distribution<int>(1, 4)(random); };
    const Strategy s = mesh_of(draw(), draw(), draw(), draw(), draw());
    check(Mesh(s, s.pp * s.dp_replicate * s.dp_shard * s.cp * s.tp));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Mesh, RanksAreCoordinatesInOrder) {
  for_random_meshes([](const Mesh& mesh) {
    std::vector<int> before;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      const auto at = mesh.coordinate(rank);
      ASSERT_EQ(mesh.rank_of(at), rank);
      ASSERT_LT(before, digits(at));  // lexicographic: pp outermost, tp innermost
      before = digits(at);
      for (std::size_t d = 0; d < 5; ++d) ASSERT_LT(before[d], mesh.degree(kDims[d]));
    }
  });
}

TEST(Mesh, GroupsOfADimensionPartitionTheRanks) {
  for_random_meshes([](const Mesh& mesh) {
    for (std::size_t d = 0; d < 5; ++d) {
      std::set<std::vector<int>> groups;
      for (int rank = 0; rank < mesh.ranks(); ++rank) {
        const auto group = mesh.group_of(rank, kDims[d]);
        ASSERT_EQ(group.size(), static_cast<std::size_t>(mesh.degree(kDims[d])));
        ASSERT_TRUE(std::is_sorted(group.begin(), group.end()));
        ASSERT_EQ(std::count(group.begin(), group.end(), rank), 1);
        for (std::size_t i = 0; i < group.size(); ++i) {
          auto expected = digits(mesh.coordinate(rank));
          expected[d] = static_cast<int>(i);
          ASSERT_EQ(digits(mesh.coordinate(group[i])), expected);
        }
        groups.insert(group);
      }
      ASSERT_EQ(groups.size() * static_cast<std::size_t>(mesh.degree(kDims[d])), static_cast<std::size_t>(mesh.ranks()));
    }
  });
}

TEST(Mesh, RanksThatReadTheSameDataDifferInPpCpOrTpOnly) {
  for_random_meshes([](const Mesh& mesh) {
    std::vector<int> readers(static_cast<std::size_t>(mesh.data_ranks()));
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      const int data = mesh.data_rank(rank);
      ASSERT_GE(data, 0);
      ASSERT_LT(data, mesh.data_ranks());
      ++readers[static_cast<std::size_t>(data)];
      for (auto dim : {Dim::kPp, Dim::kCp, Dim::kTp}) {
        for (int other : mesh.group_of(rank, dim)) ASSERT_EQ(mesh.data_rank(other), data);
      }
    }
    for (int count : readers) ASSERT_EQ(count, mesh.ranks() / mesh.data_ranks());
  });
}

TEST(Mesh, TensorParallelRanksAreNeighbours) {
  const Mesh mesh(mesh_of(2, 1, 2, 1, 4), 16);
  EXPECT_EQ(mesh.group_of(5, Dim::kTp), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(mesh.group_of(5, Dim::kDpShard), (std::vector<int>{1, 5}));
  EXPECT_EQ(mesh.group_of(5, Dim::kPp), (std::vector<int>{5, 13}));
}

TEST(Mesh, RefusesWhatIsOutsideOrUnresolved) {
  EXPECT_THROW(Mesh({}, 4), Error);  // dp_shard -1
  EXPECT_THROW(Mesh(mesh_of(1, 1, 4, 1, 1), 8), Error);
  const Mesh mesh(mesh_of(1, 1, 4, 1, 1), 4);
  EXPECT_THROW((void)mesh.coordinate(4), Error);
  EXPECT_THROW((void)mesh.coordinate(-1), Error);
  EXPECT_THROW((void)mesh.group_of(4, Dim::kDpShard), Error);
  EXPECT_THROW((void)mesh.rank_of({0, 0, 4, 0, 0}), Error);
}

}  // namespace
}  // namespace wirewise
