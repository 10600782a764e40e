#include "wirewise/cli/report.h"

#include <cstdio>
#include <new>
#include <string>

#include "wirewise/base/terminal.h"

namespace wirewise {

void print_error(std::string_view text) {
  const bool colour = inspect_terminal(2).colour;
  // One write, so that ranks that fail together don't tear each other's lines.
  std::string line = colour ? "\x1b[1;31merror:\x1b[0m " : "error: ";
  line += text;
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

int report(const std::exception& error) {
  if (const auto* known = dynamic_cast<const Error*>(&error)) {
    print_error(known->what());
    return exit_code(known->kind());
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    print_error("memory ran out.");
    return exit_code(ErrorKind::kFailed);
  }
  print_error(error.what());
  return exit_code(ErrorKind::kFailed);
}

}  // namespace wirewise
