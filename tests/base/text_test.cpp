// Helpers on text.
#include "wirewise/base/text.h"

#include <gtest/gtest.h>

namespace wirewise {
namespace {

TEST(Split, KeepsEmptyParts) {
  EXPECT_EQ(split("", ','), (std::vector<std::string>{}));
  EXPECT_EQ(split("a", ','), (std::vector<std::string>{"a"}));
  EXPECT_EQ(split("a,,b,", ','), (std::vector<std::string>{"a", "", "b", ""}));
}

TEST(Join, UndoesSplit) {
  for (const char* text : {"a", "a,b", "a,,b,", ","}) EXPECT_EQ(join(split(text, ','), ","), text);
}

TEST(ParseInteger, TakesWholeNumbersOnly) {
  EXPECT_EQ(parse_integer("29500"), 29500);
  EXPECT_EQ(parse_integer("-3"), -3);
  for (const char* text : {"", " 1", "1 ", "1.0", "0x1", "12a", "9223372036854775808", "+1"})
    EXPECT_FALSE(parse_integer(text)) << text;
}

TEST(Printable, EscapesControlsAndBrokenUtf8ButKeepsText) {
  EXPECT_EQ(printable("Grüße, 世界 🙂"), "Grüße, 世界 🙂");
  EXPECT_EQ(printable("a\x1b[31mb\n"), "a\\x1b[31mb\\x0a");
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");           // a control sequence introducer in one character
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // half of a surrogate pair
}

TEST(Utf8, IsToldFromBytesThatOnlyLookLikeIt) {
  for (const char* text : {"", "plain", "Grüße, 世界 🙂"}) EXPECT_TRUE(is_utf8(text)) << text;
  for (const char* text : {"\xff", "a\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80"}) EXPECT_FALSE(is_utf8(text)) << printable(text);
}

}  // namespace
}  // namespace wirewise
