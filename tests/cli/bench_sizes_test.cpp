// Sizes of messages as users write them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/cli/bench_sizes.h"

namespace wirewise::bench {
namespace {

TEST(BenchSizes, AreBinaryAndInTheOrderGiven) {
  EXPECT_EQ(parse_sizes("8"), (std::vector<Bytes>{8}));
  EXPECT_EQ(parse_sizes("1M,8,64K"), (std::vector<Bytes>{1 << 20, 8, 64 << 10}));
  EXPECT_EQ(parse_sizes("0,3G"), (std::vector<Bytes>{0, Bytes{3} << 30}));
}

TEST(BenchSizes, RangesGoByFactorsOrStepsUpToTheLast) {
  EXPECT_EQ(parse_sizes("8:256:x4"), (std::vector<Bytes>{8, 32, 128}));
  EXPECT_EQ(parse_sizes("8:512:x4"), (std::vector<Bytes>{8, 32, 128, 512}));
  EXPECT_EQ(parse_sizes("8:32:+8"), (std::vector<Bytes>{8, 16, 24, 32}));
  EXPECT_EQ(parse_sizes("0:10:+4"), (std::vector<Bytes>{0, 4, 8}));
  EXPECT_EQ(parse_sizes("1K:4K"), (std::vector<Bytes>{1024, 2048, 4096}));
  EXPECT_EQ(parse_sizes("7:7:x2,1:2"), (std::vector<Bytes>{7, 1, 2}));
  EXPECT_EQ(parse_sizes("8:64M:x8").back(), Bytes{16} << 20);
}

TEST(BenchSizes, RangesEndWhereNumbersDo) {
  EXPECT_EQ(parse_sizes("9223372036854775808:18446744073709551615:x2").size(), 1U);
  EXPECT_EQ(parse_sizes("18446744073709551610:18446744073709551615:+4").size(), 2U);
}

TEST(BenchSizes, MistakesNameThePartAndTheForms) {
  for (const char* text : {"", ",", "8,", "x", "-8", "8.5", "8:4", "8:", ":8", "8:64:4", "8:64:x", "8:64:x1", "8:64:x0", "8:64:+0", "0:8:x2", "8:64:x2:2",
                           "8:64:*2", "1Q", "0:1G:+1", "18446744073709551616"}) {
    try {
      const auto sizes = parse_sizes(text);
      ADD_FAILURE() << '"' << text << "\" gave " << sizes.size() << " sizes";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << text;
      EXPECT_NE(error.sentence().find("--sizes"), std::string::npos) << error.what();
      EXPECT_FALSE(error.remedy().empty()) << text;
    }
  }
}

}  // namespace
}  // namespace wirewise::bench
