// ZeRO's memory formula against the published table, and what follows from it.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/strategy/strategy.h"

namespace wirewise {
namespace {

/// The table prints some figures rounded and some cut off: either is its own rounding of the exact value.
bool prints_as(double exact, const std::string& printed) {
  const auto point = printed.find('.');
  const auto digits = point == std::string::npos ? 0 : printed.size() - point - 1;
  const double scale = std::pow(10.0, static_cast<double>(digits)), last_digit = std::round(std::stod(printed) * scale);
  constexpr double kNoise = 1e-9;  // of the arithmetic, relative to the last digit
  return last_digit >= std::floor(exact * scale - kNoise) && last_digit <= std::ceil(exact * scale + kNoise);
}

TEST(ZeroModelStates, AllRowsOfThePublishedTable) {
  std::ifstream file(WIREWISE_SOURCE_DIR "/data/zero_memory_table.csv");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  ASSERT_EQ(line, "source,psi_b,nd,p_os_gb,p_os_g_gb,p_os_g_p_gb");
  int rows = 0;
  while (std::getline(file, line)) {
    const auto fields = split(line, ',');
    ASSERT_EQ(fields.size(), 6u) << line;
    const double parameters = std::stod(fields[1]) * 1e9;
    const int shards = std::stoi(fields[2]);
    for (int zero = 1; zero <= 3; ++zero) {
      const double gigabytes = zero_model_states(zero, parameters, shards).total() / 1e9;
      EXPECT_TRUE(prints_as(gigabytes, fields[static_cast<std::size_t>(2 + zero)]))
          << line << ": zero" << zero << " gives " << gigabytes;
    }
    ++rows;
  }
  EXPECT_EQ(rows, 18);
}

TEST(ZeroModelStates, DataParallelHoldsSixteenBytesAParameterWhateverTheRanks) {
  for (int shards : {1, 2, 1024}) EXPECT_DOUBLE_EQ(zero_model_states(0, 7.5e9, shards).total(), 120e9);
}

TEST(ZeroModelStates, EachStageShardsOneMoreStateThanTheOneBefore) {
  for (int zero = 0; zero <= 3; ++zero) {
    const auto states = zero_model_states(zero, 1000, 8, 4, 4, 8);
    EXPECT_DOUBLE_EQ(states.parameters, zero >= 3 ? 500 : 4000);
    EXPECT_DOUBLE_EQ(states.gradients, zero >= 2 ? 500 : 4000);
    EXPECT_DOUBLE_EQ(states.optimizer, zero >= 1 ? 1000 : 8000);
  }
}

TEST(ZeroModelStates, RefusesStagesAndShardsThatDoNotExist) {
  EXPECT_THROW((void)zero_model_states(4, 1, 1), Error);
  EXPECT_THROW((void)zero_model_states(-1, 1, 1), Error);
  EXPECT_THROW((void)zero_model_states(3, 1, 0), Error);
}

}  // namespace
}  // namespace wirewise
