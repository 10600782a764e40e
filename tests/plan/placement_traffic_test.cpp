// What a mesh sends, and between whom.
#include "wirewise/plan/placement_traffic.h"

#include <gtest/gtest.h>

#include <set>

#include "wirewise/base/error.h"
#include "wirewise/model/model.h"

namespace wirewise {
namespace {

std::string refusal(const std::string& mesh) {
  try {
    (void)parse_mesh(mesh);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.what();
  }
  return "accepted";
}

TEST(ParseMesh, ReadsDegreesAndRefusesOthers) {
  const Strategy mesh = parse_mesh("pp=2,dp=8,tp=4");
  EXPECT_EQ(mesh.pp, 2);
  EXPECT_EQ(mesh.dp_shard, 8);
  EXPECT_EQ(mesh.tp, 4);
  EXPECT_EQ(ranks_of(mesh), 64);
  for (const char* blanks : {"pp=2 dp=8 tp=4", "pp=2, dp=8, tp=4", " pp=2 ,dp=8\ttp=4 "}) {
    EXPECT_EQ(ranks_of(parse_mesh(blanks)), 64) << blanks;
    EXPECT_EQ(parse_mesh(blanks).tp, 4) << blanks;
  }
  EXPECT_NE(refusal("tp=8 dp=").find("dp= is no degree"), std::string::npos) << refusal("tp=8 dp=");
  EXPECT_NE(refusal("dp=2,,tp=2").find("comma too many"), std::string::npos);
  EXPECT_NE(refusal(" ").find("Write pp=2,dp=8,tp=8."), std::string::npos);
  EXPECT_NE(refusal("pd=2").find("Did you mean"), std::string::npos);
  EXPECT_NE(refusal("dp=2,dp_shard=2").find("twice"), std::string::npos);
  EXPECT_NE(refusal("tp=0").find("no degree"), std::string::npos);
  EXPECT_NE(refusal("tp").find("no degree"), std::string::npos);
  EXPECT_NE(refusal("").find("empty"), std::string::npos);
  EXPECT_NE(refusal("dp=8,ep=3").find("doesn't divide"), std::string::npos);
  EXPECT_NE(refusal("dp=1000000,tp=1000000").find("more than"), std::string::npos);
}

TEST(PlacementTraffic, EveryRankStandsOnceInEachDegreesGroups) {
  const RankTraffic traffic = placement_traffic(parse_mesh("pp=2,dp_replicate=2,dp=4,cp=2,tp=2,ep=2"), {});
  ASSERT_EQ(traffic.ranks, 64);
  ASSERT_EQ(traffic.phases.size(), 6U);
  const std::map<std::string, std::pair<std::size_t, std::size_t>> shape = {{"pp", {32, 2}}, {"dp_replicate", {32, 2}}, {"dp_shard", {16, 4}},
                                                                            {"cp", {32, 2}}, {"tp", {32, 2}},           {"ep", {32, 2}}};
  for (const TrafficPhase& phase : traffic.phases) {
    std::set<int> ranks;
    for (const auto& group : phase.groups) {
      EXPECT_EQ(group.size(), shape.at(phase.name).second) << phase.name;
      ranks.insert(group.begin(), group.end());
    }
    EXPECT_EQ(phase.groups.size(), shape.at(phase.name).first) << phase.name;
    EXPECT_EQ(ranks.size(), 64U) << phase.name;
  }
  EXPECT_EQ(traffic.phases.back().groups.front(), (std::vector<int>{0, 1}));  // tp is innermost
}

TEST(PlacementTraffic, ClosedFormsOfATransformer) {
  TransformerStep step;
  step.parameters = 1e9;
  step.layers = 10;
  step.width = 1000;
  step.tokens = 1000;
  Strategy mesh = parse_mesh("dp=4,tp=2");
  mesh.zero = 3;
  const RankTraffic traffic = placement_traffic(mesh, step);
  EXPECT_DOUBLE_EQ(traffic.phases[0].bytes, 3 * 0.75 * 1e9);           // half the parameters in 2 bytes, gathered twice and reduced once
  EXPECT_DOUBLE_EQ(traffic.phases[1].bytes, 4 * 10 * 2 * 0.5 * 2e6);   // 40 all-reduces of 2 MB
  mesh.zero = 0;
  EXPECT_DOUBLE_EQ(placement_traffic(mesh, step).phases[0].bytes, 2 * 0.75 * 1e9);
  EXPECT_DOUBLE_EQ(placement_traffic(mesh, step, {{"tp", 7}}).phases[1].bytes, 7);
  EXPECT_THROW((void)placement_traffic(mesh, step, {{"cp", 7}}), Error);
}

TEST(PlacementTraffic, OfAScheduleIsWhatItsOperationsMove) {
  Schedule schedule;
  schedule.strategy = parse_mesh("dp=4");
  schedule.ranks = 4;
  Program program;
  program.ranks = {0, 1, 2, 3};
  const auto add = [&](OpKind kind, Bytes bytes) {
    Op op;
    op.kind = kind;
    op.bytes = bytes;
    program.ops.push_back(op);
  };
  add(OpKind::kGather, 400);
  add(OpKind::kForward, 1000);
  add(OpKind::kReduceScatter, 800);
  add(OpKind::kAllReduce, 100);
  schedule.programs.push_back(program);
  const RankTraffic traffic = placement_traffic(schedule);
  ASSERT_EQ(traffic.phases.size(), 1U);
  EXPECT_DOUBLE_EQ(traffic.phases[0].bytes, 0.75 * (400 + 800 + 2 * 100));
  EXPECT_EQ(traffic.phases[0].groups, (std::vector<std::vector<int>>{{0, 1, 2, 3}}));
}

}  // namespace
}  // namespace wirewise
