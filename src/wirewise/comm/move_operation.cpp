#include "wirewise/comm/move_operation.h"

#include <algorithm>
#include <cstring>

#include "wirewise/comm/stream_copy.h"

namespace wirewise::comm {
namespace {

constexpr std::size_t kQuantum = std::size_t{1} << 22;  // bytes copied before the driver looks around

std::size_t bytes_of(const std::vector<ConstSpan>& spans) noexcept {
  std::size_t bytes = 0;
  for (const ConstSpan& span : spans) bytes += span.bytes;
  return bytes;
}

/// Copies up to `most` bytes; returns how many.
std::size_t copy(SpanWalker<ConstSpan>& from, SpanWalker<Span>& to, std::size_t most, bool stream = false) {
  std::size_t copied = 0;
  while (copied < most && from.left() > 0 && to.left() > 0) {
    const ConstSpan source = from.head();
    const Span target = to.head();
    const std::size_t bytes = std::min({source.bytes, target.bytes, most - copied});
    if (source.data != target.data && stream) {
      stream_copy(target.data, source.data, bytes);
    } else if (source.data != target.data) {
      std::memcpy(target.data, source.data, bytes);
    }
    from.skip(bytes);
    to.skip(bytes);
    copied += bytes;
  }
  return copied;
}

}  // namespace

MoveOperation::MoveOperation(std::shared_ptr<Group> owner, const Fingerprint& print, CallOptions options, MovePlan plan,
                             bool copied)
    : Collective(std::move(owner), print, std::move(options)), plan_(std::move(plan)) {
  const auto ranks = static_cast<std::size_t>(size());
  chunk_ = plan_.shared ? kRoundBytes : kRoundBytes / ranks / 64 * 64;
  std::vector<std::uint64_t> words;
  std::size_t exposed = 0;
  for (const ConstSpan& span : plan_.exposed) {
    words.push_back(place_of(span.data, span.bytes));
    staged_in_ = staged_in_ || (words.back() == 0 && !copied);
    exposed += span.bytes;
  }
  staged_in_ = staged_in_ && size() > 1;
  if (staged_in_ && group->peer_memory().open()) {
    // A rank's buffers are all named in one way.
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (plan_.exposed[i].bytes > 0) words[i] = private_place(plan_.exposed[i].data);
    }
    staged_in_ = false;
  }
  exposes_ = exposed > 0 && !staged_in_ && !copied && size() > 1;
  if (plan_.fans) {
    words.push_back(place_of(plan_.filled.data, plan_.filled.bytes));
    named_ = words.back() != 0 && words.back() != kEverything;
    fan_over_ = false;
  }
  words.insert(words.end(), plan_.counts.begin(), plan_.counts.end());
  set_words(std::move(words));
  if (staged_in_) {
    stage_ = group->stage_offset();
    for (std::size_t i = 0; i < plan_.outgoing.size(); ++i) {
      const bool to_self = !plan_.shared && static_cast<int>(i) == rank();
      const std::size_t bytes = to_self ? 0 : bytes_of(plan_.outgoing[i]);
      rounds_ = std::max<std::uint64_t>(rounds_, (bytes + chunk_ - 1) / chunk_);
      outgoing_.emplace_back(to_self ? std::vector<ConstSpan>{} : plan_.outgoing[i]);
    }
  }
  sources_.resize(ranks);
  std::size_t touched = exposed;
  for (std::size_t r = 0; r < ranks; ++r) {
    sources_[r].to = SpanWalker<Span>(plan_.incoming[r]);
    touched += sources_[r].to.left();
  }
  stream_ = exceeds_caches(touched * ranks);
  if (named_) {  // all of it comes by the fan
    for (Source& source : sources_) source.to = {};
  }
  Source& self = sources_[static_cast<std::size_t>(rank())];
  if (self.to.left() > 0) {
    self.from = SpanWalker<ConstSpan>(plan_.outgoing[plan_.shared ? 0 : static_cast<std::size_t>(rank())]);
    self.open = true;
  }
}

void MoveOperation::on_arrival(int peer) { open_source(peer); }

void MoveOperation::open_source(int peer) {
  Source& source = sources_[static_cast<std::size_t>(peer)];
  const std::span<const std::uint64_t> all = words(peer);
  const std::size_t buffers = plan_.exposed.size();
  std::vector<const std::byte*> bases;
  const bool carried = (cell(peer).flags & CallCell::kCarried) != 0;
  for (std::size_t i = 0; i < buffers; ++i) {
    const bool placed = !cell(peer).staged_in() && i < all.size() && all[i] != 0 && (all[i] & kPrivatePlace) == 0;
    bases.push_back(carried ? reinterpret_cast<const std::byte*>(cell(peer).words) : placed ? group->at(peer, all[i]) : nullptr);
  }
  for (std::size_t i = 0; i < buffers && i < all.size() && !carried; ++i) {
    if (!is_private_place(all[i])) continue;
    source.foreign = true;
    bases[i] = reinterpret_cast<const std::byte*>(all[i] & ~kPrivatePlace);  // an address over there
  }
  std::vector<ConstSpan> spans = plan_.view(peer, bases, all.subspan(std::min(buffers, all.size())));
  source.staged = cell(peer).staged_in();
  if (!source.staged) source.from = SpanWalker<ConstSpan>(std::move(spans));
  source.open = true;
}

