#include "wirewise/comm/fan.h"

#include <algorithm>
#include <cstring>

#include "wirewise/comm/quick_call.h"
#include "wirewise/comm/stream_copy.h"

namespace wirewise::comm {
namespace {

constexpr std::size_t kChunk = std::size_t{256} << 10;
constexpr std::size_t kBlock = std::size_t{16} << 10;  // goes to all targets out of the first-level cache

}  // namespace

bool fans_out(const CallNumbers& print, std::size_t bytes, int ranks) noexcept {
  // Within the caches it is faster to read what peers have than to write what they have.
  if (ranks < 2 || print.parts != 1) return false;
  if (print.operation == Operation::kBroadcast) return bytes > kQuickBytes;
  if (print.operation != Operation::kAllGather) return false;
  const std::size_t touched = (static_cast<std::size_t>(ranks) + 1) * bytes;
  return touched > kQuickBytes && exceeds_caches(touched * static_cast<std::size_t>(ranks));
}

Fan::Fan(std::size_t bytes, bool stream) noexcept
    : bytes_(bytes), stream_(stream) {}

void Fan::copy(const Source& source, std::size_t begin, std::size_t end) const noexcept {
  for (std::size_t at = begin; at < end; at += kBlock) {
    const std::size_t bytes = std::min(kBlock, end - at);
    const std::byte* const from = source.data + at;
    for (std::byte* const target : targets_) {
      std::byte* const to = target + source.place + at;
      if (to == from) continue;
      if (stream_) {
        stream_copy(to, from, bytes);
      } else {
        std::memcpy(to, from, bytes);
      }
    }
  }
}

std::size_t Fan::step() noexcept {
  while (!targets_.empty() && current_ < sources_.size()) {
    const Source& source = sources_[current_];
    const std::size_t begin = source.claims->fetch_add(1, std::memory_order_relaxed) * kChunk;
    if (begin < bytes_) {
      const std::size_t end = std::min(begin + kChunk, bytes_);
      copy(source, begin, end);
      return end - begin;
    }
    ++current_;
  }
  return 0;
}

}  // namespace wirewise::comm
