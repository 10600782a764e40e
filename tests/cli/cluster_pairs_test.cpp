// Every pair of ranks is met and its data compared: which pairs meet when, and a path that changes bytes is found and named.
#include "wirewise/cli/cluster_pairs.h"

#include <gtest/gtest.h>

#include <set>

#include "cli/passing_communicator.h"
#include "comm/host_device.h"
#include "comm/ranks.h"
#include "wirewise/base/error.h"
#include "wirewise/cli/cluster_findings.h"

namespace wirewise {
namespace {

using Pairs = std::set<std::pair<int, int>>;

/// The pairs that meet; fails where one meets itself, or a rank stands in two pairs of a round.
Pairs met_in(const std::vector<std::vector<int>>& rounds, std::size_t ranks) {
  Pairs met;
  for (const std::vector<int>& partner : rounds) {
    EXPECT_EQ(partner.size(), ranks);
    for (std::size_t rank = 0; rank < partner.size(); ++rank) {
      const int other = partner[rank];
      if (other == -1) continue;
      EXPECT_NE(other, static_cast<int>(rank));
      EXPECT_EQ(partner[static_cast<std::size_t>(other)], static_cast<int>(rank));
      if (static_cast<int>(rank) < other) met.emplace(static_cast<int>(rank), other);
    }
  }
  return met;
}

TEST(PairRounds, AllPairsMeetWhereRoundsSuffice) {
  for (std::size_t ranks = 1; ranks <= 33; ++ranks) {
    std::vector<int> host_of(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) host_of[rank] = static_cast<int>(rank % 3);
    const auto rounds = pair_rounds(host_of, 64);
    EXPECT_EQ(met_in(rounds, ranks).size(), ranks * (ranks - 1) / 2) << ranks;
  }
}

TEST(PairRounds, ElseThoseOfAHostAndCounterparts) {
  // 17 hosts of 8 GPUs, dealt out in turn, and one host of 3.
  std::vector<int> host_of;
  for (int rank = 0; rank < 17 * 8; ++rank) host_of.push_back(rank % 17);
  for (int rank = 0; rank < 3; ++rank) host_of.push_back(17);
  const auto rounds = pair_rounds(host_of, 64);
  EXPECT_EQ(rounds.size(), 7U + 17U);
  const Pairs met = met_in(rounds, host_of.size());
  std::vector<std::vector<int>> members(18);
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) members[static_cast<std::size_t>(host_of[rank])].push_back(static_cast<int>(rank));
  const auto has = [&](int a, int b) { return met.contains({std::min(a, b), std::max(a, b)}); };
  for (std::size_t h = 0; h < members.size(); ++h) {
    for (std::size_t i = 0; i < members[h].size(); ++i) {
      for (std::size_t j = i + 1; j < members[h].size(); ++j) EXPECT_TRUE(has(members[h][i], members[h][j])) << "host " << h << ": " << i << ", " << j;
      for (std::size_t other = h + 1; other < members.size(); ++other) {
        if (i < members[other].size()) {
          EXPECT_TRUE(has(members[h][i], members[other][i])) << "hosts " << h << ", " << other << ", place " << i;
        }
      }
    }
  }
}

TEST(PairRounds, NeverMoreThanAllowed) {
  std::vector<int> host_of(2000);
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) host_of[rank] = static_cast<int>(rank / 100);
  const auto rounds = pair_rounds(host_of, 16);
  EXPECT_EQ(rounds.size(), 16U + 16U);
  EXPECT_FALSE(met_in(rounds, host_of.size()).empty());
}

/// Changes one bit of what rank `to` gets from rank `from`.
class Corrupting final : public testing_support::PassingCommunicator {
 public:
  Corrupting(Communicator& inner, int from, int to) : PassingCommunicator(inner), from_(from), to_(to) {}
  Work recv(Buffer out, std::size_t count, int peer, int tag, CallOptions options) override {
    Work work = PassingCommunicator::recv(out, count, peer, tag, std::move(options));
    work.wait();
    if (rank() == to_ && peer == from_ && count > 0) static_cast<std::byte*>(out.data)[count * size_of(out.dtype) / 2] ^= std::byte{16};
    return work;
  }

 private:
  int from_, to_;
};

