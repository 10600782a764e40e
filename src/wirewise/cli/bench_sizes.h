// The sizes that `wirewise bench --sizes` measures: single ones and ranges, as nccl-tests' -b, -e, -f and -i together say them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wirewise/base/units.h"

namespace wirewise::bench {

/// Most sizes that one command may ask for.
inline constexpr std::size_t kMostSizes = 10'000;

/// "8,64K,1M": these sizes. "8:256M:x4": from 8 by factors of 4 up to at most 256M. "8:64:+8": in steps of 8. "8:64": by factors of 2. All
/// separated by commas, in the order given. Throws bad input that names the option and the part that can't be read.
[[nodiscard]] std::vector<Bytes> parse_sizes(std::string_view text, const std::string& option = "--sizes");

}  // namespace wirewise::bench
