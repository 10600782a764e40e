#include "wirewise/comm/collective.h"

#include <algorithm>
#include <cstring>

namespace wirewise::comm {

Collective::Collective(std::shared_ptr<Group> owner, const Fingerprint& print, CallOptions options)
    : State(std::move(owner), print, std::move(options)), arrived_(static_cast<std::size_t>(group->size())) {
  arrived_[static_cast<std::size_t>(rank())] = true;
  arrivals_ = 1;
}

Collective::~Collective() {
  for (void* const block : lent_) group->context().arena.free(block);
}

void* Collective::lend(std::size_t bytes) {
  lent_.reserve(lent_.size() + 1);
  lent_.push_back(group->context().arena.allocate(bytes));
  return lent_.back();
}

void Collective::set_words(std::vector<std::uint64_t> words) {
  words_ = std::move(words);
  if (words_.size() <= kInlineWords) return;
  const std::size_t bytes = words_.size() * sizeof(std::uint64_t);
  table_ = lend(bytes);
  std::memcpy(table_, words_.data(), bytes);
}

std::uint64_t Collective::place_of(const void* data, std::size_t bytes) const noexcept {
  return bytes == 0 ? kEverything : group->context().arena.offset_of(data, bytes);
}

bool Collective::post() {
  announce(words_, false);
  return true;
}

void Collective::announce(std::span<const std::uint64_t> words, bool carried) {
  record_how(staged_in_ || staged_out_ ? "staged" : carried || words_.empty() ? "small" : "shared");
  CallCell& cell = own();
  cell.published.store(0, std::memory_order_relaxed);
  cell.reduced.store(0, std::memory_order_relaxed);
  cell.claims.store(0, std::memory_order_relaxed);
  cell.consumed.store(initially_consumed_, std::memory_order_relaxed);
  cell.fingerprint = fingerprint;
  cell.stage = stage_;
  cell.result = 0;
  cell.table = 0;
  CallHead head;
  head.digest = fingerprint.digest();
  head.finished = group->control().rank(rank()).finished.load(std::memory_order_relaxed);
  head.flags = (staged_in_ ? CallHead::kStagedIn : 0u) | (staged_out_ ? CallHead::kStagedOut : 0u) | (carried ? CallHead::kCarried : 0u);
  head.count = static_cast<std::uint32_t>(words.size());
  if (words.size() > kInlineWords) {
    head.flags |= CallHead::kTabled;
    cell.table = static_cast<std::uint64_t>(static_cast<std::byte*>(table_) - group->context().arena.base());
  } else {
    std::copy(words.begin(), words.end(), head.words);
  }
  cell.issue(head, fingerprint.sequence);
  posted_.store(true, std::memory_order_release);
  group->ring_peers();
}

bool Collective::meet() {
  if (all_arrived()) return false;
  bool news = false;
  for (int r = 0; r < size(); ++r) {
    if (arrived(r) || cell(r).issued.load() != fingerprint.sequence + 1) continue;
    const Fingerprint& theirs = cell(r).fingerprint;
    if (!fingerprint.agrees_with(theirs)) throw group->mismatch(rank(), fingerprint, r, theirs);
    arrived_[static_cast<std::size_t>(r)] = true;
    ++arrivals_;
    news = true;
    on_arrival(r);
  }
  return news;
}

std::span<const std::uint64_t> Collective::words(int r) const noexcept {
  const CallCell& theirs = cell(r);
  if ((theirs.flags & CallCell::kTabled) == 0) return {theirs.words, theirs.count};
  return {reinterpret_cast<const std::uint64_t*>(group->at(r, theirs.table)), theirs.count};
}

bool Collective::peers_reached(std::atomic<std::uint64_t> CallCell::*counter, std::uint64_t value) const noexcept {
  if (!all_arrived()) return false;
  for (int r = 0; r < size(); ++r) {
    if (r != rank() && (cell(r).*counter).load(std::memory_order_acquire) < value) return false;
  }
  return true;
}

void Collective::post_done() noexcept {
  done_ = true;
  own().done.store(fingerprint.sequence + 1);
  group->ring_peers();
}

void Collective::begin_done() noexcept {
  std::fill(arrived_.begin(), arrived_.end(), true);
  arrivals_ = size();
  done_ = true;
}

bool Collective::peers_done() const noexcept {
  for (int r = 0; r < size(); ++r) {
    if (r != rank() && cell(r).done.load(std::memory_order_acquire) != fingerprint.sequence + 1) return false;
  }
  return true;
}

bool Collective::retired() const noexcept { return done_ && reached(Level::kComplete) && peers_done(); }

void Collective::release() noexcept {
  group->leave_stage(this);
  // A rank may close its communicator before slower peers have read what it lent them for the last call.
  if (retired()) return;
  for (void* const block : lent_) group->keep_until_closed(block);
  lent_.clear();
}

std::vector<Missing> Collective::missing() const {
  std::vector<Missing> ranks;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    if (!arrived(r)) {
      ranks.push_back({r, false});
    } else if (cell(r).done.load(std::memory_order_acquire) != fingerprint.sequence + 1) {
      ranks.push_back({r, true});
    }
  }
  return ranks;
}

}  // namespace wirewise::comm
