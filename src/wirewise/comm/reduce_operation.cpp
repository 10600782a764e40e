#include "wirewise/comm/reduce_operation.h"

#include <algorithm>
#include <cstring>

#include "wirewise/base/units.h"
#include "wirewise/comm/stream_copy.h"

namespace wirewise::comm {
namespace {

constexpr int kRoundsPerStep = 4;
constexpr std::size_t kForeignBlock = 64 * 1024;  // bytes of one copy from or to a peer's own memory: they stay in the second-level cache
constexpr std::size_t kAlignment = 64;

ReduceKind unadded(ReduceKind kind) noexcept {
  kind.accumulate = false;
  return kind;
}

}  // namespace

ReduceOperation::ReduceOperation(std::shared_ptr<Group> owner, const Fingerprint& print, CallOptions options,
                                 std::vector<ReducePlanPart> parts)
    : Collective(std::move(owner), print, std::move(options)) {
  const auto ranks = static_cast<std::size_t>(size());
  const bool scatters = print.operation == Operation::kReduceScatter;
  shares_results_ = !scatters && ranks > 1;
  slices_ = ranks;
  own_slice_ = static_cast<std::size_t>(rank());
  area_ = kRoundBytes / slices_ / kAlignment * kAlignment;

  std::vector<std::uint64_t> words;
  std::size_t touched = 0;
  const bool reaches = ranks > 1 && group->peer_memory().open();
  for (const ReducePlanPart& plan : parts) {
    Part part{plan, plan.count, plan.count};
    if (scatters) part.total = plan.total.value_or(ranks * plan.count);
    if (!scatters) part.slice = round_up((plan.count + ranks - 1) / ranks, kAlignment / size_of(plan.kind.in));
    std::uint64_t in = place_of(plan.in, part.total * size_of(plan.kind.in));
    std::uint64_t out = kEverything;
    if (shares_results_ && has_output(rank())) out = place_of(plan.out, part.total * size_of(plan.kind.out));
    if (in == 0 && reaches) in = private_place(plan.in);
    if (out == 0 && reaches) out = private_place(plan.out);
    staged_in_ = staged_in_ || in == 0;
    staged_out_ = staged_out_ || out == 0;
    exposes_ = exposes_ || (in != 0 && in != kEverything);
    touched += part.total * size_of(plan.kind.in) + (plan.in == plan.out ? 0 : plan.count * size_of(plan.kind.out));
    words.push_back(in);
    words.push_back(out);
    parts_.push_back(part);
  }
  staged_in_ = staged_in_ && ranks > 1;
  exposes_ = exposes_ && !staged_in_;
  set_words(std::move(words));
  initially_consumed_ = staged_out_ ? 0 : kEverything;
  if (staged_in_) stage_ = group->stage_offset();
  for (Cursor cursor; !next_round(cursor).empty();) ++rounds_;
  peer_in_.resize(ranks);
  peer_out_.resize(ranks);
  chatty_ = staged_in_ || staged_out_;
  stream_ = exceeds_caches(touched * ranks);
}

const std::vector<ReduceOperation::Piece>& ReduceOperation::next_round(Cursor& cursor) {
  pieces_.clear();
  std::size_t position = 0;
  while (cursor.part < parts_.size()) {
    const Part& part = parts_[cursor.part];
    const std::size_t element = size_of(part.plan.kind.in);
    if (part.total == 0 || cursor.offset >= part.slice) {
      cursor = {cursor.part + 1, 0};
      continue;
    }
    if (position >= area_) break;
    const std::size_t length = std::min(part.slice - cursor.offset, (area_ - position) / element);
    pieces_.push_back({cursor.part, cursor.offset, length, position});
    position = round_up(position + length * element, kAlignment);
    cursor.offset += length;
  }
  return pieces_;
}

std::size_t ReduceOperation::length_in(const Piece& piece, std::size_t slice) const noexcept {
  const Part& part = parts_[piece.part];
  const std::size_t start = slice * part.slice + piece.offset;
  return start >= part.total ? 0 : std::min(piece.length, part.total - start);
}

void ReduceOperation::on_arrival(int peer) {
  const std::span<const std::uint64_t> all = words(peer);
  const CallCell& theirs = cell(peer);
  auto& in = peer_in_[static_cast<std::size_t>(peer)];
  auto& out = peer_out_[static_cast<std::size_t>(peer)];
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto place_at = [&](std::uint64_t place, bool staged) {
      if (staged || place == 0 || place == kEverything) return Place{};
      return is_private_place(place) ? Place{nullptr, place} : Place{group->at(peer, place), 0};
    };
    in.push_back(place_at(all[2 * i], theirs.staged_in()));
    out.push_back(place_at(all[2 * i + 1], theirs.staged_out()));
  }
  if (peer == fingerprint.root) {
    for (Part& part : parts_) part.plan.kind.out = theirs.fingerprint.out;
  }
  chatty_ = chatty_ || theirs.staged_in() || theirs.staged_out();
  result_staged_ = result_staged_ || theirs.staged_out();
}

