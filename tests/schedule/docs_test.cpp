// docs/schedule.md shows real listings: each is generated from the comment before it and must equal what the page holds. With
// WIREWISE_WRITE_DOCS set, the page is written instead.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "schedule/fixtures.h"
#include "wirewise/schedule/listing.h"

namespace wirewise::test {
namespace {

const std::string kPage = std::string(WIREWISE_SOURCE_DIR) + "/docs/schedule.md";
const std::string kMarker = "<!-- listing:";

std::map<std::string, std::string> options_of(const std::string& marker) {
  std::map<std::string, std::string> options;
  std::istringstream words(marker.substr(kMarker.size()));
  for (std::string word; words >> word;) {
    if (const auto equals = word.find('='); equals != std::string::npos)
      options[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return options;
}

std::string listing_of(std::map<std::string, std::string> options) {
  Strategy strategy = strategy_of(std::stoi(options.at("zero")), 2);
  strategy.prefetch = std::stoi(options.at("prefetch"));
  if (options["alias"] == "on") strategy.alias = Alias::kOn;
  Model model = small_gpt(1, 2, false, strategy);
  // Round figures, so that the page speaks of schedules rather than of kernels.
  const Bytes saved[] = {0, 16 * kKiB, 32 * kKiB, 64 * kKiB};
  std::size_t next = 0;
  for (auto& unit : model.units) {
    for (auto& segment : unit.segments) segment.cost.saved = saved[next++];
  }
  const Schedule schedule = build_train_schedule(model, strategy, 2, {});
  const std::string text = list_program(schedule.programs[0], model);
  if (options["part"] != "backward") return text;
  const auto first = text.find("  compute  backward");
  return text.substr(text.rfind('\n', first) + 1);
}

/// The page with every listing made anew.
std::string fresh(const std::string& page, int& listings) {
  std::istringstream lines(page);
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    result += line + "\n";
    if (!line.starts_with(kMarker)) continue;
    const auto options = options_of(line);
    std::getline(lines, line);
    EXPECT_EQ(line, "```");
    while (std::getline(lines, line) && line != "```") {
    }
    result += "```\n" + listing_of(options) + "```\n";
    ++listings;
  }
  return result;
}

TEST(ScheduleDocs, ListingsAreWhatTheBuilderMakes) {
  std::ifstream in(kPage);
  ASSERT_TRUE(in) << kPage;
  std::stringstream text;
  text << in.rdbuf();
  int listings = 0;
  const std::string page = fresh(text.str(), listings);
  EXPECT_EQ(listings, 6);
  if (std::getenv("WIREWISE_WRITE_DOCS") != nullptr) {
    std::ofstream(kPage) << page;
  } else {
    EXPECT_EQ(text.str(), page) << "run this test with WIREWISE_WRITE_DOCS=1";
  }
}

}  // namespace
}  // namespace wirewise::test
