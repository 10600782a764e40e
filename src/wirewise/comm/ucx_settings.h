// What wirewise sets in UCX, as a pure function of the chosen interface and the user's own UCX_* variables, which win save in one point:
// the transports that go through shared memory stay out.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "wirewise/comm/network_interface.h"

namespace wirewise::comm {

/// UCX_TLS without shared memory. `wanted`: the user's value, or empty. Throws bad input when it allows shared memory alone.
[[nodiscard]] std::string without_shared_memory(const std::string& wanted);

/// Settings as (name without UCX_, value), in the order they are to be made.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> ucx_settings(const NetworkInterface& interface,
                                                                            const std::function<const char*(const char*)>& environment);

}  // namespace wirewise::comm
