// The names of operations and reductions, as errors and flight records write them.
#pragma once

#include "wirewise/comm/control.h"

namespace wirewise::comm {

[[nodiscard]] const char* name_of(Operation operation) noexcept;
[[nodiscard]] const char* name_of(Reduction reduction) noexcept;
[[nodiscard]] bool reduces(Operation operation) noexcept;
[[nodiscard]] bool is_message(Operation operation) noexcept;

}  // namespace wirewise::comm
