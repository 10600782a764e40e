#include "wirewise/base/outliers.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace wirewise {

double median(std::vector<double> figures) {
  if (figures.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(figures.begin(), figures.end());
  const std::size_t middle = figures.size() / 2;
  return figures.size() % 2 == 1 ? figures[middle] : (figures[middle - 1] + figures[middle]) / 2;
}

std::vector<std::size_t> low_outliers(std::span<const double> figures, double share) {
  constexpr double kFar = 3.5 / 0.6745;
  std::vector<std::size_t> low;
  if (figures.size() < 3) return low;
  const double middle = median({figures.begin(), figures.end()});
  std::vector<double> distances;
  for (double figure : figures) distances.push_back(std::abs(figure - middle));
  const double deviation = median(std::move(distances));
  for (std::size_t i = 0; i < figures.size(); ++i) {
    if (figures[i] < (1 - share) * middle && middle - figures[i] > kFar * deviation) low.push_back(i);
  }
  return low;
}

}  // namespace wirewise
