// The word that was probably meant.
#include "wirewise/base/nearest.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace wirewise {
namespace {

TEST(EditDistance, CountsTheFourEdits) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("layers", "layer"), 1U);
  EXPECT_EQ(edit_distance("wdith", "width"), 1U);  // a swap
  EXPECT_EQ(edit_distance("ca", "abc"), 3U);       // alignment, not the unrestricted distance of 2
}

TEST(EditDistance, IsSymmetricAndBoundedByLengths) {
  const unsigned seed = 20240611;
  std::mt19937 random(seed);
  const auto word = [&] {
    std::string text(random() % 9, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    const std::string a = word();
    const std::string b = word();
    const std::size_t distance = edit_distance(a, b);
    ASSERT_EQ(distance, edit_distance(b, a)) << a << " " << b << " seed " << seed;
    ASSERT_LE(distance, std::max(a.size(), b.size()));
    ASSERT_GE(distance, std::max(a.size(), b.size()) - std::min(a.size(), b.size()));
    ASSERT_EQ(distance == 0, a == b);
  }
}

TEST(Nearest, FindsTyposAndOtherSpellings) {
  const std::vector<std::string> known{"layers", "width", "heads", "kv_heads", "micro_batch"};
  EXPECT_EQ(nearest("layer", known), "layers");
  EXPECT_EQ(nearest("WIDTH", known), "width");
  EXPECT_EQ(nearest("micro-batch", known), "micro_batch");
  EXPECT_EQ(nearest("kvheads", known), "kv_heads");
}

TEST(Nearest, MakesNoWildGuess) {
  const std::vector<std::string> known{"layers", "width"};
  EXPECT_FALSE(nearest("zzzzzzzz", known));
  EXPECT_FALSE(nearest("x", std::vector<std::string>{}));
}

TEST(Suggest, NamesTheGuessAndAllThatIsKnown) {
  const std::vector<std::string> known{"layers", "width"};
  EXPECT_EQ(suggest("widht", known), "Did you mean width? Known: layers, width.");
  EXPECT_EQ(suggest("quux_quux", known), "Known: layers, width.");
}

}  // namespace
}  // namespace wirewise
