// A line of an NCCL log, cut into its prefix and its message.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "wirewise/wiring/text_lines.h"

namespace wirewise {

struct NcclLine {
  int number = 0;
  std::string host;       // empty: no prefix that can be read
  long long pid = 0, tid = 0;
  int device = -1;
  std::string level;      // INFO, WARN, TRACE, CALL; empty: no message of NCCL
  std::string place;      // of a warning: "include/shm.h:28"
  std::string text;
};

/// The messages on a line: one, or several where processes wrote into one another and a prefix of one of `hosts` stands in the middle.
[[nodiscard]] std::vector<NcclLine> nccl_lines(const TextLine& line, const std::set<std::string>& hosts);

}  // namespace wirewise
