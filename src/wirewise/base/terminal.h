// What a file descriptor can show: whether a person looks at it, how wide it is, and whether colour is welcome.
#pragma once

namespace wirewise {

struct Terminal {
  bool interactive = false;  // a terminal that understands cursor movement
  bool colour = false;       // interactive, and NO_COLOR is not set
  int width = 80;            // columns
};

/// Looks at descriptor `fd` and at NO_COLOR (any non-empty value forbids colour), TERM ("dumb" understands nothing) and COLUMNS
/// (used where the terminal does not tell its width).
[[nodiscard]] Terminal inspect_terminal(int fd);

}  // namespace wirewise
