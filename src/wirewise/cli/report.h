// How a command ends badly: one line on standard error, and the exit code of its kind.
#pragma once

#include <exception>
#include <string_view>

#include "wirewise/base/error.h"

namespace wirewise {

/// Prints "error: sentence remedy" on standard error.
void print_error(std::string_view text);

/// Prints the error and returns its exit code: an Error's by kind, 1 for anything else.
[[nodiscard]] int report(const std::exception& error);

}  // namespace wirewise
