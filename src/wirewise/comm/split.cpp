#include "wirewise/comm/split.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace wirewise::comm {

std::vector<int> split_members(int colour, std::span<const std::int64_t> choices) {
  std::vector<int> members;
  for (std::size_t r = 0; r < choices.size() / 2; ++r) {
    if (colour >= 0 && choices[2 * r] == colour) members.push_back(static_cast<int>(r));
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return choices[2 * static_cast<std::size_t>(a) + 1] < choices[2 * static_cast<std::size_t>(b) + 1];
  });
  return members;
}

std::vector<int> choose_part(Communicator& communicator, int colour, int key, const CallOptions& call) {
  const std::array<std::int64_t, 2> own{colour, key};
  std::vector<std::int64_t> choices(own.size() * static_cast<std::size_t>(communicator.size()));
  communicator.all_gather({own.data(), DType::kInt64}, {choices.data(), DType::kInt64}, own.size(), call).wait();
  return split_members(colour, choices);
}

}  // namespace wirewise::comm