bool MoveOperation::publish() {
  if (!staged_in_ || published_ == rounds_) return false;
  if (!group->has_stage(this)) return false;
  std::byte* const stage = group->at(rank(), stage_);
  bool moved = false;
  while (published_ < rounds_) {
    if (published_ >= 2 && !peers_reached(&CallCell::consumed, published_ - 1)) break;
    std::byte* const half = stage + (published_ % 2) * kRoundBytes;
    for (std::size_t i = 0; i < outgoing_.size(); ++i) {
      SpanWalker<Span> to({Span{half + (plan_.shared ? 0 : i * chunk_), chunk_}});
      copy(outgoing_[i], to, chunk_);
    }
    own().published.store(++published_);
    group->ring_peers();
    moved = true;
  }
  return moved;
}

void MoveOperation::open_fan() {
  const auto source_bytes = [this](int r) {
    return fingerprint.operation == Operation::kBroadcast && r != fingerprint.root ? 0 : static_cast<std::size_t>(fingerprint.count) * size_of(fingerprint.in);
  };
  const std::size_t bytes = source_bytes(std::max(fingerprint.root, 0));
  fan_ = Fan(bytes, stream_);
  const auto mapped = [](std::uint64_t place) { return place != 0 && place != kEverything && !is_private_place(place); };
  bool all_named = true;
  for (int i = 0; i < size(); ++i) {
    const int r = (rank() + i) % size();
    const std::span<const std::uint64_t> all = words(r);
    if (mapped(all[1])) {
      fan_.add_target(group->at(r, all[1]));
    } else if (r != rank() && all[1] != kEverything) {
      all_named = false;
    }
    const std::size_t place = fingerprint.operation == Operation::kAllGather ? static_cast<std::size_t>(r) * bytes : 0;
    if (source_bytes(r) == 0) continue;
    if (r == rank()) {
      fan_.add_source(plan_.exposed[0].data, place, own().claims);
    } else if (!cell(r).staged_in() && mapped(all[0])) {
      fan_.add_source(group->at(r, all[0]), place, group->control().call(fingerprint.sequence, r).claims);
    }
  }
  if (all_named) rounds_ = published_;  // nobody reads the staging area
  fan_open_ = true;
}

bool MoveOperation::fan_out() {
  if (fan_over_ || !all_arrived()) return false;
  if (!fan_open_) open_fan();
  std::size_t copied = 0;
  while (copied < kQuantum && !fan_over_) {
    const std::size_t now = fan_.step();
    fan_over_ = now == 0;
    copied += now;
  }
  return true;
}

/// Copies up to `most` bytes from the peer's own memory; returns how many.
std::size_t MoveOperation::pull(int peer, Source& source, std::size_t most) {
  std::size_t pulled = 0;
  while (pulled < most && source.from.left() > 0 && source.to.left() > 0) {
    const ConstSpan from = source.from.head();
    const Span to = source.to.head();
    const std::size_t bytes = std::min({from.bytes, to.bytes, most - pulled});
    group->peer_memory().read(peer, private_place(from.data), to.data, bytes, [this] { return group->describe(fingerprint); });
    source.from.skip(bytes);
    source.to.skip(bytes);
    pulled += bytes;
  }
  return pulled;
}

bool MoveOperation::consume_staged(int peer, Source& source) {
  bool moved = false;
  const std::uint64_t there = cell(peer).published.load();
  while (source.to.left() > 0 && source.rounds < there) {
    const std::byte* const half = group->at(peer, cell(peer).stage) + (source.rounds % 2) * kRoundBytes;
    const std::byte* const bytes = half + (plan_.shared ? 0 : static_cast<std::size_t>(rank()) * chunk_);
    SpanWalker<ConstSpan> from({ConstSpan{bytes, std::min(chunk_, source.to.left())}});
    copy(from, source.to, chunk_, stream_);
    ++source.rounds;
    moved = true;
  }
  return moved;
}

bool MoveOperation::consume() {
  bool moved = false;
  std::size_t copied = 0;
  std::uint64_t slowest = kEverything;
  // Start behind oneself, so that ranks don't all read from one peer at once.
  for (int i = 0; i < size(); ++i) {
    const int peer = (rank() + i) % size();
    Source& source = sources_[static_cast<std::size_t>(peer)];
    if (source.to.left() == 0) continue;
    if (!source.open) {
      slowest = 0;
      continue;
    }
    if (source.staged) {
      moved = consume_staged(peer, source) || moved;
      if (source.to.left() > 0) slowest = std::min(slowest, source.rounds);
    } else if (copied < kQuantum) {
      const std::size_t now =
          source.foreign ? pull(peer, source, kQuantum - copied) : copy(source.from, source.to, kQuantum - copied, stream_);
      copied += now;
      moved = moved || now > 0;
    }
  }
  if (slowest > consumed_) {
    consumed_ = slowest;
    own().consumed.store(consumed_);
    group->ring_peers();
  }
  return moved;
}

bool MoveOperation::step() {
  if (!posted()) return false;
  bool moved = meet();
  moved = publish() || moved;
  moved = consume() || moved;
  moved = fan_out() || moved;
  const bool taken = fan_over_ && std::all_of(sources_.begin(), sources_.end(), [](const Source& source) { return source.to.left() == 0; });
  if (!is_done() && taken && all_arrived()) {
    if (!fan_.has_targets()) reach(Level::kOutput);
    post_done();
    moved = true;
  }
  const bool shared = exposes_ || fan_.has_targets();
  if (is_done() && !reached(Level::kComplete) && published_ == rounds_ && (!shared || peers_done())) {
    if (!reached(Level::kOutput)) reach(Level::kOutput);
    reach(Level::kComplete);
    moved = true;
  }
  // Readers may be in the staging area still, when this rank's buffers are free already.
  if (staged_in_ && published_ == rounds_ && peers_reached(&CallCell::consumed, rounds_)) group->leave_stage(this);
  return moved;
}

}  // namespace wirewise::comm
