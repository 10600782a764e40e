// Collectives of one part whose ranks are in step: the whole call within the call, without an operation in flight, an allocation or a wake-up.
//
// The caller announces the call, looks for its peers for a few microseconds, and when they are there moves the data at once. Peers see the
// same cells as those of operations in flight, so each rank decides alone whether it goes this way. Where peers are late, or something is
// out of the ordinary (a buffer that must be staged, a fingerprint that differs), an operation goes on from where the attempt ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "wirewise/comm/control.h"
#include "wirewise/comm/reduce.h"

namespace wirewise::comm {

inline constexpr std::size_t kQuickBytes = std::size_t{4} << 20;  // of all buffers of one rank: longer calls are better left in flight
inline constexpr int kQuickRanks = 64;
// Up to so many bytes of input a copy for the peers takes less than to wait until they have read the buffer itself.
inline constexpr std::size_t kCopiedReduction = 1024;
inline constexpr std::size_t kCopiedMove = 1024;

struct QuickCall {
  CallNumbers print;  // its sequence number is set by the attempt
  std::string_view label;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t in_bytes = 0;   // that this rank gives: broadcast's other ranks give none
  std::size_t out_bytes = 0;  // that it takes
  std::size_t block = 0;      // bytes of one rank's part, where all are equal
  std::size_t count = 0;      // reductions: elements of a result
  ReduceKind kind;
  std::span<const std::size_t> send_counts;  // all_to_all
  std::span<const std::size_t> recv_counts;
  bool copied = false;  // set by the attempt: peers read a copy of the input
};

enum class Attempt : std::uint8_t {
  kUntouched,  // nothing happened: issue an operation
  kAnnounced,  // an operation takes over the announced call
  kMoved,      // this rank's part is over: peers may still use its buffers
  kComplete,
};

}  // namespace wirewise::comm
