// What is said of a curve of bandwidths over sizes: falls past the peak.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "wirewise/cli/bench_report.h"

namespace wirewise::bench {
namespace {

std::vector<Result> curve(const std::vector<std::pair<Bytes, double>>& points, bool in_place = false) {
  std::vector<Result> results;
  for (const auto& [size, bandwidth] : points) {
    Result result;
    result.size = size;
    result.busbw_GBps = bandwidth;
    result.in_place = in_place;
    results.push_back(result);
  }
  return results;
}

TEST(BenchWarning, AFallPastThePeakNamesItsSizes) {
  // 4 x 8 GPUs: 29.5 GB/s at 32 MiB, 5.3 GB/s from 64 MiB on.
  const auto results = curve({{8, 0.01}, {Bytes{1} << 20, 9}, {Bytes{32} << 20, 29.5}, {Bytes{64} << 20, 5.3}, {Bytes{128} << 20, 5.4}});
  const auto warnings = monotone_warnings(results, 32, 0);
  ASSERT_EQ(warnings.size(), 1U);
  for (const char* text : {"all_reduce", "29.50 GB/s at 32.00 MiB", "5.30 GB/s at 64.00 MiB"}) {
    EXPECT_NE(warnings[0].find(text), std::string::npos) << warnings[0];
  }
}

TEST(BenchWarning, RisingFlatAndSlightlyFallingCurvesPass) {
  EXPECT_TRUE(monotone_warnings(curve({{8, 1}, {16, 2}, {32, 3}}), 2, 0).empty());
  EXPECT_TRUE(monotone_warnings(curve({{8, 3}, {16, 3}}), 2, 0).empty());
  EXPECT_TRUE(monotone_warnings(curve({{8, 1}, {16, 30}, {32, 21}}), 2, 0).empty());
  EXPECT_TRUE(monotone_warnings(curve({{8, 1}}), 2, 0).empty());
  EXPECT_TRUE(monotone_warnings({}, 2, 0).empty());
  // A dip before the peak is no fall past it.
  EXPECT_TRUE(monotone_warnings(curve({{8, 10}, {16, 1}, {32, 30}}), 2, 0).empty());
}

TEST(BenchWarning, CurvesOfDifferentFormsAreApartAndOrderDoesNotMatter) {
  auto results = curve({{32, 1}, {16, 30}});
  const auto others = curve({{64, 0.5}}, true);
  results.insert(results.end(), others.begin(), others.end());
  EXPECT_EQ(monotone_warnings(results, 2, 0).size(), 1U);
}

TEST(BenchWarning, LeavingTheCacheIsSaid) {
  const auto results = curve({{Bytes{1} << 20, 90}, {Bytes{64} << 20, 16}});
  EXPECT_NE(monotone_warnings(results, 2, Bytes{32} << 20).at(0).find("last-level cache"), std::string::npos);
  EXPECT_EQ(monotone_warnings(results, 2, 0).at(0).find("last-level cache"), std::string::npos);
  const auto beyond = curve({{Bytes{64} << 20, 16}, {Bytes{256} << 20, 4}});
  EXPECT_EQ(monotone_warnings(beyond, 2, Bytes{32} << 20).at(0).find("last-level cache"), std::string::npos);
}

}  // namespace
}  // namespace wirewise::bench
