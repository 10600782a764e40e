// Messages between two ranks: a ring of message slots in the sender's arena, one a pair of ranks, made with the first send. The receiver
// reads the ring in order and remembers what it has not matched, so tags may be received in another order than they were sent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "wirewise/base/dtype.h"

namespace wirewise::comm {

inline constexpr std::uint64_t kMessageSlots = 256;  // unmatched messages of a pair; later sends wait

enum class MessageMode : std::uint8_t {
  kBuffered,  // the whole message lies in the sender's arena
  kDirect,    // it lies in the sender's buffer, which is shared memory
  kStaged,    // it comes in rounds through two chunks of the sender's arena
};

struct alignas(64) MessageSlot {
  std::atomic<std::uint64_t> posted{0};     // index + 1
  std::atomic<std::uint64_t> published{0};  // rounds that lie there
  std::atomic<std::uint64_t> consumed{0};   // rounds taken
  std::atomic<std::uint64_t> done{0};       // index + 1: received
  std::uint64_t place = 0;                  // offset in the sender's arena
  std::uint64_t count = 0;
  std::int32_t tag = 0;
  DType dtype = DType::kUInt8;
  MessageMode mode = MessageMode::kBuffered;
};

struct Channel {
  MessageSlot slots[kMessageSlots];
  [[nodiscard]] MessageSlot& slot(std::uint64_t index) noexcept { return slots[index % kMessageSlots]; }
};

/// One rank's own notes about its channels, by peer.
struct Mailboxes {
  struct Tag {
    std::deque<std::uint64_t> unmatched;  // messages that came, by index
    std::deque<const void*> waiting;      // receives without a message, in order of issue: only the first may take one
  };
  struct Box {
    std::uint64_t next_send = 0;
    std::uint64_t next_seen = 0;
    std::map<std::int32_t, Tag> tags;

    /// Takes notice of the messages that have come.
    void look(Channel& channel) {
      for (; channel.slot(next_seen).posted.load() == next_seen + 1; ++next_seen) tags[channel.slot(next_seen).tag].unmatched.push_back(next_seen);
    }
  };
  explicit Mailboxes(int size) : boxes(static_cast<std::size_t>(size)) {}
  [[nodiscard]] Box& of(int peer) noexcept { return boxes[static_cast<std::size_t>(peer)]; }
  std::vector<Box> boxes;
};

}  // namespace wirewise::comm
