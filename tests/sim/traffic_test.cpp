// What collectives carry between hosts, against closed forms, and what that costs.
#include <gtest/gtest.h>

#include "sim/hand_built.h"
#include "wirewise/base/error.h"
#include "wirewise/sim/traffic.h"

namespace wirewise {
namespace {

/// A reduction of a gradient in `in` to a sum in `out`.
Schedule reduction(OpKind kind, DType in, DType out, Bytes bytes, int ranks) {
  Op op = collective(kind, Lane::kReduce, bytes);
  op.reads = {0};
  op.writes = {1};
  Schedule schedule = one_role({op}, ranks);
  BufferInfo grad, sum;
  grad.role = BufferRole::kGrad;
  grad.dtype = in;
  sum.role = BufferRole::kReducedGrad;
  sum.dtype = out;
  schedule.programs[0].buffers = {grad, sum};
  return schedule;
}

double between(const Schedule& schedule, const std::vector<int>& hosts) {
  return traffic_of(schedule.programs[0], schedule.programs[0].ops[0], hosts).between;
}

TEST(Traffic, EachByteCrossesALinkOnceEachWay) {
  const std::vector<int> two{0, 0, 1, 1}, four{0, 0, 1, 1, 2, 2, 3, 3};
  constexpr Bytes kBytes = 6400;
  const auto gather = one_role({collective(OpKind::kGather, Lane::kGather, kBytes)}, 8);
  EXPECT_DOUBLE_EQ(between(gather, two), kBytes / 2.0);
  EXPECT_DOUBLE_EQ(between(gather, four), kBytes * 3.0 / 4);
  EXPECT_DOUBLE_EQ(between(gather, {0, 0, 0, 0}), 0);
  for (const OpKind kind : {OpKind::kReduceScatter, OpKind::kAllReduce}) {
    const double ways = kind == OpKind::kAllReduce ? 2 : 1;
    EXPECT_DOUBLE_EQ(between(reduction(kind, DType::kFloat32, DType::kFloat32, kBytes, 4), two), ways * kBytes / 2);
  }
}

TEST(Traffic, SumsOf16BitNumbersCrossInFloat32) {
  const std::vector<int> two{0, 0, 1, 1};
  constexpr Bytes kBytes = 6400;  // 3200 numbers
  EXPECT_DOUBLE_EQ(between(reduction(OpKind::kReduceScatter, DType::kBFloat16, DType::kBFloat16, kBytes, 4), two), 3200 * 4 / 2.0);
  EXPECT_DOUBLE_EQ(between(reduction(OpKind::kAllReduce, DType::kBFloat16, DType::kBFloat16, kBytes, 4), two), 3200 * (4 + 2) / 2.0);
  EXPECT_DOUBLE_EQ(between(reduction(OpKind::kAllReduce, DType::kBFloat16, DType::kFloat32, kBytes, 4), two), 3200 * (4 + 4) / 2.0);
}

TEST(Traffic, AStepSendsWhatItsOpsSend) {
  const auto schedule = one_role({collective(OpKind::kGather, Lane::kGather, 400), collective(OpKind::kGather, Lane::kGather, 800),
                                  collective(OpKind::kClip, Lane::kReduce, 1 << 20)},
                                 4);
  EXPECT_DOUBLE_EQ(sent_between_hosts(schedule, {0, 0, 1, 1}), 600);
  EXPECT_DOUBLE_EQ(sent_between_hosts(schedule, {0, 0, 0, 0}), 0);
}

TEST(Traffic, HostsPayTheirMemoryAndThenTheNetwork) {
  Link network = assumed_network();
  network.alpha = 7 * kAlpha;
  network.beta = kBeta / 3;
  Wiring wiring = wire_hosts({0, 0, 1, 1}, network);
  for (auto& link : wiring.links) {
    if (link.kind == LinkKind::kSharedMemory) link.alpha = kAlpha, link.beta = kBeta;
  }
  const auto schedule = one_role({collective(OpKind::kGather, Lane::kGather, 400)}, 4);
  const auto step = [&] { return simulate(schedule, two_segment_model(), wiring, kRoundRates, {}, kSharedCore).step; };
  EXPECT_DOUBLE_EQ(step(), kAlpha + 200 / kBeta + 7 * kAlpha + 200 / (kBeta / 3));
  wiring.links.back().beta /= 2;  // from the switch: not what a host sends on
  EXPECT_DOUBLE_EQ(step(), kAlpha + 200 / kBeta + 7 * kAlpha + 200 / (kBeta / 3));
  wiring.links[wiring.links.size() - 2].beta /= 2;  // the slowest host decides
  EXPECT_DOUBLE_EQ(step(), kAlpha + 200 / kBeta + 7 * kAlpha + 200 / (kBeta / 6));
  std::erase_if(wiring.links, [](const Link& link) { return link.kind == LinkKind::kEthernet; });
  EXPECT_THROW((void)step(), Error);
}

}  // namespace
}  // namespace wirewise
