#include "wirewise/cli/bench_fit_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "wirewise/base/text.h"

namespace wirewise::bench {
namespace {

constexpr double kUneven = 0.1;  // directions that differ by more are said to

std::string sizes_text(const std::vector<Bytes>& sizes) { return format_bytes(sizes.front()) + " to " + format_bytes(sizes.back()); }

std::string named(const std::vector<Bytes>& sizes) {
  std::string names;
  for (const Bytes size : sizes) names += (names.empty() ? "" : ", ") + format_bytes(size);
  return names;
}

void print_json(const std::vector<MeasuredLink>& links) {
  using Json = nlohmann::ordered_json;
  for (const MeasuredLink& one : links) {
    Json medians = Json::array();
    for (const Seconds time : one.fit.medians) medians.push_back(time * 1e6);
    std::cout << Json{{"class", one.pair.name},
                      {"from", one.pair.from},
                      {"to", one.pair.to},
                      {"alpha_us", one.alpha_of_link * 1e6},
                      {"message_alpha_us", one.fit.alpha * 1e6},
                      {"beta_GBps", one.fit.beta / 1e9},
                      {"residual", one.fit.residual},
                      {"other_direction", one.other_direction},
                      {"sizes", one.fit.sizes},
                      {"median_us", std::move(medians)},
                      {"left_out", one.fit.left_out},
                      {"saved", one.saved}}
                     .dump(-1, ' ', false, Json::error_handler_t::replace)
              << "\n";
  }
}

void print_table(const std::vector<MeasuredLink>& links) {
  std::cout << fmt::format("{:<26}{:>12}{:>14}{:>12}{:>10}  {}\n", "class", "ranks", "alpha us", "GB/s", "off by", "sizes");
  for (const MeasuredLink& one : links) {
    std::string row =
        fmt::format("{:<26}{:>12}{:>14.4g}{:>12.4g}{:>8.2g} %  {}", one.pair.name, fmt::format("{}, {}", one.pair.from, one.pair.to),
                    one.fit.alpha * 1e6, one.fit.beta / 1e9, one.fit.residual * 100, sizes_text(one.fit.sizes));
    if (!one.fit.left_out.empty()) row += ", off the line: " + named(one.fit.left_out);
    std::cout << row << "\n";
  }
}

}  // namespace

void print_links(const std::vector<MeasuredLink>& links, bool json) {
  if (json) return print_json(links);
  print_table(links);
}

void print_notes(const std::vector<MeasuredLink>& links, const std::vector<std::string>& left_out, const std::string& file, bool json, bool fresh) {
  std::ostream& notes = json ? std::cerr : std::cout;
  for (const MeasuredLink& one : links) {
    if (one.other_direction > 1 + kUneven)
      notes << fmt::format("{}: the other direction gets {:.3g} times as much; the slower one is kept.\n", one.pair.name,
                           one.other_direction);
    if (!one.saved) notes << one.pair.name << ": not kept, the description has no such link.\n";
  }
  for (const std::string& line : left_out) notes << printable(line) << "\n";
  const bool any = std::any_of(links.begin(), links.end(), [](const MeasuredLink& one) { return one.saved; });
  notes << (!any ? "Nothing to keep: " + printable(file) + " is as it was.\n"
                 : printable(file) + (fresh ? " is written.\n" : " has these figures now; all else in it is as it was.\n"));
  std::cout << std::flush;
}

}  // namespace wirewise::bench
