// What a reading can't vouch for, told beside whatever is done with it.
#pragma once

#include <string>

#include "wirewise/wiring/reading.h"

namespace wirewise {

/// Prints "FILE:LINE:COLUMN: note: …" on standard error for each; `-` is standard input.
void print_notes(const Reading& reading, const std::string& file);

}  // namespace wirewise
