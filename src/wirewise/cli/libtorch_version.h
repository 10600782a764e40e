// The libtorch that this program was built against.
#pragma once

#include <string>

namespace wirewise {

/// "2.11.0". Only in builds with libtorch.
[[nodiscard]] std::string libtorch_version();

}  // namespace wirewise
