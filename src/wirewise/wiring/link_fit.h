// What a link costs, from messages that were timed over it: time = alpha + size / beta.
#pragma once

#include <span>
#include <vector>

#include "wirewise/base/units.h"

namespace wirewise {

/// One message, one way.
struct MessageTime {
  Bytes size = 0;
  Seconds time = 0;
};

struct LinkFit {
  Seconds alpha = 0;
  BytesPerSecond beta = 0;
  double residual = 0;           // root mean square of (measured - fitted) / measured over the sizes that count
  std::vector<Bytes> sizes;      // ascending: each with several messages or one
  std::vector<Seconds> medians;  // of each of `sizes`
  std::vector<Bytes> left_out;   // those of `sizes` that lie off the line and don't count
};

/// Each size counts by its median message and by its relative error, so that small sizes decide alpha and large ones beta; sizes off the
/// line (protocols, buckets that fill, disturbances) count less or not at all (Tukey's biweight). alpha is never below 0. Throws bad
/// input for fewer than two sizes or times that aren't positive, kFailed when times don't grow with size.
[[nodiscard]] LinkFit fit_link(std::span<const MessageTime> messages);

}  // namespace wirewise
