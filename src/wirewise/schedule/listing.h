// A program as a table for people: one line an op, with its lane, what it follows, and the memory that is live after it.
#pragma once

#include <string>

#include "wirewise/schedule/schedule.h"

namespace wirewise {

/// One line an op: id, lane, the op in words, "after" ids, bytes of a collective, live bytes after it.
[[nodiscard]] std::string list_program(const Program& program, const Model& model);

}  // namespace wirewise
