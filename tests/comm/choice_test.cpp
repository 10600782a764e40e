// The table by which algorithms between hosts are chosen: the model's closed forms, where they cross, what WIREWISE_ALGO may say.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/comm/choice.h"
#include "wirewise/comm/names.h"

namespace wirewise::comm {
namespace {

constexpr Bytes kLargest = Bytes{1} << 32;

/// 1 Gbit/s: what a byte costs is much more than memory's.
CostModel slow_network() {
  CostModel model;
  model.latency = 50e-6;
  model.per_message = 2e-6;
  model.per_byte = model.per_byte_many = 8e-9;
  model.local = 3e-6;
  model.local_per_byte = 0.1e-9;
  model.combine_per_byte = 0.4e-9;
  return model;
}

/// Four hosts in two racks whose uplinks hold a fifth of a host's link: whom a host meets at distance 1 is near, or far away.
CostModel racks(bool placed) {
  CostModel model = slow_network();
  const Seconds near = 8e-9;
  const Seconds far = 80e-9;  // two hosts share the uplink
  model.per_byte = far / 2;
  model.per_byte_many = 53e-9;  // 4/3 of a host's bytes cross
  model.per_byte_at[0] = placed ? near : far;
  model.per_byte_at[1] = placed ? far : near;
  return model;
}

HostLayout regular(int hosts, int ranks) { return {hosts, ranks, true, true}; }

std::string refusal(const std::string& text, const HostLayout& layout = regular(4, 2)) {
  try {
    const AlgorithmTable table(slow_network(), layout, parse_algorithms(text));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Choice, PredictedTimesNeverFallAsSizesOrHostsGrow) {
  for (const Operation operation : operations_with_choice()) {
    for (const Algorithm algorithm : algorithms_of(operation)) {
      for (const int ranks : {1, 2, 8}) {
        Seconds of_fewer = 0;
        for (const int hosts : {2, 4, 8, 64}) {
          Seconds before = 0;
          for (Bytes bytes = 1; bytes <= kLargest; bytes *= 2) {
            const Seconds time = predicted_time(slow_network(), regular(hosts, ranks), algorithm, {operation, bytes});
            EXPECT_GE(time, before) << name_of(operation) << ' ' << name_of(algorithm) << ' ' << bytes;
            EXPECT_GT(time, 0);
            before = time;
          }
          EXPECT_GT(before, of_fewer) << name_of(operation) << ' ' << name_of(algorithm) << " of " << hosts << " hosts";
          of_fewer = before;
        }
      }
    }
  }
}

TEST(Choice, TheTableHoldsTheLeastTimeAtEverySize) {
  CostModel incast = slow_network();
  incast.per_byte_many = 2 * incast.per_byte;
  for (const CostModel& model : {slow_network(), CostModel{}, incast, racks(true), racks(false)}) {
    for (const HostLayout& layout : {regular(2, 1), regular(2, 2), regular(4, 2), regular(64, 8), HostLayout{3, 2, true, false}, HostLayout{3, 4, false, false}}) {
      const AlgorithmTable table(model, layout, {});
      for (const Operation operation : operations_with_choice()) {
        for (Bytes power = 1; power <= kLargest; power *= 2) {
          for (const Bytes bytes : {power - 1, power, power + power / 2}) {
            const Algorithm chosen = table.choose(operation, bytes);
            EXPECT_EQ(why_unfit(chosen, layout), "");
            const Seconds time = predicted_time(model, layout, chosen, {operation, bytes});
            for (const Algorithm other : algorithms_of(operation)) {
              if (!why_unfit(other, layout).empty()) continue;
              // A hundredth isn't worth a change.
              EXPECT_LE(time, predicted_time(model, layout, other, {operation, bytes}) * 1.0102)
                  << name_of(operation) << " of " << bytes << " by " << name_of(chosen) << ", not " << name_of(other);
            }
          }
        }
      }
    }
  }
}

TEST(Choice, OneExchangeOfWholeSumsGivesWayWhereItsBytesCostMoreThanASecondRound) {
  // Two hosts of p ranks: whole a + 2o + S(p·b + k) + L(S), direct 2a + 3o + S(b + k/2p) + 2 L(S).
  const CostModel model = slow_network();
  const auto expect_crossing = [&](const HostLayout& layout, double crossing) {
    const AlgorithmTable table(model, layout, {});
    // A new one must be worth a hundredth of the time.
    EXPECT_EQ(table.choose(Operation::kAllReduce, static_cast<Bytes>(crossing)), Algorithm::kWhole);
    EXPECT_EQ(table.choose(Operation::kAllReduce, static_cast<Bytes>(crossing * 2)), Algorithm::kDirect);
  };
  const double round = model.latency + model.per_message;
  expect_crossing(regular(2, 1), round / (model.combine_per_byte / 2));
  expect_crossing(regular(2, 2), (round + model.local) / (model.per_byte + model.combine_per_byte * 3 / 4 - model.local_per_byte));
}

TEST(Choice, DoublingWinsWhereMessagesToManyHostsCostMoreThanRounds) {
  CostModel model = slow_network();
  model.per_message = 20e-6;
  EXPECT_EQ(AlgorithmTable(model, regular(64, 1), {}).choose(Operation::kReduceScatter, 64), Algorithm::kDoubling);
  EXPECT_EQ(AlgorithmTable(model, regular(64, 1), {}).choose(Operation::kAllReduce, 64), Algorithm::kWholeDoubling);
  // Three hosts can't double.
  EXPECT_EQ(AlgorithmTable(model, {3, 1, true, true}, {}).choose(Operation::kReduceScatter, 64), Algorithm::kDirect);
}

TEST(Choice, DoublingWinsBetweenRacksWhereWhoExchangesMostIsNear) {
  constexpr Bytes kSize = Bytes{16} << 20;
  for (const Operation operation : {Operation::kAllReduce, Operation::kReduceScatter}) {
    EXPECT_EQ(AlgorithmTable(racks(true), regular(4, 1), {}).choose(operation, kSize), Algorithm::kDoubling);
    EXPECT_EQ(AlgorithmTable(racks(false), regular(4, 1), {}).choose(operation, kSize), Algorithm::kDirect);
  }
}

TEST(Choice, RoundsOfDoublingCostWhatTheirDistanceDoes) {
  // Halves: 8 ns · 1/2 and 80 ns · 1/4 a byte; the shorter of the two counts 1.2 times more, as in the formula.
  CostModel model = racks(true);
  model.latency = model.per_message = model.local = model.local_per_byte = model.combine_per_byte = 0;
  EXPECT_NEAR(predicted_time(model, regular(4, 1), Algorithm::kDoubling, {Operation::kAllReduce, 1'000'000}), 2e6 * (4e-9 + 20e-9 + 1.2 * 4e-9), 1e-9);
  EXPECT_NEAR(predicted_time(model, regular(4, 1), Algorithm::kDoubling, {Operation::kReduceScatter, 1'000'000}), 1e6 * 24e-9, 1e-9);
  EXPECT_NEAR(predicted_time(model, regular(4, 1), Algorithm::kWholeDoubling, {Operation::kAllReduce, 1'000'000}), 1e6 * 88e-9, 1e-9);
}

TEST(Choice, APartsHostsAreAsFarApartAsInTheWhole) {
  CostModel whole = slow_network();  // 8 hosts: pairs 1e-9 apart, racks of four 2e-9, and 4e-9 between racks
  whole.per_byte_at[0] = 1e-9;
  whole.per_byte_at[1] = 2e-9;
  whole.per_byte_at[2] = 4e-9;
  const auto at = [&](const std::vector<int>& hosts, int round) { return whole.of_part(hosts).per_byte_of_round(round); };
  EXPECT_EQ(at({2, 3}, 0), 1e-9);
  EXPECT_EQ(whole.of_part(std::vector{2, 3}).per_byte, 1e-9);
  EXPECT_EQ(whole.of_part(std::vector{2, 3}).per_byte_many, 1e-9);
  EXPECT_EQ(at({1, 2}, 0), 2e-9);       // not of one pair, but of one rack
  EXPECT_EQ(at({3, 4}, 0), 4e-9);
  EXPECT_EQ(at({0, 4, 1, 5}, 0), 4e-9);  // ranks dealt out the other way round
  EXPECT_EQ(at({0, 4, 1, 5}, 1), 1e-9);
  EXPECT_EQ(whole.of_part(std::vector{0, 4, 1, 5}).per_byte, 4e-9);
  EXPECT_EQ(whole.of_part(std::vector{0, 1, 2}).per_byte, 2e-9);
  EXPECT_EQ(at({0, 1, 2, 3, 4, 5, 6, 7}, 2), 4e-9);
  // Where distances weren't measured a part goes by the whole's figures.
  EXPECT_EQ(slow_network().of_part(std::vector{0, 5}).per_byte, slow_network().per_byte);
  EXPECT_EQ(slow_network().of_part(std::vector{0, 5}).per_byte_of_round(0), slow_network().per_byte);
}

TEST(Choice, RingAndChainWinWhereSendingToAllAtOnceIsSlower) {
  CostModel model = slow_network();
  model.per_byte_many = 1.5 * model.per_byte;
  const AlgorithmTable table(model, regular(4, 2), {});
  EXPECT_EQ(table.choose(Operation::kAllGather, 64), Algorithm::kDirect);
  EXPECT_EQ(table.choose(Operation::kAllGather, Bytes{64} << 20), Algorithm::kRing);
  EXPECT_EQ(table.choose(Operation::kAllReduce, Bytes{64} << 20), Algorithm::kDoubling);
  EXPECT_EQ(table.choose(Operation::kBroadcast, 64), Algorithm::kDirect);
  EXPECT_EQ(table.choose(Operation::kBroadcast, Bytes{64} << 20), Algorithm::kChain);
}

TEST(Choice, WishesHoldWithinTheirRangesAndTheTableElsewhere) {
  const AlgorithmTable table(slow_network(), regular(4, 2), parse_algorithms("all_gather=ring@1M-,all_reduce=doubling@-64K,all_reduce=direct"));
  EXPECT_EQ(table.choose(Operation::kAllGather, (Bytes{1} << 20) - 1), Algorithm::kDirect);
  EXPECT_EQ(table.choose(Operation::kAllGather, Bytes{1} << 20), Algorithm::kRing);
  EXPECT_EQ(table.choose(Operation::kAllReduce, 64 * 1024), Algorithm::kDoubling);
  EXPECT_EQ(table.choose(Operation::kAllReduce, 64 * 1024 + 1), Algorithm::kDirect);
  EXPECT_TRUE(parse_algorithms("").empty());
}

TEST(Choice, WishesThatCantBeAreRefusedWithTheChoices) {
  EXPECT_TRUE(contains(refusal("all_reduce=ring"), "whole, direct, whole_doubling, doubling")) << refusal("all_reduce=ring");
  EXPECT_TRUE(contains(refusal("all_reduces=ring"), "Did you mean all_reduce?")) << refusal("all_reduces=ring");
  EXPECT_TRUE(contains(refusal("barrier=direct"), "broadcast")) << refusal("barrier=direct");
  EXPECT_TRUE(contains(refusal("all_reduce"), "operation=algorithm")) << refusal("all_reduce");
  EXPECT_TRUE(contains(refusal("all_reduce=direct@1M"), "@from-to")) << refusal("all_reduce=direct@1M");
  EXPECT_TRUE(contains(refusal("all_reduce=direct@2M-1M"), "ends before")) << refusal("all_reduce=direct@2M-1M");
  EXPECT_NE(refusal("all_reduce=direct@x-"), "");
  EXPECT_NE(refusal(","), "");
  const std::string three = refusal("all_reduce=doubling", regular(3, 2));
  EXPECT_TRUE(contains(three, "there are 3") && contains(three, "whole, direct.")) << three;
  EXPECT_TRUE(contains(refusal("reduce_scatter=doubling", {4, 3, true, false}), "power of two"));
  EXPECT_TRUE(contains(refusal("all_gather=ring", {2, 3, false, false}), "equally many"));
}

TEST(Choice, EquallyFastAlgorithmsDontTakeTurns) {
  // Between two hosts direct and chain, direct and doubling move the same bytes in the same steps.
  for (int i = 1; i < 200; ++i) {
    CostModel model = slow_network();
    model.latency *= 1 + i * 0.0317;
    model.per_byte = model.per_byte_many = model.per_byte / i;
    const AlgorithmTable table(model, regular(2, 2), {});
    for (const std::string& line : table.describe()) {
      for (const char* const word : {"chain", "doubling", "ring"}) EXPECT_FALSE(contains(line, word)) << line;
    }
  }
}

TEST(Choice, TablesOfEqualFiguresHaveEqualHashesAndOthersDiffer) {
  const CostModel model = slow_network();
  const std::string hash = AlgorithmTable(model, regular(4, 2), {}).hash();
  EXPECT_EQ(hash, AlgorithmTable(model, regular(4, 2), {}).hash());
  EXPECT_NE(hash, AlgorithmTable(model, regular(4, 2), parse_algorithms("all_gather=ring")).hash());
  CostModel other = model;
  other.latency *= 2;
  EXPECT_NE(hash, AlgorithmTable(other, regular(4, 2), {}).hash());
}

}  // namespace
}  // namespace wirewise::comm
