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

/// Brings out what std::cout still holds. Throws where standard output didn't take all that was printed: on a full disk, or closed.
void flush_output();

/// Opens /dev/null for those of the three standard streams that are closed, so that no file or socket gets their numbers and then their text.
/// Standard output is opened for reading, so that printing still fails.
void occupy_standard_streams();

}  // namespace wirewise
