// Lines of an NCCL log that tell of its surroundings, of no communicator: networks, interfaces, adapters, variables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wirewise/wiring/nccl_lines.h"
#include "wirewise/wiring/nccl_log.h"

namespace wirewise {

/// Whether the line was one of them, and is now in `log`. `words`: those of its text.
[[nodiscard]] bool read_nccl_setup(const NcclLine& line, const std::vector<std::string>& words, NcclLog& log);

/// What PyTorch prints around NCCL, without NCCL's prefix: collectives that its watchdog gave up, and errors that it passed on.
class TorchLines {
 public:
  /// Whether the line was one of them, and is now in `log`.
  bool read(std::string_view text, int number, NcclLog& log);

 private:
  bool last_error_ = false;  // "Last error:" stood alone: its text is on the next line
};

}  // namespace wirewise
