#include "wirewise/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "wirewise/base/text.h"

namespace wirewise {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

Terminal inspect_terminal(int fd) {
  Terminal terminal;
  terminal.interactive = isatty(fd) == 1 && variable("TERM") != "dumb" && !variable("TERM").empty();
  terminal.colour = terminal.interactive && variable("NO_COLOR").empty();
  winsize size{};
  const auto columns = parse_integer(variable("COLUMNS"));
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.width = size.ws_col;
  } else if (columns && *columns > 0 && *columns < 10000) {
    terminal.width = static_cast<int>(*columns);
  }
  return terminal;
}

}  // namespace wirewise
