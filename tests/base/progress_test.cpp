// The bar on a terminal, the lines elsewhere.
#include "wirewise/base/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace wirewise {
namespace {

/// Progress that writes into a string under a clock that the test moves.
struct Bench {
  explicit Bench(bool interactive) : terminal{interactive, false, 80} {}
  Terminal terminal;
  std::string text;
  Seconds now = 100;
  Progress progress{"train", 200, terminal, [this](std::string_view piece) { text += piece; }, [this] { return now; }, 10};
};

std::size_t columns(const std::string& text) {
  std::size_t count = 0;
  bool escape = false;
  for (const char c : text) {
    if (c == '\x1b') escape = true;
    if (!escape && (static_cast<unsigned char>(c) & 0xC0U) != 0x80) ++count;
    if (escape && c == 'm') escape = false;
  }
  return count;
}

TEST(RenderBar, FitsEveryWidthWithAndWithoutColour) {
  for (int width = 1; width < 200; ++width) {
    for (const bool colour : {false, true}) {
      const std::string line = render_bar("train", 84, 200, 12, "loss 3.21", {true, colour, width});
      ASSERT_LE(columns(line), static_cast<std::size_t>(std::max(width - 1, 1))) << width << line;
    }
  }
  EXPECT_EQ(render_bar("train", 100, 200, 12, "", {true, false, 60}),
            "train  50% |##############              | 100/200 0:12 left");
}

TEST(RenderBar, HasNoEscapesWithoutColour) {
  EXPECT_EQ(render_bar("x", 1, 2, -1, "", {true, false, 80}).find('\x1b'), std::string::npos);
  EXPECT_NE(render_bar("x", 1, 2, -1, "", {true, true, 80}).find('\x1b'), std::string::npos);
}

TEST(Progress, PlainLinesComeAtTheirIntervalAndAtTheEnd) {
  Bench bench(false);
  for (std::uint64_t step = 0; step <= 200; ++step) {
    bench.progress.update(step, "loss " + std::to_string(step));
    bench.now += 0.2;
  }
  bench.progress.finish();
  // The first, one in each of the four 10 s that 40 s hold (the last is the end itself).
  EXPECT_EQ(std::count(bench.text.begin(), bench.text.end(), '\n'), 5) << bench.text;
  EXPECT_EQ(bench.text.find('\r'), std::string::npos);
  EXPECT_NE(bench.text.find("train 100% 200/200 0:00 left  loss 200\n"), std::string::npos) << bench.text;
}

TEST(Progress, TimeLeftCountsFromTheFirstUpdateOfAResumedRun) {
  Bench bench(false);
  bench.progress.update(100);  // resumed here
  bench.now += 50;
  bench.progress.update(150);  // a second a step
  EXPECT_NE(bench.text.find("150/200 0:50 left"), std::string::npos) << bench.text;
}

TEST(Progress, NotesStandOnLinesOfTheirOwnAboveTheBar) {
  Bench bench(true);
  bench.progress.update(10);
  bench.progress.note("validation loss 3.2");
  bench.progress.finish();
  EXPECT_NE(bench.text.find("\r\x1b[Kvalidation loss 3.2\n\r\x1b[Ktrain"), std::string::npos) << bench.text;
  EXPECT_EQ(bench.text.back(), '\n');
}

TEST(Progress, WritesNothingWithoutAnUpdate) {
  Bench bench(true);
  bench.progress.finish();
  bench.progress.update(3);
  EXPECT_EQ(bench.text, "");
}

}  // namespace
}  // namespace wirewise
