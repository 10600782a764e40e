// From a cluster's measurements to which of its parts are slow.
#pragma once

#include <vector>

#include "wirewise/cli/cluster_probe.h"
#include "wirewise/cli/doctor.h"

namespace wirewise {

struct ClusterFindings {
  std::vector<Finding> findings;
  std::vector<bool> host_named;  // by host: an error was found on it
};

/// Ranks and links below (1 - share) of the median that stand out by median absolute deviation; data that came wrong. Of fewer than 3 ranks
/// or hosts nothing can be said by comparison.
[[nodiscard]] ClusterFindings judge_cluster(const ClusterProbe& probe, double share);

}  // namespace wirewise
