// Words for ops and names.
#include <gtest/gtest.h>

#include <set>

#include "schedule/fixtures.h"

namespace wirewise::test {
namespace {

TEST(Describe, NamesUnitSegmentAndMicroBatch) {
  const Model model = small_gpt(4, 2, true, strategy_of(3, 2));
  Op op;
  op.kind = OpKind::kBackward;
  op.unit = 4;
  op.segment = 0;
  op.micro_batch = 0;
  EXPECT_EQ(describe(op, model), "backward transformer.h.3 attention, micro-batch 0");
  op.kind = OpKind::kRecompute;
  op.segment = -1;
  EXPECT_EQ(describe(op, model), "recompute transformer.h.3, micro-batch 0");
  op.kind = OpKind::kForward;
  op.unit = op.segment = 0;
  EXPECT_EQ(describe(op, model), "forward embedding, micro-batch 0");
}

TEST(Describe, NamesAllGroupsOfACoalescedCall) {
  const Model model = small_gpt(2, 2, true, strategy_of(3, 2));
  Op op;
  op.kind = OpKind::kReduceScatter;
  op.unit = 1;
  op.micro_batch = 2;
  op.param_groups = {3, 2};
  EXPECT_EQ(describe(op, model), "reduce_scatter transformer.h.1, transformer.h.0, micro-batch 2");
}

TEST(Describe, StandsForOpsOfTheWholeStep) {
  const Model model = small_gpt(1, 2, true, strategy_of(3, 2));
  Op op;
  op.kind = OpKind::kClip;
  EXPECT_EQ(describe(op, model), "clip");
}

template <typename Enum>
void expect_distinct(int count) {
  std::set<std::string_view> names;
  for (int i = 0; i < count; ++i) names.insert(name_of(static_cast<Enum>(i)));
  EXPECT_EQ(static_cast<int>(names.size()), count);
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_EQ(name_of(static_cast<Enum>(count)), "unknown");
}

TEST(NameOf, EveryValueHasItsOwn) {
  expect_distinct<Category>(kCategories);
  expect_distinct<BufferRole>(static_cast<int>(BufferRole::kLoss) + 1);
  expect_distinct<OpKind>(static_cast<int>(OpKind::kBarrier) + 1);
  expect_distinct<Lane>(static_cast<int>(Lane::kCopy) + 1);
}

}  // namespace
}  // namespace wirewise::test
