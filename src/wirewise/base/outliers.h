// Which of several like figures stands out, by median absolute deviation.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace wirewise {

/// Middle of the figures, the mean of the two middle ones of an even number. Not a number for none.
[[nodiscard]] double median(std::vector<double> figures);

/// Indices of figures that are low: below (1 - share) of the median, and further from it than 3.5 / 0.6745 median absolute deviations
/// (Iglewicz and Hoaglin's modified z-score), in ascending order. Nothing for fewer than 3 figures, which can't outvote one.
[[nodiscard]] std::vector<std::size_t> low_outliers(std::span<const double> figures, double share);

}  // namespace wirewise
