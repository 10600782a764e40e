// A chain of a user's modules as a model's shape: parameters by identity, groups by users, and what is refused.
#include "wirewise/torch/custom_model.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include "torch/custom_chain.h"
#include "wirewise/base/error.h"

namespace wirewise::test {
namespace {

template <typename Body>
std::string refusal(Body body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.what();
    EXPECT_FALSE(error.remedy().empty()) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Model shape_of(const std::vector<Unit>& units, int shards) {
  return build_custom_model(units, parameters_of(units), std::vector<SegmentCost>(units.size()), {}, shards);
}

TEST(CustomModel, SharedParameterIsOneGroupWithBothUsers) {
  const Model model = shape_of(tied_chain(), 4);
  ASSERT_EQ(model.units.size(), 5U);
  ASSERT_EQ(model.groups.size(), 4U);  // the table, two blocks, the head's norm
  EXPECT_EQ(model.groups[0].name, "embedding.weight");
  EXPECT_EQ(model.groups[0].users, (std::vector<int>{0, 4}));
  EXPECT_EQ(model.units[4].groups.size(), 2U);
  EXPECT_TRUE(model.units[2].groups.empty());
  const std::uint64_t block = 2 * kWidth + (2 * kWidth + 1) * (kWidth + 1) + (2 * kWidth + 2) * kWidth;
  EXPECT_EQ(model.parameters(), static_cast<std::uint64_t>(kVocab * kWidth + 2 * kWidth) + 2 * block);
}

TEST(CustomModel, EachGroupDividesIntoEqualShards) {
  for (const int shards : {1, 2, 3, 4, 7}) {
    for (const ParamGroup& group : shape_of(tied_chain(), shards).groups) {
      EXPECT_EQ(group.padded % (static_cast<std::uint64_t>(shards) * kAlignElements), 0U) << group.name << ", " << shards;
    }
  }
}

TEST(CustomModel, DecayIsForMatrices) {
  for (const ParamGroup& group : shape_of(tied_chain(), 1).groups) {
    for (const TensorShape& tensor : group.tensors) EXPECT_EQ(tensor.decay, tensor.shape.size() >= 2) << tensor.name;
  }
}

TEST(CustomModel, ModuleUsedTwiceInOneUnitCountsOnce) {
  torch::nn::Linear linear(4, 4);
  const std::vector<Unit> units{unit("twice", torch::nn::Sequential(linear, linear))};
  EXPECT_EQ(shape_of(units, 1).parameters(), 20U);
}

TEST(CustomModel, RefusesWhatCannotBeTrained) {
  const auto refuse = [](std::vector<Unit> units) { return refusal([&] { (void)parameters_of(units); }); };
  const torch::nn::Linear linear(3, 3);
  EXPECT_TRUE(mentions(refuse({}), "no units"));
  EXPECT_TRUE(mentions(refuse({unit("", linear)}), "no name"));
  EXPECT_TRUE(mentions(refuse({unit("a", linear), unit("a", torch::nn::Linear(3, 3))}), "two units are called a"));
  EXPECT_TRUE(mentions(refuse({Unit{"a", linear.ptr(), {}}}), "unit a has no forward"));
  EXPECT_TRUE(mentions(refuse({Unit{"relu", nullptr, [](const at::Tensor& x) { return x.relu(); }}}), "no unit has a parameter"));

  torch::nn::Linear doubles(3, 3);
  doubles->to(torch::kFloat64);
  EXPECT_TRUE(mentions(refuse({unit("a", doubles)}), "a.weight is of type Double"));

  torch::nn::Linear frozen(3, 3);
  frozen->bias.set_requires_grad(false);
  EXPECT_TRUE(mentions(refuse({unit("a", frozen)}), "a.bias is frozen"));

  const std::string changing = refuse({unit("norm", torch::nn::BatchNorm1d(3))});
  EXPECT_TRUE(mentions(changing, "buffer norm.") && mentions(changing, "changes in training")) << changing;

  torch::nn::Linear other(3, 3);
  other->weight.set_data(linear->weight.detach());
  const std::string views = refuse({unit("a", linear), unit("b", other)});
  EXPECT_TRUE(mentions(views, "a.weight and b.weight are views of one memory")) << views;
}

TEST(CustomModel, NegativeIntegerTargetsDoNotCount) {
  EXPECT_EQ(counted_targets(torch::tensor({1, -100, 0, -1}, torch::kInt64)), 2);
  EXPECT_EQ(counted_targets(torch::tensor({1.0F, -100.0F, 0.0F})), 3);
  EXPECT_EQ(counted_targets({}), 0);
}

}  // namespace
}  // namespace wirewise::test
