#include "wirewise/comm/link.h"

#include <algorithm>
#include <utility>

namespace wirewise::comm {
namespace {

std::vector<int> dead_among(Liveness* liveness, const std::vector<int>& numbers) {
  std::vector<int> ranks;
  if (liveness == nullptr) return ranks;
  const std::vector<int> dead = liveness->dead();
  for (std::size_t r = 0; r < numbers.size() && !dead.empty(); ++r) {
    if (std::find(dead.begin(), dead.end(), numbers[r]) != dead.end()) ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

}  // namespace

std::vector<int> dead_ranks(const Link& link) { return dead_among(link.liveness.get(), link.liveness_ranks); }

std::function<bool()> once_all_left(const Link& link, std::function<bool(int)> left) {
  return [left = std::move(left), size = link.size, liveness = link.liveness, numbers = link.liveness_ranks] {
    const std::vector<int> dead = dead_among(liveness.get(), numbers);
    for (int r = 0; r < size; ++r) {
      if (!left(r) && !std::binary_search(dead.begin(), dead.end(), r)) return false;
    }
    return true;
  };
}

}  // namespace wirewise::comm
