#include "wirewise/cli/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <new>
#include <string>
#include <utility>

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

void flush_output() {
  errno = 0;
  std::cout << std::flush;
  if (std::cout) return;
  const int error = errno;  // none where an earlier print failed
  throw Error(ErrorKind::kFailed,
              "standard output is closed or full" + (error != 0 ? std::string(": ") + std::strerror(error) : std::string()) + ". What was printed isn't whole.",
              "Free room where it goes, and keep its reader until the end.");
}

void occupy_standard_streams() {
  for (const auto& [stream, how] : {std::pair{0, O_RDONLY}, std::pair{1, O_RDONLY}, std::pair{2, O_WRONLY}}) {
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF) (void)::open("/dev/null", how);  // takes the lowest free number, which is this
  }
}

}  // namespace wirewise
