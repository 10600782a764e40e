// `wirewise doctor nccl LOG`: an NCCL log in plain words.
#pragma once

#include <string>
#include <vector>

#include "wirewise/cli/doctor.h"
#include "wirewise/wiring/nccl_log.h"

namespace wirewise {

/// What looks wrong, and what the log says of each communicator; worst first.
[[nodiscard]] std::vector<Finding> diagnose_nccl(const NcclLog& log);

/// What a warning of NCCL means and what to do about it; empty texts where that isn't known.
struct NcclMeaning {
  std::string title, remedy;
};
[[nodiscard]] NcclMeaning meaning_of(const std::string& warning);

}  // namespace wirewise
