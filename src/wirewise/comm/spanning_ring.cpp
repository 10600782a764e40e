#include "wirewise/comm/spanning_ring.h"

#include <vector>

#include "wirewise/comm/spanning_chunks.h"

namespace wirewise::comm {

void SpanningRingGather::exchange() {
  const int count = hosts().count();
  // The rank of this place `steps` hosts further on.
  const auto at = [&](int steps) { return hosts().agent((host() + steps + count) % count, place()); };
  const int next = at(1);
  const int before = at(-1);
  greet({next, before}, Greeted::kPartners);
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const GatherPart& part = parts_[p];
    const auto step = static_cast<std::uint32_t>(p);
    place_own(part, rank());
    const auto block = [&](int steps) { return part.full + static_cast<std::size_t>(at(steps)) * part.bytes; };
    each_chunk(part.bytes, 1, [&](std::size_t from, std::size_t length) { send(next, step, block(0) + from, length); });
    struct Passing {
      std::byte* chunk;
      std::size_t length, number;
    };
    std::vector<Passing> passing;
    for (int hops = 1; hops < count; ++hops) {
      each_chunk(part.bytes, 1, [&](std::size_t from, std::size_t length) {
        std::byte* const chunk = block(-hops) + from;
        const std::size_t number = recv(before, step, chunk, length);
        if (hops + 1 < count) passing.push_back({chunk, length, number});
      });
    }
    // In order, as the next host expects them.
    until([this, passing, next, step, passed = std::size_t{0}]() mutable {
      for (; passed < passing.size() && received(passing[passed].number); ++passed) {
        send(next, step, passing[passed].chunk, passing[passed].length);
      }
      return passed == passing.size();
    });
  }
  share(false);
}

}  // namespace wirewise::comm
