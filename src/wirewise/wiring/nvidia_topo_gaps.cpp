#include "wirewise/wiring/nvidia_topo_gaps.h"

#include <algorithm>
#include <set>

namespace wirewise {
namespace {

bool is_near(const HostPairs& pairs, std::size_t a, std::size_t b) {
  const auto& known = pairs.connection(a, b);
  return (known && *known <= Connection::kNode) || (pairs.devices[a].numa >= 0 && pairs.devices[a].numa == pairs.devices[b].numa);
}

/// By device: the first of those that are near each other, or how many devices there are, of one without a place.
std::vector<std::size_t> groups_of(const HostPairs& pairs) {
  const std::size_t size = pairs.devices.size();
  std::vector<std::size_t> group(size, size);
  for (std::size_t i = 0; i < size; ++i) {
    if (!pairs.devices[i].placed || group[i] != size) continue;
    std::vector<std::size_t> reached{i};
    group[i] = i;
    for (std::size_t at = 0; at < reached.size(); ++at) {
      for (std::size_t j = 0; j < size; ++j) {
        if (!pairs.devices[j].placed || group[j] != size || !is_near(pairs, reached[at], j)) continue;
        group[j] = i;
        reached.push_back(j);
      }
    }
  }
  return group;
}

}  // namespace

std::vector<std::size_t> loose_devices(const HostPairs& pairs) {
  const std::vector<std::size_t> group = groups_of(pairs);
  std::vector<std::size_t> loose;
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (pairs.devices[i].placed) continue;
    std::set<std::size_t> groups, far;
    for (std::size_t j = 0; j < group.size(); ++j) {
      if (group[j] == group.size()) continue;
      groups.insert(group[j]);
      if (pairs.connection(i, j)) far.insert(group[j]);
    }
    if (far.size() < groups.size()) loose.push_back(i);
  }
  return loose;
}

std::optional<LostNvlinks> lost_nvlinks(const HostPairs& pairs) {
  std::vector<std::size_t> gpus, with;
  for (std::size_t i = 0; i < pairs.devices.size(); ++i) {
    if (pairs.devices[i].kind == DeviceKind::kGpu) gpus.push_back(i);
  }
  LostNvlinks lost;
  for (const std::size_t i : gpus) {
    int most = 0;
    for (const std::size_t j : gpus) most = i == j ? most : std::max(most, pairs.links(i, j));
    (most > 0 ? with : lost.gpus).push_back(i);
    lost.links = std::max(lost.links, most);
  }
  lost.others = with.size();
  if (with.size() < 3 || lost.gpus.empty() || lost.gpus.size() >= with.size()) return std::nullopt;
  for (const std::size_t i : with) {
    for (const std::size_t j : with) {
      if (i != j && pairs.links(i, j) != lost.links) return std::nullopt;
    }
  }
  for (const std::size_t i : lost.gpus) {  // nothing said is nothing lost
    for (const std::size_t j : with) {
      if (!pairs.connection(i, j)) return std::nullopt;
    }
  }
  return lost;
}

}  // namespace wirewise
