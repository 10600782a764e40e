// Sizes and times as people write and read them.
#include "wirewise/base/units.h"

#include <gtest/gtest.h>

#include <string>

#include "wirewise/base/error.h"

namespace wirewise {
namespace {

TEST(ParseSize, ReadsBinarySuffixesInAnyCase) {
  EXPECT_EQ(parse_size("8"), 8U);
  EXPECT_EQ(parse_size("0"), 0U);
  for (const char* text : {"64K", "64k", "64KB", "64kb", "64KiB", "64 KiB", "65536B", "65536"})
    EXPECT_EQ(parse_size(text), 65536U) << text;
  EXPECT_EQ(parse_size("1M"), 1048576U);
  EXPECT_EQ(parse_size("2G"), 2147483648U);
  EXPECT_EQ(parse_size("1T"), 1099511627776U);
  EXPECT_EQ(parse_size("18446744073709551615"), 18446744073709551615U);
}

TEST(ParseSize, RefusesEachKindOfNonsenseNamingIt) {
  for (const std::string text :
       {"", "K", "-1", "+1", "1.5G", "64X", "64 K B", " 64K", "18446744073709551616", "16777216T", "1e3", "0x10"}) {
    try {
      (void)parse_size(text);
      ADD_FAILURE() << "accepted " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_NE(error.sentence().find("\"" + text + "\""), std::string::npos) << error.what();
      EXPECT_FALSE(error.remedy().empty());
    }
  }
}

TEST(FormatBytes, IsBinaryAndSaysSo) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(kMiB - 1), "1.00 MiB");
  EXPECT_EQ(format_bytes(3 * kGiB + kGiB / 4), "3.25 GiB");
  EXPECT_EQ(format_bytes(~Bytes{0}), "16.00 EiB");
}

TEST(FormatSeconds, PicksTheUnitAndRoundsAcrossItsEdge) {
  EXPECT_EQ(format_seconds(0), "0 s");
  EXPECT_EQ(format_seconds(12.3e-6), "12.3 us");
  EXPECT_EQ(format_seconds(0.9996e-3), "1.00 ms");
  EXPECT_EQ(format_seconds(4.56e-3), "4.56 ms");
  EXPECT_EQ(format_seconds(0.9996), "1.00 s");
  EXPECT_EQ(format_seconds(1.234), "1.23 s");
  EXPECT_EQ(format_seconds(59.96), "1 m 00 s");
  EXPECT_EQ(format_seconds(125), "2 m 05 s");
  EXPECT_EQ(format_seconds(3 * 3600 + 7 * 60), "3 h 07 m");
  EXPECT_EQ(format_seconds(3599.9), "1 h 00 m");
  EXPECT_EQ(format_seconds(-1.5), "-1.50 s");
}

}  // namespace
}  // namespace wirewise
