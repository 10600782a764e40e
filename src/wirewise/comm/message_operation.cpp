#include "wirewise/comm/message_operation.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace wirewise::comm {
namespace {

constexpr std::size_t kBufferedBytes = 64 * 1024;
constexpr std::size_t kChunk = 512 * 1024;
constexpr std::size_t kQuantum = std::size_t{1} << 22;

}  // namespace

SendOperation::SendOperation(std::shared_ptr<Group> owner, const Fingerprint& print, CallOptions options, const void* data)
    : State(std::move(owner), print, std::move(options)),
      data_(static_cast<const std::byte*>(data)),
      bytes_(print.count * size_of(print.in)) {
  Arena& arena = group->context().arena;
  const auto own_block = [&](std::size_t bytes) {
    block_ = static_cast<std::byte*>(arena.allocate(bytes));
    place_ = static_cast<std::uint64_t>(block_ - arena.base());
  };
  if (bytes_ == 0) return;
  if (bytes_ <= kBufferedBytes) {
    own_block(bytes_);
    return;
  }
  place_ = arena.offset_of(data_, bytes_);
  if (place_ != 0) {
    mode_ = MessageMode::kDirect;
  } else {
    mode_ = MessageMode::kStaged;
    rounds_ = (bytes_ + kChunk - 1) / kChunk;
    own_block(2 * kChunk);
  }
}

SendOperation::~SendOperation() {
  if (block_ != nullptr) group->context().arena.free(block_);
}

void SendOperation::release() noexcept {
  // What is buffered outlives this rank's part: the receiver may come later.
  if (block_ != nullptr && posted_ && !received_) {
    group->keep_until_closed(block_);
    block_ = nullptr;
  }
}

Channel& SendOperation::channel() {
  const int peer = fingerprint.root;
  std::atomic<std::uint64_t>& place = group->control().channel(group->rank(), peer);
  if (place.load() == 0) {
    void* const memory = group->context().arena.allocate(sizeof(Channel));
    group->keep_until_closed(memory);
    ::new (memory) Channel{};
    place.store(static_cast<std::uint64_t>(static_cast<std::byte*>(memory) - group->context().arena.base()));
  }
  return *reinterpret_cast<Channel*>(group->at(group->rank(), place.load()));
}

bool SendOperation::feed(MessageSlot& slot) {
  bool moved = false;
  while (published_ < rounds_ && (published_ < 2 || slot.consumed.load() + 2 > published_)) {
    const std::size_t at = published_ * kChunk;
    std::memcpy(block_ + (published_ % 2) * kChunk, data_ + at, std::min(kChunk, bytes_ - at));
    slot.published.store(++published_);
    group->ring(fingerprint.root);
    moved = true;
  }
  return moved;
}

bool SendOperation::step() {
  if (received_) return false;
  Channel& ring = channel();
  if (!index_) index_ = group->mailboxes().of(fingerprint.root).next_send++;
  MessageSlot& slot = ring.slot(*index_);
  bool moved = false;
  if (!posted_) {
    if (*index_ >= kMessageSlots && slot.done.load() != *index_ - kMessageSlots + 1) return false;
    if (mode_ == MessageMode::kBuffered && bytes_ > 0) std::memcpy(block_, data_, bytes_);
    slot.published.store(0, std::memory_order_relaxed);
    slot.consumed.store(0, std::memory_order_relaxed);
    slot.place = place_;
    slot.count = fingerprint.count;
    slot.tag = static_cast<std::int32_t>(fingerprint.hash);
    slot.dtype = fingerprint.in;
    slot.mode = mode_;
    slot.posted.store(*index_ + 1);
    posted_ = true;
    group->ring(fingerprint.root);
    moved = true;
  }
  moved = feed(slot) || moved;
  received_ = slot.done.load() == *index_ + 1;
  const bool buffered = mode_ != MessageMode::kDirect && published_ == rounds_;
  if (!reached(Level::kComplete) && (buffered || received_)) {
    reach(Level::kComplete);
    moved = true;
  }
  return moved;
}

std::optional<int> Group::probe(std::int32_t tag) {
  const std::lock_guard lock(drive_mutex_);
  for (int r = 0; r < size(); ++r) {
    const std::uint64_t place = control_.channel(r, rank()).load();
    if (place == 0) continue;
    auto& channel = *reinterpret_cast<Channel*>(at(r, place));
    Mailboxes::Box& box = mailboxes_.of(r);
    box.look(channel);
    const auto queue = box.tags.find(tag);
    if (queue != box.tags.end() && queue->second.waiting.empty() && !queue->second.unmatched.empty()) return r;
  }
  return std::nullopt;
}

