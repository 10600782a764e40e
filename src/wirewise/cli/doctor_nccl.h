// `wirewise doctor nccl LOG`: an NCCL log in plain words.
#pragma once

#include <string>
#include <vector>

#include "wirewise/cli/doctor.h"
#include "wirewise/wiring/nccl_log.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise {

/// What looks wrong, and what the log says of each communicator; worst first.
[[nodiscard]] std::vector<Finding> diagnose_nccl(const NcclLog& log);

/// Networks and interfaces that don't fit; collectives and communicators that came to no good end. Part of diagnose_nccl().
[[nodiscard]] std::vector<Finding> check_nccl_setup(const NcclLog& log);
[[nodiscard]] std::vector<Finding> check_nccl_end(const NcclLog& log);

/// What the log says of a machine against what `source` says of it: GPUs whose nearest NIC is nearer in one than in the other.
[[nodiscard]] std::vector<Finding> compare_nccl(const NcclLog& log, const Wiring& wiring, const std::string& source);

/// What a warning of NCCL means and what to do about it; empty texts where that isn't known.
struct NcclMeaning {
  std::string title, remedy;
  Severity severity = Severity::kWarning;
};
[[nodiscard]] NcclMeaning meaning_of(const std::string& warning);

}  // namespace wirewise
