// A priced step as a Chrome trace: a process for each role, a thread for each lane.
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "wirewise/sim/simulate.h"

namespace wirewise {
namespace {

using Json = nlohmann::ordered_json;
constexpr double kMicroseconds = 1e6;  // the format's unit

Json name_event(const char* what, int process, int thread, std::string_view name) {
  return {{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

}  // namespace

std::string chrome_trace(const SimReport& report, const Schedule& schedule, const Model& model) {
  Json events = Json::array();
  for (std::size_t p = 0; p < schedule.programs.size(); ++p) {
    const int process = static_cast<int>(p);
    events.push_back(name_event("process_name", process, 0, schedule.programs[p].role));
    std::set<Lane> lanes;
    for (const auto& op : schedule.programs[p].ops) lanes.insert(op.lane);
    for (Lane lane : lanes) events.push_back(name_event("thread_name", process, static_cast<int>(lane), name_of(lane)));
  }
  for (const auto& priced : report.ops) {
    if (priced.end <= priced.start) continue;  // frees take no time; viewers draw empty events badly
    const Op& op = schedule.programs.at(static_cast<std::size_t>(priced.program)).ops.at(static_cast<std::size_t>(priced.op));
    Json args = {{"op", priced.op}};
    if (op.bytes > 0) args["bytes"] = op.bytes;
    if (op.flops > 0) args["flops"] = op.flops;
    if (priced.exposed > 0) args["exposed_us"] = priced.exposed * kMicroseconds;
    events.push_back({{"name", describe(op, model)},
                      {"cat", name_of(op.kind)},
                      {"ph", "X"},
                      {"ts", priced.start * kMicroseconds},
                      {"dur", (priced.end - priced.start) * kMicroseconds},
                      {"pid", priced.program},
                      {"tid", static_cast<int>(op.lane)},
                      {"args", std::move(args)}});
  }
  const Json trace = {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  // Names come from users' models: bytes that aren't UTF-8 are replaced, not fatal.
  return trace.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace wirewise