RecvOperation::RecvOperation(std::shared_ptr<Group> owner, const Fingerprint& print, CallOptions options, void* data)
    : State(std::move(owner), print, std::move(options)),
      data_(static_cast<std::byte*>(data)),
      bytes_(print.count * size_of(print.in)) {}

int RecvOperation::source() const noexcept {
  const int r = fingerprint.root;
  return r < 0 ? r : group->link().identities[static_cast<std::size_t>(r)].number;
}

std::vector<Missing> RecvOperation::missing() const {
  if (fingerprint.root != kAnySource) return {{fingerprint.root, index_.has_value()}};
  // Ranks that have left are not waited for, as long as another may send.
  std::vector<Missing> present;
  std::vector<Missing> all;
  for (int r = 0; r < group->size(); ++r) {
    if (r == group->rank()) continue;
    all.push_back({r, false});
    if (group->control().rank(r).departed.load() == 0) present.push_back({r, false});
  }
  return present.empty() ? all : present;
}

/// Visits the ranks whose messages this receive may take.
template <typename Visit>
void RecvOperation::for_each_source(Visit visit) {
  if (fingerprint.root != kAnySource) return visit(fingerprint.root);
  for (int r = 0; r < group->size(); ++r) visit(r);
}

Channel* RecvOperation::channel_from(int source) {
  const std::uint64_t place = group->control().channel(source, group->rank()).load();
  return place == 0 ? nullptr : reinterpret_cast<Channel*>(group->at(source, place));
}

void RecvOperation::queue_up() {
  if (queued_) return;
  queued_ = true;
  for_each_source([&](int source) { group->mailboxes().of(source).tags[tag()].waiting.push_back(this); });
}

bool RecvOperation::match() {
  // The first rank is another each time, so that none is starved.
  if (fingerprint.root != kAnySource) return match(fingerprint.root);
  for (int i = 0; i < group->size(); ++i) {
    if (match((first_ + i) % group->size())) return true;
  }
  first_ = (first_ + 1) % group->size();
  return false;
}

bool RecvOperation::match(int source) {
  Channel* const channel = channel_from(source);
  if (channel == nullptr) return false;
  Mailboxes::Box& box = group->mailboxes().of(source);
  box.look(*channel);
  Mailboxes::Tag& queue = box.tags[tag()];
  if (queue.waiting.front() != this || queue.unmatched.empty()) return false;
  take(source, *channel);
  return true;
}

void RecvOperation::take(int source, Channel& channel) {
  std::deque<std::uint64_t>& unmatched = group->mailboxes().of(source).tags[tag()].unmatched;
  index_ = unmatched.front();
  unmatched.pop_front();
  for_each_source([&](int r) {
    Mailboxes::Box& box = group->mailboxes().of(r);
    Mailboxes::Tag& queue = box.tags[tag()];
    std::erase(queue.waiting, this);
    if (queue.waiting.empty() && queue.unmatched.empty()) box.tags.erase(tag());
  });
  fingerprint.root = source;
  const MessageSlot& slot = channel.slot(*index_);
  if (slot.count != fingerprint.count || slot.dtype != fingerprint.in) {
    Fingerprint sent = fingerprint;
    sent.operation = Operation::kSend;
    sent.root = group->rank();
    sent.count = slot.count;
    sent.in = sent.out = slot.dtype;
    sent.label[0] = 0;
    throw group->mismatch(group->rank(), fingerprint, source, sent);
  }
}

bool RecvOperation::step() {
  if (reached(Level::kComplete)) return false;
  queue_up();
  bool moved = false;
  if (!index_) {
    if (!match()) return false;
    moved = true;
  }
  Channel& channel = *channel_from(fingerprint.root);
  MessageSlot& slot = channel.slot(*index_);
  const std::byte* const source = slot.place == 0 ? nullptr : group->at(fingerprint.root, slot.place);
  if (slot.mode == MessageMode::kStaged) {
    while (taken_ < bytes_ && slot.published.load() > slot.consumed.load()) {
      const std::size_t bytes = std::min(kChunk, bytes_ - taken_);
      std::memcpy(data_ + taken_, source + (taken_ / kChunk % 2) * kChunk, bytes);
      taken_ += bytes;
      slot.consumed.fetch_add(1);
      group->ring(fingerprint.root);
      moved = true;
    }
  } else if (taken_ < bytes_) {
    const std::size_t bytes = std::min(kQuantum, bytes_ - taken_);
    std::memcpy(data_ + taken_, source + taken_, bytes);
    taken_ += bytes;
    moved = true;
  }
  if (taken_ == bytes_) {
    slot.done.store(*index_ + 1);
    group->ring(fingerprint.root);
    reach(Level::kComplete);
    moved = true;
  }
  return moved;
}

}  // namespace wirewise::comm
