#include "wirewise/comm/cores.h"

#include <map>
#include <set>

namespace wirewise::comm {
namespace {

/// Finds `rank` a core, moving those before it to others where need be (augmenting paths).
bool place(std::span<const std::vector<int>> cpus_of_rank, std::size_t rank, std::map<int, std::size_t>& holders, std::set<int>& tried) {
  for (const int cpu : cpus_of_rank[rank]) {
    if (!tried.insert(cpu).second) continue;
    const auto holder = holders.find(cpu);
    if (holder != holders.end() && !place(cpus_of_rank, holder->second, holders, tried)) continue;
    holders[cpu] = rank;
    return true;
  }
  return false;
}

}  // namespace

bool cores_suffice(std::span<const std::vector<int>> cpus_of_rank, std::optional<double> quota) {
  if (quota && static_cast<double>(cpus_of_rank.size()) > *quota) return cpus_of_rank.size() == 1;
  std::set<int> all;
  for (const auto& cpus : cpus_of_rank) all.insert(cpus.begin(), cpus.end());
  if (all.size() < cpus_of_rank.size()) return false;
  std::map<int, std::size_t> holders;
  for (std::size_t rank = 0; rank < cpus_of_rank.size(); ++rank) {
    std::set<int> tried;
    if (!place(cpus_of_rank, rank, holders, tried)) return false;
  }
  return true;
}

}  // namespace wirewise::comm
