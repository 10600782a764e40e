// The fit of alpha and beta: closed forms, noise and outliers with known truth.
#include "wirewise/wiring/link_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "wirewise/base/error.h"

namespace wirewise {
namespace {

const std::vector<Bytes> kSizes{8, 128, 1024, 8192, 65536, 262144, 1 << 20, 4 << 20, 16 << 20};

std::vector<MessageTime> line(double alpha, double beta) {
  std::vector<MessageTime> all;
  for (const Bytes size : kSizes) all.push_back({size, alpha + static_cast<double>(size) / beta});
  return all;
}

TEST(LinkFit, APureLineIsFoundToTheLastDigits) {
  for (const auto& [alpha, beta] : {std::pair{1e-6, 10e9}, std::pair{50e-6, 125e6}, std::pair{0.0, 3e9}, std::pair{2e-3, 5e11}}) {
    const LinkFit fit = fit_link(line(alpha, beta));
    EXPECT_NEAR(fit.alpha, alpha, 1e-9 * alpha + 1e-15);
    EXPECT_NEAR(fit.beta / beta, 1, 1e-9);
    EXPECT_EQ(fit.residual, 0);  // and not what rounding leaves
    EXPECT_TRUE(fit.left_out.empty());
    EXPECT_EQ(fit.sizes, kSizes);
  }
}

TEST(LinkFit, TwoSizesLieOnTheirLine) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> some(1, 10);
    const double alpha = some(random) * 1e-6;
    const std::vector<MessageTime> two{{8, alpha}, {1 << 20, alpha + some(random) * 1e-4}};
    EXPECT_EQ(fit_link(two).residual, 0) << "seed " << seed;
  }
}

TEST(LinkFit, SmallSizesDecideAlphaAndLargeOnesBeta) {
  // Twice the time of the two largest sizes halves beta and leaves alpha; twice that of the three smallest doubles alpha and leaves beta.
  auto slow = line(20e-6, 1e9);
  for (MessageTime& one : slow) one.time = 20e-6 + (one.time - 20e-6) * 2;
  const LinkFit halved = fit_link(slow);
  EXPECT_NEAR(halved.beta / 0.5e9, 1, 1e-6);
  EXPECT_NEAR(halved.alpha / 20e-6, 1, 1e-6);
  // An error of 5 % of the largest message is a hundred times alpha: by its absolute size it would drown alpha.
  auto noisy = line(1e-6, 1e9);
  noisy.back().time *= 1.05;
  EXPECT_NEAR(fit_link(noisy).alpha / 1e-6, 1, 0.05);
}

TEST(LinkFit, NoiseAndOutliersMoveItLittle) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    std::lognormal_distribution<double> noise(0, 0.05);
    std::uniform_real_distribution<double> even(0, 1);
    const double alpha = std::pow(10, -6.3 + 3 * even(random)), beta = std::pow(10, 7.5 + 3 * even(random));
    if (alpha * beta < 4096) continue;                         // less than three sizes would tell alpha
    std::vector<std::size_t> wild{0, 1, 2, 3, 4, 5, 6, 7, 8};  // two sizes of nine that are off as a whole, but not both ends of the line
    std::shuffle(wild.begin(), wild.end(), random);
    wild.resize(2);
    std::vector<MessageTime> all;
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      const bool off = std::find(wild.begin(), wild.end(), i) != wild.end() && i != 0 && i + 1 != kSizes.size();
      for (int message = 0; message < 15; ++message) {
        double time = (alpha + static_cast<double>(kSizes[i]) / beta) * noise(random);
        if (off) time *= 3;
        if (even(random) < 0.2) time *= 10 + 90 * even(random);  // a fifth of all messages was disturbed
        all.push_back({kSizes[i], time});
      }
    }
    const LinkFit fit = fit_link(all);
    EXPECT_NEAR(fit.alpha / alpha, 1, 0.2) << "seed " << seed;
    EXPECT_NEAR(fit.beta / beta, 1, 0.2) << "seed " << seed;
  }
}

TEST(LinkFit, SizesOffTheLineAreNamed) {
  auto all = line(10e-6, 1e9);
  all[4].time *= 5;
  const LinkFit fit = fit_link(all);
  EXPECT_EQ(fit.left_out, std::vector<Bytes>{kSizes[4]});
  EXPECT_NEAR(fit.alpha / 10e-6, 1, 1e-6);
  EXPECT_NEAR(fit.beta / 1e9, 1, 1e-6);
}

TEST(LinkFit, LatencyIsNeverNegative) {
  // Concave: the line through large sizes would start below 0.
  std::vector<MessageTime> all;
  for (const Bytes size : kSizes) all.push_back({size, std::pow(static_cast<double>(size), 1.2) * 1e-10});
  EXPECT_GE(fit_link(all).alpha, 0);
}

TEST(LinkFit, WhatCantBeFittedIsRefused) {
  const auto kind = [](const std::vector<MessageTime>& messages) {
    try {
      (void)fit_link(messages);
    } catch (const Error& error) {
      return error.kind();
    }
    ADD_FAILURE() << "accepted";
    return ErrorKind::kMismatch;
  };
  EXPECT_EQ(kind({}), ErrorKind::kBadInput);
  EXPECT_EQ(kind({{8, 1e-6}, {8, 2e-6}}), ErrorKind::kBadInput);
  EXPECT_EQ(kind({{8, 0.0}, {16, 1e-6}}), ErrorKind::kBadInput);
  EXPECT_EQ(kind({{8, 2e-6}, {1024, 1e-6}, {65536, 1e-6}}), ErrorKind::kFailed);
}

}  // namespace
}  // namespace wirewise