bool ReduceOperation::publish() {
  if (!staged_in_ || published_ == rounds_) return false;
  if (!group->has_stage(this)) return false;
  std::byte* const stage = group->at(rank(), stage_);
  bool moved = false;
  while (published_ < rounds_) {
    if (published_ >= 2 && !peers_reached(&CallCell::reduced, published_ - 1)) break;
    std::byte* const half = stage + (published_ % 2) * kRoundBytes;
    for (const Piece& piece : next_round(publish_cursor_)) {
      const Part& part = parts_[piece.part];
      const std::size_t element = size_of(part.plan.kind.in);
      for (std::size_t slice = 0; slice < slices_; ++slice) {
        const std::size_t length = length_in(piece, slice);
        if (length == 0 || slice == own_slice_) continue;  // its own slice it reads where it lies
        std::memcpy(half + slice * area_ + piece.position, part.plan.in + (slice * part.slice + piece.offset) * element, length * element);
      }
    }
    own().published.store(++published_);
    group->ring_peers();
    moved = true;
  }
  return moved;
}

/// Reduces a piece in blocks where peers' buffers lie in their own memory. False where none does.
bool ReduceOperation::reduce_foreign(const Piece& piece, std::size_t count, std::byte* staged) {
  const auto ranks = static_cast<std::size_t>(size());
  const auto foreign = [&](std::size_t r) { return peer_in_[r][piece.part].foreign != 0 || peer_out_[r][piece.part].foreign != 0; };
  bool any = false;
  for (std::size_t r = 0; r < ranks; ++r) any = any || (static_cast<int>(r) != rank() && foreign(r));
  if (!any) return false;
  PeerMemory& memory = group->peer_memory();
  const auto call = [this] { return group->describe(fingerprint); };
  const ReduceKind& kind = parts_[piece.part].plan.kind;
  const std::size_t in_size = size_of(kind.in);
  const std::size_t out_size = size_of(kind.out);
  const std::size_t start = own_slice_ * parts_[piece.part].slice + piece.offset;
  const std::size_t block = kForeignBlock / std::max(in_size, out_size);
  scratch_.resize(2 * ranks * kForeignBlock);
  const std::vector<const std::byte*> sources = sources_;
  const std::vector<std::byte*> targets = targets_;
  for (std::size_t at = 0; at < count; at += block) {
    const std::size_t length = std::min(block, count - at);
    for (std::size_t r = 0; r < ranks; ++r) {
      const Place* const in = static_cast<int>(r) == rank() ? nullptr : &peer_in_[r][piece.part];
      if (in == nullptr || in->foreign == 0) {
        sources_[r] = sources[r] + at * in_size;
      } else {
        std::byte* const here = scratch_.data() + r * kForeignBlock;
        memory.read(static_cast<int>(r), in->foreign + (start + at) * in_size, here, length * in_size, call);
        sources_[r] = here;
      }
    }
    if (staged != nullptr) {
      std::byte* const here = staged + at * out_size;
      reduce(unadded(kind), sources_, std::span(&here, 1), length);
    }
    targets_.clear();
    for (std::byte* const target : targets) targets_.push_back(target + at * out_size);
    const auto each_foreign = [&](auto function) {
      for (std::size_t r = 0; shares_results_ && r < ranks; ++r) {
        if (static_cast<int>(r) == rank() || !has_output(static_cast<int>(r)) || peer_out_[r][piece.part].foreign == 0) continue;
        // One block for all, unless each adds to what it holds.
        std::byte* const here = scratch_.data() + (ranks + (kind.accumulate ? r : 0)) * kForeignBlock;
        function(static_cast<int>(r), peer_out_[r][piece.part].foreign + (start + at) * out_size, here);
      }
    };
    bool shared_block = false;
    each_foreign([&](int r, std::uint64_t there, std::byte* here) {
      if (kind.accumulate) memory.read(r, there, here, length * out_size, call);
      if (kind.accumulate || !shared_block) targets_.push_back(here);
      shared_block = true;
    });
    reduce(kind, sources_, targets_, length, false);
    each_foreign([&](int r, std::uint64_t there, std::byte* here) { memory.write(r, there, here, length * out_size, call); });
  }
  return true;
}

