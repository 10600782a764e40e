// What all GPUs get together by size, for programs: the numbers behind the lines of write_groups().
#pragma once

#include <span>
#include <string>

#include "wirewise/wiring/wiring.h"

namespace wirewise {

/// A JSON array with an object for each size of an all-reduce over all GPUs (where there are none, ranks' cores): devices, bytes, seconds,
/// bus_bandwidth_GBps, algorithm, from, provenance, and at_least, which is true where the latency is that of links alone. Empty ("[]") for fewer
/// than two. Throws bad input where no links join them.
[[nodiscard]] std::string group_times_json(const Wiring& wiring, std::span<const Bytes> sizes);

}  // namespace wirewise
