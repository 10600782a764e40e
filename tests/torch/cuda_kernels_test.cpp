// What tensors on a device are computed with, held against the CPU's kernels: the same operators run on CPU tensors here.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>

#include "wirewise/base/error.h"
#include "wirewise/torch/attention.h"
#include "wirewise/torch/kernels_aten.h"
#include "wirewise/torch/layers.h"
#include "wirewise/torch/optimizer.h"

namespace wirewise {
namespace {

class OnAten : public testing::TestWithParam<c10::ScalarType> {
 protected:
  [[nodiscard]] at::Tensor random(std::vector<std::int64_t> shape) const { return at::randn(shape).to(GetParam()); }
  /// Norm of the difference over the norm: float32 agrees to rounding, 16 bit to a few of its own roundings.
  void expect_close(const at::Tensor& own, const at::Tensor& aten, const char* what) const {
    const double difference = (own.to(c10::kDouble) - aten.to(c10::kDouble)).norm().item<double>();
    const double norm = own.to(c10::kDouble).norm().item<double>();
    ASSERT_GT(norm, 0) << what;
    EXPECT_LT(difference, (GetParam() == c10::kFloat ? 2e-6 : 8e-3) * norm) << what;
  }
  at::NoGradGuard no_grad_;
};

TEST_P(OnAten, NormsAgree) {
  const at::Tensor x = random({24, 96}), weight = random({96}), bias = random({96}), dy = random({24, 96}), residual = random({24, 96});
  for (const bool layer : {true, false}) {
    const auto run = [&] {
      kernels::RowStatistics statistics;
      at::Tensor dweight = at::empty({96}), dbias = at::ones_like(dweight);
      at::Tensor y = layer ? kernels::layer_norm(x, weight, bias, 1e-5, statistics) : kernels::rms_norm(x, weight, 1e-5, statistics);
      at::Tensor dx = layer ? kernels::layer_norm_backward(dy, x, weight, statistics, residual, dweight, dbias)
                            : kernels::rms_norm_backward(dy, x, weight, statistics, residual, dweight);
      return std::vector{y, dx, dweight, dbias};
    };
    const auto own = run();
    const kernels::AtenEverywhere switched;
    const auto aten = run();
    const char* names[] = {"y", "dx", "dweight", "dbias"};
    for (std::size_t i = 0; i < own.size(); ++i) expect_close(own[i], aten[i], names[i]);
  }
}

TEST_P(OnAten, LossAndItsGradientAgreeAndLeaveOutMaskedRows) {
  const at::Tensor logits = random({37, 501}) * 4;
  at::Tensor targets = at::randint(0, 501, {37}, at::TensorOptions().dtype(c10::kLong));
  targets[3] = -100;
  targets[36] = -1;
  const auto run = [&](double& loss) {
    at::Tensor lse = at::empty({37}), gradient = logits.clone();
    loss = kernels::cross_entropy(gradient, targets, lse);
    kernels::cross_entropy_backward_(gradient, targets, lse, 0.125);
    return gradient;
  };
  double own_loss = 0, aten_loss = 0;
  const at::Tensor own = run(own_loss);
  const kernels::AtenEverywhere switched;
  const at::Tensor aten = run(aten_loss);
  EXPECT_NEAR(own_loss, aten_loss, 1e-5 * own_loss);
  expect_close(own, aten, "dlogits");
  EXPECT_EQ(aten[3].abs().sum().item<double>(), 0);
  EXPECT_EQ(aten[36].abs().sum().item<double>(), 0);
}

TEST_P(OnAten, SumsAgree) {
  const at::Tensor dy = random({40, 16});
  const at::Tensor tokens = at::randint(0, 11, {40}, at::TensorOptions().dtype(c10::kLong));
  for (const auto type : {GetParam(), c10::kFloat}) {
    for (const bool add : {false, true}) {
      const auto run = [&] {
        at::Tensor embedding = at::full({13, 16}, 0.5).to(type), columns = at::full({16}, 0.25).to(type), sum = at::full({40, 16}, 1.5).to(type);
        kernels::embedding_backward(embedding, add, dy, tokens);
        kernels::column_sums(dy, columns, add);
        kernels::accumulate(sum, dy);
        return std::vector{embedding, columns, sum};
      };
      const auto own = run();
      const kernels::AtenEverywhere switched;
      const auto aten = run();
      const char* names[] = {"embedding", "columns", "accumulate"};
      for (std::size_t i = 0; i < own.size(); ++i) expect_close(own[i], aten[i], names[i]);
    }
  }
}

TEST_P(OnAten, SquaresAndWhereNumbersEndAgree) {
  at::Tensor flat = random({70'001});
  const double own = kernels::sum_of_squares(flat);
  {
    const kernels::AtenEverywhere switched;
    EXPECT_NEAR(kernels::sum_of_squares(flat), own, 1e-10 * own);
    EXPECT_EQ(kernels::first_not_finite(flat), -1);
  }
  flat[66'000] = std::numeric_limits<float>::quiet_NaN();
  flat[69'000] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(kernels::first_not_finite(flat), 66'000);
  const kernels::AtenEverywhere switched;
  EXPECT_EQ(kernels::first_not_finite(flat), 66'000);
}

TEST_P(OnAten, AttentionAgrees) {
  // Laid out as segments lay it out: heads side by side in a row.
  const auto heads = [&](std::int64_t n) { return random({2, 40, n, 16}).transpose(1, 2); };
  const at::Tensor q = heads(4), k = heads(2), v = heads(2), grad = heads(4);
  const auto run = [&] {
    layers::Attention forward = layers::attention(q, k, v);
    layers::AttentionGradient backward = layers::attention_backward(grad, q, k, v, forward);
    EXPECT_TRUE(forward.out.transpose(1, 2).is_contiguous());
    return std::vector{forward.out, backward.q, backward.k, backward.v};
  };
  const auto own = run();
  const kernels::AtenEverywhere switched;
  const auto aten = run();
  const char* names[] = {"out", "dq", "dk", "dv"};
  for (std::size_t i = 0; i < own.size(); ++i) expect_close(own[i], aten[i], names[i]);
}

TEST_P(OnAten, RotationAgreesAndItsInverseUndoesIt) {
  layers::Rotary rotary(16, 10000, DType::kFloat32);
  const at::Tensor x = random({2, 30, 3, 16});
  at::Tensor own = x.clone(), aten = x.clone();
  rotary.apply_(own, false);
  const kernels::AtenEverywhere switched;
  rotary.apply_(aten, false);
  expect_close(own, aten, "rotated");
  rotary.apply_(aten, true);
  expect_close(x, aten, "turned back");
}

INSTANTIATE_TEST_SUITE_P(Types, OnAten, testing::Values(c10::kFloat, c10::kBFloat16),
                         [](const auto& each) { return std::string(c10::toString(each.param)); });

TEST(OptimizerOnAten, TakesTheSameStepInWholePieces) {
  const at::NoGradGuard no_grad;
  // Decay changes twice, and the pieces of a CPU are shorter than the first tensor.
  ParamGroup group;
  group.tensors.push_back({"a", {200'000}, {}, true, 0});
  group.tensors.push_back({"b", {64}, {}, false, 200'000});
  group.tensors.push_back({"c", {100}, {}, false, 200'064});
  group.tensors.push_back({"d", {100}, {}, true, 200'192});
  group.padded = 200'320;
  const at::Tensor weights = at::randn({200'320}), gradient = at::randn({200'320});
  for (const bool adamw : {true, false}) {
    const auto run = [&] {
      GroupState state;
      state.master = weights.clone();
      state.param = weights.to(c10::kBFloat16);
      state.exp_avg = at::full({200'320}, 0.1);
      state.exp_avg_sq = at::full({200'320}, 0.2);
      OptimizerOptions options;
      options.adamw = adamw;
      optimizer_step(state, group, gradient.to(c10::kBFloat16), 0.5, 1e-2, 3, options);
      return state;
    };
    const GroupState own = run();
    const kernels::AtenEverywhere switched;
    const GroupState aten = run();
    EXPECT_TRUE(own.master.equal(aten.master));
    EXPECT_TRUE(own.param.equal(aten.param));
    EXPECT_TRUE(own.exp_avg_sq.equal(aten.exp_avg_sq));
    EXPECT_FALSE(own.master.equal(weights));
  }
}

TEST(AttentionOperator, NamesTheFusedOneOrRefuses) {
  EXPECT_STREQ(kernels::aten::attention_operator(c10::kBFloat16, 64), "flash");
  EXPECT_STREQ(kernels::aten::attention_operator(c10::kFloat, 64), "efficient");
  EXPECT_THROW((void)kernels::aten::attention_operator(c10::kBFloat16, 60), Error);
  EXPECT_THROW((void)kernels::aten::attention_operator(c10::kHalf, 264), Error);
}

}  // namespace
}  // namespace wirewise
