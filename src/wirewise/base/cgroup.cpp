#include "wirewise/base/cgroup.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "wirewise/base/text.h"

namespace wirewise {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

template <typename T>
void tighten(std::optional<T>& limit, T value) {
  if (!limit || value < *limit) limit = value;
}

void read_cpus(CgroupLimits& limits, const std::string& quota_text, const std::string& period_text) {
  const auto quota = parse_integer(quota_text);
  const auto period = parse_integer(period_text);
  if (quota && period && *quota > 0 && *period > 0)
    tighten(limits.cpus, static_cast<double>(*quota) / static_cast<double>(*period));
}

void read_memory(CgroupLimits& limits, const std::string& text) {
  // Version 1 writes a number near 2^63 for "no limit".
  const auto bytes = parse_integer(text);
  if (bytes && *bytes > 0 && *bytes < (1LL << 60)) tighten(limits.memory, static_cast<Bytes>(*bytes));
}

void read_folder(CgroupLimits& limits, const fs::path& folder) {
  const auto cpu_max = split(first_line(folder / "cpu.max"), ' ');
  if (cpu_max.size() == 2) read_cpus(limits, cpu_max[0], cpu_max[1]);
  read_cpus(limits, first_line(folder / "cpu.cfs_quota_us"), first_line(folder / "cpu.cfs_period_us"));
  read_memory(limits, first_line(folder / "memory.max"));
  read_memory(limits, first_line(folder / "memory.limit_in_bytes"));
}

/// The folders of the process's groups, of each hierarchy from the root down.
std::vector<fs::path> group_folders(const fs::path& root) {
  std::vector<fs::path> folders;
  const fs::path base = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {  // "0::/a/b" (version 2) or "4:memory:/a/b"
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    fs::path folder = base;
    if (!controllers.empty()) folder /= controllers;
    folders.push_back(folder);
    for (const auto& part : fs::path(line.substr(second + 1)).relative_path()) {
      if (part == "..") break;  // a group outside this namespace can't be seen
      folder /= part;
      folders.push_back(folder);
    }
  }
  return folders;
}

}  // namespace

CgroupLimits cgroup_limits(const fs::path& root) {
  CgroupLimits limits;
  for (const fs::path& folder : group_folders(root)) read_folder(limits, folder);
  return limits;
}

std::optional<long long> throttled_periods(const fs::path& root) {
  std::optional<long long> periods;
  for (const fs::path& folder : group_folders(root)) {  // the process's own group comes last
    std::ifstream stat(folder / "cpu.stat");
    std::string name;
    long long value = 0;
    while (stat >> name >> value) {
      if (name == "nr_throttled") periods = value;
    }
  }
  return periods;
}

std::vector<int> allowed_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

int usable_cores() {
  int cores = std::max(1, static_cast<int>(allowed_cpus().size()));
  if (const auto quota = cgroup_limits().cpus) cores = std::min(cores, std::max(1, static_cast<int>(std::floor(*quota))));
  return cores;
}

}  // namespace wirewise
