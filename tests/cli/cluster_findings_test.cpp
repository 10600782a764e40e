// Which of a cluster's parts are named, from made-up measurements.
#include "wirewise/cli/cluster_findings.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "wirewise/base/outliers.h"

namespace wirewise {
namespace {

/// `hosts` of two ranks, every pair of hosts measured both ways, all alike within a few per cent.
ClusterProbe cluster(int hosts, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> noise(0.97, 1.03);
  ClusterProbe probe;
  probe.hosts = hosts;
  for (int rank = 0; rank < 2 * hosts; ++rank) {
    probe.ranks.push_back({rank, rank / 2, "node" + std::to_string(rank / 2), 100 + rank, 40e9 * noise(random), 10e9 * noise(random), 0, -1});
  }
  for (int from = 0; from < hosts; ++from) {
    for (int to = 0; to < hosts; ++to) {
      if (from != to) probe.links.push_back({from, to, 12e9 * noise(random), 5e-6, 0});
    }
  }
  return probe;
}

TEST(ClusterFindings, CleanClustersAreSilent) {
  for (unsigned seed = 1; seed <= 200; ++seed) EXPECT_TRUE(judge_cluster(cluster(3 + static_cast<int>(seed % 6), seed), 0.25).findings.empty()) << "seed " << seed;
}

TEST(ClusterFindings, NamesTheSlowRankAndTheSlowLinkTogether) {
  ClusterProbe probe = cluster(4, 7);
  probe.ranks[5].flops /= 2;
  probe.ranks[5].quota = 0.5;
  probe.ranks[5].throttled = 10;
  for (LinkProbe& link : probe.links) {
    if (link.from == 1) link.bandwidth *= 0.3;
  }
  const ClusterFindings judged = judge_cluster(probe, 0.25);
  ASSERT_EQ(judged.findings.size(), 3U);
  EXPECT_NE(judged.findings[0].title.find("Rank 5 on host node2 (pid 105) computes slowly"), std::string::npos) << judged.findings[0].title;
  EXPECT_NE(judged.findings[0].evidence.find("allows 0.5 CPUs and was held back 10 times"), std::string::npos) << judged.findings[0].evidence;
  EXPECT_NE(judged.findings[1].title.find("Rank 5 on host node2 (pid 105) may not use a whole core"), std::string::npos) << judged.findings[1].title;
  EXPECT_NE(judged.findings[2].title.find("The link of host node1 (ranks 2-3) sends slowly"), std::string::npos) << judged.findings[2].title;
  EXPECT_EQ(judged.host_named, (std::vector<bool>{false, true, true, false}));
}

TEST(ClusterFindings, OneSlowPathIsNeitherHostsFault) {
  ClusterProbe probe = cluster(6, 3);
  for (LinkProbe& link : probe.links) {
    if (link.from == 2 && link.to == 4) link.bandwidth *= 0.4;
  }
  const ClusterFindings judged = judge_cluster(probe, 0.25);
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings[0].severity, Severity::kWarning);
  EXPECT_NE(judged.findings[0].title.find("from host node2 (ranks 4-5) to host node4 (ranks 8-9)"), std::string::npos) << judged.findings[0].title;
  EXPECT_EQ(judged.host_named, std::vector<bool>(6, false));
}

TEST(ClusterFindings, WrongDataIsAnErrorWhereItArrives) {
  ClusterProbe probe = cluster(3, 5);
  probe.links[0].wrong = 8;
  const ClusterFindings judged = judge_cluster(probe, 0.25);
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_NE(judged.findings[0].evidence.find("8 bytes"), std::string::npos);
  EXPECT_TRUE(judged.host_named[1]);
}

TEST(ClusterFindings, TwoHostsCantOutvoteEachOther) {
  ClusterProbe probe = cluster(2, 1);
  probe.links[0].bandwidth /= 3;
  EXPECT_TRUE(judge_cluster(probe, 0.25).findings.empty());
}

TEST(TournamentRound, EachPairMeetsOnceAndNobodyTwiceAtOnce) {
  for (int hosts = 2; hosts <= 17; ++hosts) {
    const int rounds = hosts % 2 == 0 ? hosts - 1 : hosts;
    std::set<std::pair<int, int>> met;
    for (int round = 0; round < rounds; ++round) {
      const std::vector<int> partner = tournament_round(hosts, round);
      for (int host = 0; host < hosts; ++host) {
        const int other = partner[static_cast<std::size_t>(host)];
        if (other == -1) continue;
        ASSERT_NE(other, host);
        ASSERT_EQ(partner[static_cast<std::size_t>(other)], host) << hosts << " hosts, round " << round;
        if (host < other) {
          ASSERT_TRUE(met.insert({host, other}).second);
        }
      }
    }
    EXPECT_EQ(met.size(), static_cast<std::size_t>(hosts * (hosts - 1) / 2));
  }
}

TEST(Outliers, KnowTheMedianAndAreSilentOnEqualFigures) {
  EXPECT_DOUBLE_EQ(median({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_TRUE(low_outliers(std::vector<double>{5, 5, 5, 5}, 0.1).empty());
  EXPECT_EQ(low_outliers(std::vector<double>{5, 5, 1, 5}, 0.25), std::vector<std::size_t>{2});
  EXPECT_TRUE(low_outliers(std::vector<double>{5, 5, 4.9, 5}, 0.25).empty());  // far by deviation, near by share
  EXPECT_TRUE(low_outliers(std::vector<double>{8, 2, 5, 9, 1, 6, 4}, 0.25).empty());  // all scattered: none stands out
}

}  // namespace
}  // namespace wirewise
