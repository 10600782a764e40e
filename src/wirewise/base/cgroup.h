// What the process's control group lets it use. Containers and Slurm set these limits, and a machine's own size then says
// nothing.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "wirewise/base/units.h"

namespace wirewise {

struct CgroupLimits {
  std::optional<double> cpus;   // CPU time a second
  std::optional<Bytes> memory;  // the hard limit
};

/// The tightest limits between the process's group and the root, of version 2 or 1. `root` is where /proc and /sys lie: "/" but
/// in tests.
[[nodiscard]] CgroupLimits cgroup_limits(const std::filesystem::path& root = "/");

/// How often the process's own group was held back by its CPU limit so far, of version 2 or 1; empty where the kernel doesn't say.
[[nodiscard]] std::optional<long long> throttled_periods(const std::filesystem::path& root = "/");

/// The numbers of the CPUs that this process may run on, by its affinity mask.
[[nodiscard]] std::vector<int> allowed_cpus();

/// How many CPUs this process may run on: its affinity mask, limited by its control group's quota. At least 1.
[[nodiscard]] int usable_cores();

}  // namespace wirewise
