#include "wirewise/wiring/collective_curves.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "wirewise/base/text.h"
#include "wirewise/wiring/embedded.h"
#include "wirewise/wiring/link_classes.h"

namespace wirewise {
namespace {

struct Row {
  Bytes bytes = 0;
  Seconds time = 0;
  BytesPerSecond bus = 0;
};

struct Curves {
  std::map<int, std::vector<std::pair<double, Seconds>>> above;  // by GPUs: logarithm of the size, time above bandwidth's
  std::string source;
};

double number(const std::string& text) {
  double value = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::map<std::pair<LinkKind, int>, Curves> load() {
  std::map<std::pair<LinkKind, int>, std::map<int, std::vector<Row>>> rows;
  std::map<std::pair<LinkKind, int>, std::set<std::string>> sources;
  bool head = true;
  for (const std::string& line : split(embedded("collective_curves.csv"), '\n')) {
    const std::vector<std::string> cells = split(line, ',');
    if (std::exchange(head, false) || cells.size() < 8 || cells[2] != "all_reduce" || cells[7] != "yes") continue;
    const LinkClass& of = link_class(cells[1]);
    const std::pair key{of.kind, of.generation};
    rows[key][static_cast<int>(number(cells[3]))].push_back(
        {static_cast<Bytes>(number(cells[4])), number(cells[5]) * 1e-6, number(cells[6]) * 1e9});
    sources[key].insert(cells[8].substr(0, cells[8].find(" AR_GPU")));
  }
  std::map<std::pair<LinkKind, int>, Curves> curves;
  for (auto& [key, by_ranks] : rows) {
    Curves& of = curves[key];
    of.source = join(std::vector<std::string>(sources[key].begin(), sources[key].end()), ", ");
    for (auto& [ranks, measured] : by_ranks) {
      std::sort(measured.begin(), measured.end(), [](const Row& a, const Row& b) { return a.bytes < b.bytes; });
      const double factor = 2.0 * (ranks - 1) / ranks;
      for (const Row& row : measured) {
        const Seconds by_bandwidth = factor * static_cast<double>(row.bytes) / measured.back().bus;
        of.above[ranks].emplace_back(std::log2(static_cast<double>(row.bytes)), std::max(0.0, row.time - by_bandwidth));
      }
    }
  }
  return curves;
}

double between(double x, double x0, double y0, double x1, double y1) { return x1 > x0 ? y0 + (y1 - y0) * (x - x0) / (x1 - x0) : y0; }

Seconds along(const std::vector<std::pair<double, Seconds>>& curve, double size) {
  const auto next = std::lower_bound(curve.begin(), curve.end(), size, [](const auto& point, double x) { return point.first < x; });
  if (next == curve.begin()) return curve.front().second;
  if (next == curve.end()) return curve.back().second;
  return between(size, (next - 1)->first, (next - 1)->second, next->first, next->second);
}

}  // namespace

std::optional<CurvePoint> all_reduce_curve(LinkKind kind, int generation, int ranks, Bytes bytes) {
  static const auto curves = load();
  const auto found = curves.find({kind, generation});
  if (found == curves.end() || bytes == 0) return std::nullopt;
  const auto& above = found->second.above;
  const auto more = above.lower_bound(ranks);
  if (more == above.end() || (more == above.begin() && more->first != ranks)) return std::nullopt;
  const auto less = more->first == ranks ? more : std::prev(more);
  const double size = std::log2(static_cast<double>(bytes));
  return CurvePoint{between(ranks, less->first, along(less->second, size), more->first, along(more->second, size)), found->second.source};
}

}  // namespace wirewise