TEST(CheckPairs, ComparesEveryPairAndNamesTheOneThatChangesABit) {
  for (const auto& [from, to] : {std::pair(-1, -1), std::pair(1, 3), std::pair(3, 1), std::pair(4, 0)}) {
    testing::expect_no_errors(testing::run_threads(5, [&, from = from, to = to](Communicator& inner) {
      Corrupting communicator(inner, from, to);
      const std::vector<int> host_of{0, 0, 1, 1, 1};
      const PairCheck check = check_pairs(communicator, host_of, 1 << 16, 64);
      EXPECT_EQ(check.pairs, 10);
      EXPECT_EQ(check.possible, 10);
      if (from == -1) {
        EXPECT_TRUE(check.faults.empty());
        return;
      }
      ASSERT_EQ(check.faults.size(), 1U);  // on every rank
      EXPECT_EQ(check.faults[0].from, from);
      EXPECT_EQ(check.faults[0].to, to);
      EXPECT_EQ(check.faults[0].wrong, 1U);
    }));
  }
}

TEST(CheckPairs, ComparesWhatLiesInTheMemoryOfDevices) {
  for (const bool broken : {false, true}) {
    testing::expect_no_errors(testing::run_threads(4, [&](Communicator& inner) {
      testing::HostDevice device;  // whose copies come late
      Corrupting over(inner, broken ? 2 : -1, broken ? 0 : -1);
      const std::vector<int> host_of{0, 0, 0, 0};
      const PairCheck check = check_pairs(inner, host_of, 1 << 12, 64, {&over, &device});
      EXPECT_TRUE(check.on_device);
      EXPECT_EQ(check.pairs, 6);
      EXPECT_EQ(check.faults.size(), broken ? 1U : 0U);
      if (broken && !check.faults.empty()) {
        EXPECT_EQ(check.faults[0].from, 2);
        EXPECT_EQ(check.faults[0].to, 0);
      }
      EXPECT_EQ(device.allocated, 0);  // given back
    }));
  }
}

TEST(CheckPairs, AFailedTransferNamesItsPair) {
  testing::expect_no_errors(testing::run_threads(2, [&](Communicator& inner) {
    struct Failing final : testing_support::PassingCommunicator {
      using PassingCommunicator::PassingCommunicator;
      Work recv(Buffer, std::size_t, int, int, CallOptions) override { throw Error(ErrorKind::kTimeout, "recv didn't end within 60000 ms.", "Look."); }
    } over(inner);
    testing::HostDevice device;
    try {
      (void)check_pairs(inner, std::vector<int>{0, 0}, 1 << 12, 64, {&over, &device});
      FAIL();
    } catch (const Error& error) {
      EXPECT_NE(error.sentence().find("ranks 0 and 1"), std::string::npos) << error.sentence();
    }
    inner.abort("the test is over");
  }));
}

ClusterProbe two_hosts_of_two() {
  ClusterProbe probe;
  probe.hosts = 2;
  for (int rank = 0; rank < 4; ++rank) probe.ranks.push_back({rank, rank / 2, "node" + std::to_string(rank / 2), 100 + rank, 40e9, 10e9, 0, -1});
  probe.links = {{0, 1, 12e9, 5e-6, 0}, {1, 0, 12e9, 5e-6, 0}};
  return probe;
}

TEST(ClusterFindings, APairWhoseDataChangesIsAnErrorOfItsHost) {
  ClusterProbe probe = two_hosts_of_two();
  probe.pairs.faults = {{2, 3, 7}};
  ClusterFindings judged = judge_cluster(probe, 0.25);
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings[0].severity, Severity::kError);
  EXPECT_EQ(judged.findings[0].title, "Data from rank 2 to rank 3 on host node1 comes wrong.");
  EXPECT_NE(judged.findings[0].evidence.find("7 bytes"), std::string::npos);
  EXPECT_EQ(judged.host_named, (std::vector<bool>{false, true}));
  probe.pairs.faults = {{3, 1, 1}};
  judged = judge_cluster(probe, 0.25);
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings[0].title, "Data from rank 3 on host node1 to rank 1 on host node0 comes wrong.");
}

TEST(ClusterFindings, WhatItsHostsAreNamedForIsNotSaidAgainByRank) {
  ClusterProbe probe = two_hosts_of_two();
  probe.links[0].wrong = 8;
  probe.pairs.faults = {{0, 2, 8}};
  EXPECT_EQ(judge_cluster(probe, 0.25).findings.size(), 1U);
}

TEST(BestOf, AddsUpFaultsOfPairs) {
  ClusterProbe a = two_hosts_of_two(), b = a;
  a.pairs.faults = {{0, 1, 1}};
  b.pairs.faults = {{0, 1, 2}, {2, 3, 4}};
  const ClusterProbe best = best_of(a, b);
  ASSERT_EQ(best.pairs.faults.size(), 2U);
  EXPECT_EQ(best.pairs.faults[0].wrong, 3U);
  EXPECT_EQ(best.pairs.faults[1].wrong, 4U);
}

}  // namespace
}  // namespace wirewise
