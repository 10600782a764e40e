// The output of one command on several hosts as one wiring.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "wirewise/wiring/reading.h"

namespace wirewise {

/// Reads each host's part of a text with `read` and joins them under the hosts' names. What a host couldn't be read for is a note. Empty when
/// the text isn't of several hosts, or when no part is of a format that describes a host. Throws what `read` did for the first when all fail.
[[nodiscard]] std::optional<Reading> read_several_hosts(std::string_view text, std::string_view file, const std::function<Reading(std::string_view, std::string_view)>& read);

}  // namespace wirewise
