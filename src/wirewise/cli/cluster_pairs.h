// Whether data comes as it was sent between each pair of ranks: a path that loses nothing and is fast may still change bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wirewise/base/units.h"
#include "wirewise/comm/accelerator.h"
#include "wirewise/comm/communicator.h"

namespace wirewise {

/// One direction of a pair of ranks.
struct PairFault {
  int from = 0, to = 0;     // ranks
  std::uint64_t wrong = 0;  // bytes that came other than they were sent
};

struct PairCheck {
  std::int64_t pairs = 0;     // that exchanged data, both ways
  std::int64_t possible = 0;  // of so many ranks
  bool on_device = false;     // the data lay in devices' memory
  std::vector<PairFault> faults;
};

/// Round `round` of a tournament of `places`: the partner of each, or -1. Each pair meets once in places - 1 rounds (places, if odd).
[[nodiscard]] std::vector<int> tournament_round(int places, int round);

/// Rounds of disjoint pairs, the partner of each rank or -1. In at most `most` rounds all pairs, where that suffices; else all pairs of each
/// host, then each rank with its counterpart (the one with its place) on other hosts, either in at most `most` rounds.
[[nodiscard]] std::vector<std::vector<int>> pair_rounds(std::span<const int> host_of_rank, int most);

/// The word at place `word` of the pattern that is sent under `seed`.
[[nodiscard]] inline std::uint64_t pattern(std::uint64_t seed, std::size_t word) noexcept { return (seed + word) * 0x9e3779b97f4a7c15ULL; }

/// Where the data lies that pairs send: in a device's memory, over a communicator of its own. Empty: in the host's.
struct PairDevice {
  Communicator* communicator = nullptr;
  Accelerator* device = nullptr;
};

/// Collective; all ranks get the same. Each pair sends one message of `bytes` each way, and compares every byte. Throws what a failed transfer
/// throws, naming the pair.
[[nodiscard]] PairCheck check_pairs(Communicator& communicator, std::span<const int> host_of_rank, Bytes bytes, int most_rounds, const PairDevice& on = {});

}  // namespace wirewise
