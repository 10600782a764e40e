#include "wirewise/cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

namespace wirewise::bench {
namespace {

/// Seven columns or fewer, as nccl-tests prints times.
std::string time_text(double microseconds) {
  const int decimals = microseconds < 99.995 ? 2 : microseconds < 9999.95 ? 1 : 0;
  return fmt::format("{:.{}f}", microseconds, decimals);
}

std::string form_columns(const std::optional<Result>& result) {
  if (!result) return fmt::format(" {:>8} {:>7} {:>7} {:>6}", "N/A", "N/A", "N/A", "N/A");
  return fmt::format(" {:>8} {:>7.2f} {:>7.2f} {:>6}", time_text(result->time_us), result->algbw_GBps, result->busbw_GBps, result->wrong);
}

std::string extra_columns(const std::optional<Result>& result) {
  if (!result) return fmt::format(" {:>8} {:>8} {:>6}", "N/A", "N/A", "N/A");
  const std::string limit = result->limit_fraction > 0 ? fmt::format("{:.3f}", result->limit_fraction) : "N/A";
  return fmt::format(" {:>8} {:>8} {:>6}", time_text(result->p50_us), time_text(result->p99_us), limit);
}

double mean_bus_bandwidth(std::span<const Result> results) {
  double sum = 0;
  std::size_t count = 0;
  for (const Result& result : results) {
    if (result.size == 0) continue;
    sum += result.busbw_GBps;
    ++count;
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

std::string size_text(Bytes bytes) { return format_bytes(bytes); }

/// Bytes that one call touches on the whole host.
double working_set(const Result& result, int ranks) {
  const Shape shape = shape_of(result.op, result.dtype, result.size, ranks);
  return static_cast<double>(ranks) * static_cast<double>(result.in_place ? std::max(shape.in, shape.out) : shape.in + shape.out);
}

}  // namespace

std::string table_header() {
  return fmt::format(
      "# {:>10} {:>12} {:>8} {:>6} {:>4} {:>31} {:>31} {:>24} {:>24}\n"
      "# {:>10} {:>12} {:>8} {:>6} {:>4}",
      "", "", "", "", "", "out-of-place           ", "in-place             ", "out-of-place     ", "in-place       ", "size", "count", "type", "redop",
      "root") +
         fmt::format(" {:>8} {:>7} {:>7} {:>6} {:>8} {:>7} {:>7} {:>6} {:>8} {:>8} {:>6} {:>8} {:>8} {:>6}\n", "time", "algbw", "busbw", "#wrong", "time",
                     "algbw", "busbw", "#wrong", "p50", "p99", "limit", "p50", "p99", "limit") +
         fmt::format("# {:>10} {:>12} {:>8} {:>6} {:>4} {:>8} {:>7} {:>7} {:>6} {:>8} {:>7} {:>7} {:>6} {:>8} {:>8} {:>6} {:>8} {:>8} {:>6}\n", "(B)",
                     "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "", "(us)", "(us)", "");
}

std::string table_row(const std::optional<Result>& out_of_place, const std::optional<Result>& in_place) {
  const Result& any = out_of_place ? *out_of_place : in_place.value();
  return fmt::format("  {:>10} {:>12} {:>8} {:>6} {:>4}", any.size, any.count, name_of(any.dtype), any.redop, any.root) + form_columns(out_of_place) +
         form_columns(in_place) + extra_columns(out_of_place) + extra_columns(in_place) + "\n";
}

std::string json_line(const Result& result) {
  nlohmann::ordered_json line;
  line["op"] = name_of(result.op);
  line["size"] = result.size;
  line["count"] = result.count;
  line["dtype"] = name_of(result.dtype);
  line["redop"] = result.redop;
  line["root"] = result.root;
  line["inplace"] = result.in_place;
  line["time_us"] = result.time_us;
  line["p50_us"] = result.p50_us;
  line["p99_us"] = result.p99_us;
  line["algbw_GBps"] = result.algbw_GBps;
  line["busbw_GBps"] = result.busbw_GBps;
  line["wrong"] = result.wrong;
  line["limit_fraction"] = result.limit_fraction;
  return line.dump();
}

std::string footer(std::span<const Result> results) {
  std::size_t wrong = 0;
  for (const Result& result : results) wrong += result.wrong;
  return fmt::format("# Out of bounds values : {} {}\n# Avg bus bandwidth    : {:.4f}\n", wrong, wrong == 0 ? "OK" : "FAILED",
                     mean_bus_bandwidth(results));
}

std::vector<std::string> monotone_warnings(std::span<const Result> results, int ranks, Bytes cache) {
  using Curve = std::tuple<Op, DType, std::string, bool>;
  std::vector<std::pair<Curve, std::vector<const Result*>>> curves;
  for (const Result& result : results) {
    if (result.size == 0) continue;
    const Curve key{result.op, result.dtype, result.redop, result.in_place};
    auto found = std::find_if(curves.begin(), curves.end(), [&](const auto& curve) { return curve.first == key; });
    if (found == curves.end()) found = curves.insert(curves.end(), {key, {}});
    found->second.push_back(&result);
  }
  std::vector<std::string> warnings;
  for (auto& [key, points] : curves) {
    std::stable_sort(points.begin(), points.end(), [](const Result* a, const Result* b) { return a->size < b->size; });
    const auto by_bandwidth = [](const Result* a, const Result* b) { return a->busbw_GBps < b->busbw_GBps; };
    const auto peak = std::max_element(points.begin(), points.end(), by_bandwidth);
    const auto fallen = std::find_if(peak, points.end(), [&](const Result* point) { return point->busbw_GBps < (*peak)->busbw_GBps * 2 / 3; });
    if (fallen == points.end()) continue;
    const Result& high = **peak;
    const Result& low = **fallen;
    std::string text = fmt::format("{}{} {}: bus bandwidth falls from {:.2f} GB/s at {} to {:.2f} GB/s at {}", name_of(high.op),
                                   high.in_place ? " in place" : "", name_of(high.dtype), high.busbw_GBps, size_text(high.size), low.busbw_GBps,
                                   size_text(low.size));
    if (cache > 0 && working_set(high, ranks) <= static_cast<double>(cache) && working_set(low, ranks) > static_cast<double>(cache) / 2) {
      text += fmt::format("; between them the ranks' buffers outgrow the last-level cache ({}); --cold leaves its help out", size_text(cache));
    } else {
      text += ". A larger message should not be slower: look for another algorithm or path chosen from there on";
    }
    warnings.push_back(text + ".");
  }
  return warnings;
}

}  // namespace wirewise::bench
