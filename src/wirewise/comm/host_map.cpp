#include "wirewise/comm/host_map.h"

#include <algorithm>
#include <bit>
#include <map>

namespace wirewise::comm {

HostMap::HostMap(const std::vector<std::string>& ids) {
  std::map<std::string, int> numbers;
  for (std::size_t r = 0; r < ids.size(); ++r) {
    const auto [entry, fresh] = numbers.try_emplace(ids[r], count());
    if (fresh) members_.emplace_back();
    auto& members = members_[static_cast<std::size_t>(entry->second)];
    host_of_.push_back(entry->second);
    place_of_.push_back(static_cast<int>(members.size()));
    members.push_back(static_cast<int>(r));
  }
  for (const auto& members : members_) {
    const int here = static_cast<int>(members.size());
    fewest_ = fewest_ == 0 ? here : std::min(fewest_, here);
    const bool one_run = members.back() - members.front() + 1 == here;
    regular_ = regular_ && one_run && members.size() == members_.front().size() && std::has_single_bit(members.size());
  }
}

std::vector<int> HostMap::rails(int rank) const {
  std::vector<int> joined;
  for (int r = 0; r < ranks(); ++r) {
    if (host_of(r) == host_of(rank)) continue;
    if (agent(host_of(r), place_of(rank)) == r || agent(host_of(rank), place_of(r)) == rank) joined.push_back(r);
  }
  return joined;
}

}  // namespace wirewise::comm
