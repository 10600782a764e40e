#include "wirewise/wiring/link_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "wirewise/base/error.h"
#include "wirewise/base/outliers.h"

namespace wirewise {
namespace {

constexpr double kTukey = 4.685;       // 95 % as good as least squares where errors are normal
constexpr double kDeviation = 1.4826;  // of a normal distribution: standard over median absolute deviation
constexpr double kLeastScale = 0.05;   // relative: real links are no straighter than this, and sizes that bend a little still count
constexpr int kMostRounds = 100;

struct Line {
  double alpha = 0, pace = 0;  // seconds, seconds a byte
  [[nodiscard]] double at(Bytes size) const { return alpha + pace * static_cast<double>(size); }
};

double relative_error(const Line& line, const MessageTime& point) { return (point.time - line.at(point.size)) / point.time; }

/// Of all lines through two points the one with the least sum of |log(measured / fitted)|, which few wild points can't move far.
Line start_of(const std::vector<MessageTime>& points) {
  Line best;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t j = i + 1; j < points.size(); ++j) {
      Line line;
      line.pace = (points[j].time - points[i].time) / static_cast<double>(points[j].size - points[i].size);
      line.alpha = points[i].time - line.pace * static_cast<double>(points[i].size);
      if (line.pace <= 0) continue;
      if (line.alpha < 0) line = {0, points[j].time / static_cast<double>(points[j].size)};
      double sum = 0;
      for (const MessageTime& point : points) sum += std::abs(std::log(point.time / std::max(line.at(point.size), 1e-3 * point.time)));
      if (sum >= least) continue;
      least = sum;
      best = line;
    }
  }
  return best;
}

/// Weighted least squares of the relative errors.
Line solve(const std::vector<MessageTime>& points, const std::vector<double>& weights, const Line& otherwise) {
  double w = 0, ws = 0, wss = 0, wt = 0, wst = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double weight = weights[i] / (points[i].time * points[i].time);
    const auto size = static_cast<double>(points[i].size);
    w += weight;
    ws += weight * size;
    wss += weight * size * size;
    wt += weight * points[i].time;
    wst += weight * size * points[i].time;
  }
  const double determinant = w * wss - ws * ws;
  if (!(determinant > 0)) return otherwise;
  Line line{(wt * wss - ws * wst) / determinant, (w * wst - ws * wt) / determinant};
  if (line.alpha < 0) line = {0, wst / wss};
  return line.pace > 0 ? line : otherwise;
}

}  // namespace

LinkFit fit_link(std::span<const MessageTime> messages) {
  std::map<Bytes, std::vector<double>> by_size;
  for (const MessageTime& message : messages) {
    if (!(message.time > 0) || !std::isfinite(message.time)) throw bad_input("a message can't take no time.");
    by_size[message.size].push_back(message.time);
  }
  if (by_size.size() < 2)
    throw bad_input("alpha and beta need messages of two sizes or more.", "Give --sizes with a small and a large one.");
  LinkFit fit;
  std::vector<MessageTime> points;
  for (auto& [size, times] : by_size) {
    points.push_back({size, median(std::move(times))});
    fit.sizes.push_back(size);
    fit.medians.push_back(points.back().time);
  }
  Line line = start_of(points);
  if (line.pace <= 0)
    throw Error(ErrorKind::kFailed, "larger messages took no longer than small ones, so the link's bandwidth can't be told.",
                "Give --sizes that are larger.");
  std::vector<double> weights(points.size(), 1);
  for (int round = 0; round < kMostRounds; ++round) {
    std::vector<double> errors;
    for (const MessageTime& point : points) errors.push_back(std::abs(relative_error(line, point)));
    const double scale = std::max(kDeviation * median(errors), kLeastScale) * kTukey;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const double share = errors[i] / scale;
      weights[i] = share < 1 ? (1 - share * share) * (1 - share * share) : 0;
    }
    const Line next = solve(points, weights, line);
    const bool same =
        std::abs(next.alpha - line.alpha) <= 1e-12 * next.at(points.front().size) && std::abs(next.pace - line.pace) <= 1e-12 * next.pace;
    line = next;
    if (same) break;
  }
  double squares = 0;
  std::size_t counted = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (weights[i] == 0) {
      fit.left_out.push_back(points[i].size);
      continue;
    }
    squares += relative_error(line, points[i]) * relative_error(line, points[i]);
    ++counted;
  }
  fit.alpha = line.alpha;
  fit.beta = 1 / line.pace;
  constexpr double kRounding = 1e-9;  // a line through two sizes is off by less
  const double residual = counted > 0 ? std::sqrt(squares / static_cast<double>(counted)) : 0;
  fit.residual = residual < kRounding ? 0 : residual;
  return fit;
}

}  // namespace wirewise
