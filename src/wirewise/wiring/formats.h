// The formats that files are read in, as people know them: by what prints them.
#pragma once

#include <string>
#include <string_view>

#include "wirewise/wiring/reading.h"

namespace wirewise {

/// What prints a format, or what files of it are called: "nvidia-smi topo -m".
[[nodiscard]] std::string_view printed_by(Format format) noexcept;
/// All of them but this machine, a line each, as help shows it.
[[nodiscard]] std::string format_list();

}  // namespace wirewise