void ReduceOperation::reduce_piece(const Piece& piece, std::uint64_t round) {
  const std::size_t count = length_in(piece, own_slice_);
  if (count == 0) return;
  const Part& part = parts_[piece.part];
  const ReduceKind& kind = part.plan.kind;
  const std::size_t start = own_slice_ * part.slice + piece.offset;
  const std::size_t in_at = start * size_of(kind.in);
  sources_.clear();
  targets_.clear();
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) {
      sources_.push_back(part.plan.in + in_at);
    } else if (cell(r).staged_in()) {
      sources_.push_back(group->at(r, cell(r).stage) + (round % 2) * kRoundBytes + own_slice_ * area_ + piece.position);
    } else {
      std::byte* const mapped = peer_in_[static_cast<std::size_t>(r)][piece.part].mapped;
      sources_.push_back(mapped == nullptr ? nullptr : mapped + in_at);
    }
  }
  if (!shares_results_) {
    const std::size_t out_start = fingerprint.operation == Operation::kReduceScatter ? piece.offset : start;
    targets_.push_back(part.plan.out + out_start * size_of(kind.out));
  } else {
    for (int r = 0; r < size(); ++r) {
      if (!has_output(r)) continue;
      std::byte* out = nullptr;
      if (r != rank()) {
        out = peer_out_[static_cast<std::size_t>(r)][piece.part].mapped;
      } else if (!staged_out_) {
        out = part.plan.out;
      }
      if (out != nullptr) targets_.push_back(out + start * size_of(kind.out));
    }
    // A rank whose output is not shared takes its own slice as it takes its peers': from the staging area, or here if it has none.
    if (staged_out_) targets_.push_back(part.plan.out + start * size_of(kind.out));
  }
  // First for those who take it from here, while no output that may be an input is written. They accumulate themselves.
  std::byte* const staged =
      result_staged_ ? group->at(rank(), own().result) + (2 + round % 2) * kRoundBytes + 2 * piece.position : nullptr;
  if (reduce_foreign(piece, count, staged)) return;
  if (staged != nullptr) reduce(unadded(kind), sources_, std::span(&staged, 1), count);
  reduce(kind, sources_, targets_, count, stream_);
}

bool ReduceOperation::reduce_rounds() {
  if (reduced_ == rounds_) return false;
  if (result_staged_ && own().result == 0) {
    if (!group->has_stage(this)) return false;
    own().result = group->stage_offset();
  }
  bool moved = false;
  for (int i = 0; i < kRoundsPerStep && reduced_ < rounds_; ++i) {
    bool ready = true;
    for (int r = 0; r < size() && ready; ++r) {
      // This rank's own input too: it may be the buffer that the result goes to.
      if (cell(r).staged_in()) ready = cell(r).published.load() > reduced_;
    }
    if (!ready) break;
    if (result_staged_ && reduced_ >= 2 && !peers_reached(&CallCell::consumed, reduced_ - 1)) break;
    for (const Piece& piece : next_round(reduce_cursor_)) reduce_piece(piece, reduced_);
    own().reduced.store(++reduced_);
    if (chatty_ || reduced_ == rounds_) group->ring_peers();
    moved = true;
  }
  return moved;
}

/// Takes the peers' slices from their staging areas.
bool ReduceOperation::collect() {
  if (!staged_out_) return false;
  bool moved = false;
  while (collected_ < reduced_ && peers_reached(&CallCell::reduced, collected_ + 1)) {
    for (const Piece& piece : next_round(collect_cursor_)) {
      const Part& part = parts_[piece.part];
      for (int r = 0; r < size(); ++r) {
        const std::size_t length = length_in(piece, static_cast<std::size_t>(r));
        if (r == rank() || length == 0) continue;
        const std::byte* const result = group->at(r, cell(r).result) + (2 + collected_ % 2) * kRoundBytes + 2 * piece.position;
        const std::size_t start = static_cast<std::size_t>(r) * part.slice + piece.offset;
        take_over(part.plan.kind, part.plan.out + start * size_of(part.plan.kind.out), result, length);
      }
    }
    own().consumed.store(++collected_);
    group->ring_peers();
    moved = true;
  }
  return moved;
}

bool ReduceOperation::output_complete() const noexcept {
  if (reduced_ != rounds_) return false;
  if (!shares_results_ || !has_output(rank())) return true;
  return staged_out_ ? collected_ == rounds_ : peers_reached(&CallCell::reduced, rounds_);
}

bool ReduceOperation::step() {
  if (!posted()) return false;
  bool moved = meet();
  moved = publish() || moved;
  if (!all_arrived()) return moved;
  if (!staged_in_ && !result_staged_ && may_stage()) group->leave_stage(this);
  moved = reduce_rounds() || moved;
  moved = collect() || moved;
  if (!is_done() && reduced_ == rounds_ && (!staged_out_ || collected_ == rounds_)) {
    post_done();
    moved = true;
  }
  if (!reached(Level::kOutput) && is_done() && output_complete()) {
    reach(Level::kOutput);
    moved = true;
  }
  if (reached(Level::kOutput) && !reached(Level::kComplete) && published_ == (staged_in_ ? rounds_ : 0) && (!exposes_ || peers_done())) {
    reach(Level::kComplete);
    moved = true;
  }
  const bool inputs_read = !staged_in_ || (published_ == rounds_ && peers_reached(&CallCell::reduced, rounds_));
  const bool results_read = !result_staged_ || peers_reached(&CallCell::consumed, rounds_);
  if (reduced_ == rounds_ && inputs_read && results_read) group->leave_stage(this);
  return moved;
}

}  // namespace wirewise::comm
