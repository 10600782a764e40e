// A priced step as a Chrome trace: valid JSON that says what the report says.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "sim/hand_built.h"

namespace wirewise {
namespace {

TEST(ChromeTrace, HoldsEveryOpThatTakesTimeInItsLane) {
  const auto schedule = one_role({gather(2), compute(3, {0}), gather(2), compute(3, {2})}, 2);
  const Model model = two_segment_model();
  const auto report = price(schedule, kOwnLanes);
  const auto trace = nlohmann::json::parse(chrome_trace(report, schedule, model));
  std::map<int, std::string> lanes;
  std::vector<nlohmann::json> ops;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M" && event.at("name") == "thread_name") lanes[event.at("tid")] = event.at("args").at("name");
    if (event.at("ph") == "X") ops.push_back(event);
  }
  ASSERT_EQ(ops.size(), 4u);
  double end = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    EXPECT_DOUBLE_EQ(ops[i].at("ts").get<double>(), report.ops[i].start * 1e6);
    EXPECT_DOUBLE_EQ(ops[i].at("dur").get<double>(), (report.ops[i].end - report.ops[i].start) * 1e6);
    EXPECT_EQ(lanes.at(ops[i].at("tid")), name_of(schedule.programs[0].ops[i].lane));
    EXPECT_EQ(ops[i].at("name"), describe(schedule.programs[0].ops[i], model));
    EXPECT_EQ(ops[i].at("cat"), name_of(schedule.programs[0].ops[i].kind));
    end = std::max(end, ops[i].at("ts").get<double>() + ops[i].at("dur").get<double>());
  }
  EXPECT_DOUBLE_EQ(end, report.step * 1e6);
}

TEST(ChromeTrace, HostileNamesStayNames) {
  auto schedule = one_role({compute(1)}, 1);
  Model model = two_segment_model();
  model.units[0].name = "\"},{\n\x01\xff</script>";
  schedule.programs[0].role = "role\xfe\"";
  const auto trace = nlohmann::json::parse(chrome_trace(price(schedule, kSharedCore), schedule, model));
  int ops = 0;
  for (const auto& event : trace.at("traceEvents")) ops += event.at("ph") == "X" ? 1 : 0;
  EXPECT_EQ(ops, 1);
}

}  // namespace
}  // namespace wirewise
