// What a collective of a given size takes: the bandwidth of large messages (group.h), and what small ones lose to latency.
//
// Where GPUs of an interconnect were measured by size and number (data/collective_curves.csv), the time above what bandwidth alone takes is
// interpolated from that; else a step costs the latency of its path (alpha-beta), which knows nothing of launches and protocols and so is
// a lower bound for GPUs.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "wirewise/wiring/group.h"

namespace wirewise {

struct GroupTime {
  GroupBandwidth large;  // the algorithm, and what it gets with large messages
  Seconds time = 0;
  BytesPerSecond bus = 0;                     // bus bandwidth at this size
  Seconds latency = 0;                        // of `time`: what bandwidth doesn't explain
  bool at_least = false;                      // the latency is that of links alone: launches and protocols come on top
  std::string from;                           // "14 steps of 1 us" or "measured on 2 to 8 GPUs: source"
  Provenance provenance = Provenance::kSpec;  // the least certain of what it rests on
};

/// `bytes` as nccl-tests counts them: a rank's data in an all-reduce, all ranks' together in the others. `algorithm`: only that one, by
/// alpha-beta; without it the fastest. Throws bad input where the algorithm can't do it: a tree or a switch that isn't an all-reduce, a
/// group that no such switch joins.
[[nodiscard]] GroupTime group_time(const Wiring& wiring, std::span<const int> devices, GroupCollective collective, Bytes bytes,
                                   std::optional<GroupAlgorithm> algorithm = std::nullopt);

/// Bus bandwidth over algorithm bandwidth for n ranks.
[[nodiscard]] double bus_factor(GroupCollective collective, std::size_t ranks) noexcept;

}  // namespace wirewise
