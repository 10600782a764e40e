// Who may run where: ranks wait by looking again and again only where that takes no core from a rank that works.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace wirewise::comm {

/// Whether every rank of a host can have a core of its own. `cpus_of_rank`: which each may run on. `quota`: CPU time a second that
/// all may use together, where a control group limits it.
[[nodiscard]] bool cores_suffice(std::span<const std::vector<int>> cpus_of_rank, std::optional<double> quota);

}  // namespace wirewise::comm
