#include "wirewise/comm/spanning_doubling.h"

#include <algorithm>
#include <bit>

#include "wirewise/base/units.h"
#include "wirewise/comm/partials.h"
#include "wirewise/comm/spanning_chunks.h"
#include "wirewise/comm/spanning_share.h"

namespace wirewise::comm {
namespace {

constexpr std::size_t kAlignment = 64;

std::uint32_t partial_step(std::size_t part) { return static_cast<std::uint32_t>(2 * part); }
std::uint32_t finished_step(std::size_t part) { return static_cast<std::uint32_t>(2 * part + 1); }

/// Elements of one of `pieces` equal stretches, each beginning on its own cache line.
std::size_t piece_of(std::size_t count, std::size_t pieces, std::size_t element) {
  return round_up((count + pieces - 1) / pieces, kAlignment / std::min(kAlignment, element));
}

/// The lowest bits of `value` in reverse: which piece a host keeps when halves go by the lowest bit first.
std::size_t reversed(std::size_t value, int bits) {
  std::size_t result = 0;
  for (int i = 0; i < bits; ++i) result |= (value >> i & 1) << (bits - 1 - i);
  return result;
}

int rounds_of(int hosts) { return std::bit_width(static_cast<unsigned>(hosts)) - 1; }

}  // namespace

SpanningDoubling::SpanningDoubling(std::shared_ptr<SpanningGroup> owner, const Fingerprint& print, CallOptions options,
                                   std::vector<ReducePlanPart> parts, Form form)
    : SpanningOperation(std::move(owner), print, std::move(options)), parts_(std::move(parts)), form_(form) {}

void SpanningDoubling::begin() {
  meet();
  stage([this] {
    lay_out();
    reduce_here();
  });
  stage([this] { exchange(); });
  if (scatters() || form_ == Form::kWhole) return;
  stage([this] { share(); });
  stage([this] { take_over_shared(); });
}

std::size_t SpanningDoubling::held(std::size_t part) const { return size_of(partial_type(parts_[part].kind.in)); }

std::size_t SpanningDoubling::slice_of(std::size_t part) const {
  return piece_of(parts_[part].count, static_cast<std::size_t>(local_size()), element(part));
}

std::size_t SpanningDoubling::cut(const Lane& lane, std::size_t position) const {
  if (scatters()) return position * parts_[lane.part].count;
  return std::min(lane.length, position * piece_of(lane.length, static_cast<std::size_t>(hosts().count()), element(lane.part)));
}

std::byte* SpanningDoubling::result(const Lane& lane, std::size_t at) const {
  const ReducePlanPart& part = parts_[lane.part];
  const std::size_t width = size_of(part.kind.out);
  if (scatters()) return part.out;  // only its own slice is ever finished here
  return (form_ == Form::kWhole ? part.out : finished_[lane.part]) + (lane.offset + at) * width;
}

// --- on this host

void SpanningDoubling::lay_out() {
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    Lane lane;
    lane.part = p;
    if (scatters()) {
      lay_out_rows(lane);
    } else {
      lay_out_slices(lane);
    }
    add_rounds(lane);
    lanes_.push_back(std::move(lane));
  }
}

/// all_reduce: the vector, or by halves one slice of it a rank of the host.
void SpanningDoubling::lay_out_slices(Lane& lane) {
  const ReducePlanPart& part = parts_[lane.part];
  ReducePlanPart inner = part;
  inner.kind = partial_kind(part.kind);
  lane.length = part.count;
  if (form_ == Form::kHalves) {
    const std::size_t slice = slice_of(lane.part);
    lane.offset = std::min(part.count, static_cast<std::size_t>(place()) * slice);
    lane.length = std::min(slice, part.count - lane.offset);
    inner.count = slice;
    inner.total = part.count;
    finished_.push_back(part.kind.accumulate ? scratch(part.count * size_of(part.kind.out)) : part.out);
  }
  const bool as_it_is = form_ == Form::kHalves && local_size() == 1 && partial_type(part.kind.in) == part.kind.in;
  lane.mine = scratch(lane.length * held(lane.part));
  lane.own = as_it_is ? part.in + lane.offset * element(lane.part) : lane.mine;
  if (as_it_is) return;
  inner.out = lane.mine;
  rows_.push_back(inner);
}

/// reduce_scatter: this place's slice of each host, in the order in which halves are given away.
void SpanningDoubling::lay_out_rows(Lane& lane) {
  const ReducePlanPart& part = parts_[lane.part];
  const auto count = static_cast<std::size_t>(hosts().count());
  const std::size_t row = static_cast<std::size_t>(local_size()) * part.count;
  lane.length = count * part.count;
  lane.mine = scratch(lane.length * held(lane.part));
  lane.own = lane.mine;
  for (std::size_t h = 0; h < count; ++h) {
    ReducePlanPart inner;
    inner.in = part.in + h * row * element(lane.part);
    inner.out = lane.mine + reversed(h, rounds_of(hosts().count())) * part.count * held(lane.part);
    inner.count = part.count;
    inner.kind = partial_kind(part.kind);
    rows_.push_back(inner);
  }
}

void SpanningDoubling::reduce_here() {
  if (rows_.empty()) return;
  const Operation inner = form_ == Form::kWhole ? Operation::kAllReduce : Operation::kReduceScatter;
  const auto& here = owner().local_group();
  local(here->issue(std::make_shared<ReduceOperation>(here, inner_print(inner, fingerprint), inner_options(), std::move(rows_))));
}

// --- between hosts

void SpanningDoubling::add_rounds(Lane& lane) {
  const std::size_t width = held(lane.part);
  std::size_t first = 0;  // of the pieces that are still held
  auto pieces = static_cast<std::size_t>(hosts().count());
  const std::byte* sums = lane.own;
  for (int distance = 1; distance < hosts().count(); distance *= 2) {
    Round round;
    const bool upper = (host() & distance) != 0;
    round.peer = hosts().agent(host() ^ distance, place());
    round.peer_first = upper;
    if (form_ == Form::kWhole) {
      round.give = round.keep = {0, lane.length};
      // A peer may still take what the last round has summed.
      round.into = scratch(lane.length * width);
    } else {
      pieces /= 2;
      const Region lower{cut(lane, first), cut(lane, first + pieces)};
      const Region higher{cut(lane, first + pieces), cut(lane, first + 2 * pieces)};
      round.keep = upper ? higher : lower;
      round.give = upper ? lower : higher;
      round.into = lane.mine;
      if (upper) first += pieces;
    }
    round.from = sums;
    round.inbox = scratch(round.keep.length() * width);
    sums = round.into;
    lane.rounds.push_back(round);
  }
}

void SpanningDoubling::exchange() {
  std::vector<int> partners;
  for (const Round& round : lanes_.front().rounds) partners.push_back(round.peer);
  greet(partners, Greeted::kPartners);
  for (Lane& lane : lanes_) {
    send_ready(lane, 0);
    for (std::size_t number = 0; number < lane.rounds.size(); ++number) receive_round(lane, number);
    if (lane.length == 0) continue;
    if (!scatters() && form_ == Form::kHalves) gather_back(lane);
  }
}

/// Sends the chunks of a round whose sums are complete.
void SpanningDoubling::send_ready(Lane& lane, std::size_t number) {
  Round& round = lane.rounds[number];
  const std::size_t width = held(lane.part);
  // Of the region that the round before kept, the first so many elements are summed.
  const std::size_t ready = number == 0 ? lane.length : lane.rounds[number - 1].keep.begin + lane.rounds[number - 1].combined;
  while (round.sent < round.give.length()) {
    const std::size_t from = round.give.begin + round.sent;
    const std::size_t length = std::min(kChunkBytes / width, round.give.length() - round.sent);
    if (from + length > ready) return;
    send(round.peer, partial_step(lane.part), round.from + from * width, length * width);
    round.sent += length;
  }
}

void SpanningDoubling::receive_round(Lane& lane, std::size_t number) {
  Round& round = lane.rounds[number];
  const std::size_t width = held(lane.part);
  each_chunk(round.keep.length(), width, [&](std::size_t from, std::size_t length) {
    const std::size_t arrival = recv(round.peer, partial_step(lane.part), round.inbox + from * width, length * width);
    until([this, &lane, number, arrival, from, length] {
      const Round& own = lane.rounds[number];
      // In order, after the round before has summed its part of it.
      if (own.combined != from || !received(arrival)) return false;
      if (number > 0) {
        const Round& before = lane.rounds[number - 1];
        if (before.keep.begin + before.combined < own.keep.begin + from + length) return false;
      }
      combine(lane, number, from, length);
      if (number + 1 < lane.rounds.size()) {
        send_ready(lane, number + 1);
      } else if (own.combined == own.keep.length()) {
        finish(lane);
      }
      return true;
    });
  });
}

void SpanningDoubling::combine(Lane& lane, std::size_t number, std::size_t from, std::size_t length) {
  Round& round = lane.rounds[number];
  const std::size_t width = held(lane.part);
  const std::size_t at = (round.keep.begin + from) * width;
  const std::byte* const ours = round.from + at;
  const std::byte* const theirs = round.inbox + from * width;
  const DType type = partial_type(parts_[lane.part].kind.in);
  const std::byte* const sources[2] = {round.peer_first ? theirs : ours, round.peer_first ? ours : theirs};
  std::byte* const target[1] = {round.into + at};
  reduce({type, type, partial_kind(parts_[lane.part].kind).op, false}, sources, target, length);
  round.combined += length;
}

/// Divides, rounds and stores what this rank has of the sum of all.
void SpanningDoubling::finish(Lane& lane) {
  const Round& last = lane.rounds.back();
  ReduceKind kind = parts_[lane.part].kind;
  if (!scatters() && form_ == Form::kHalves) kind.accumulate = false;  // done when it is taken over
  const Partial sum{{0, size()}, last.into + last.keep.begin * held(lane.part)};
  combine_partials(kind, size(), std::span(&sum, 1), result(lane, last.keep.begin), last.keep.length());
}

/// The finished pieces, over the same partners in reverse: each brings back what was given to it.
void SpanningDoubling::gather_back(Lane& lane) {
  const std::size_t width = size_of(parts_[lane.part].kind.out);
  const std::size_t rounds = lane.rounds.size();
  std::vector<std::vector<std::size_t>> arrivals(rounds);
  for (std::size_t number = 0; number < rounds; ++number) {
    const Round& round = lane.rounds[number];
    each_chunk(round.give.length(), width, [&](std::size_t from, std::size_t length) {
      arrivals[number].push_back(
          recv(round.peer, finished_step(lane.part), result(lane, round.give.begin + from), length * width));
    });
  }
  until([this, &lane, rounds, arrivals] {
    const Round& last = lane.rounds.back();
    if (last.combined != last.keep.length()) return false;
    for (;;) {
      const std::size_t number = rounds - 1 - lane.gathered;
      if (lane.returned == lane.gathered) {
        send_back(lane, number);
        ++lane.returned;
      }
      const auto& awaited = arrivals[number];
      if (!std::all_of(awaited.begin(), awaited.end(), [this](std::size_t arrival) { return received(arrival); })) return false;
      if (++lane.gathered == rounds) return true;
    }
  });
}

void SpanningDoubling::send_back(Lane& lane, std::size_t number) {
  const Round& round = lane.rounds[number];
  const std::size_t width = size_of(parts_[lane.part].kind.out);
  each_chunk(round.keep.length(), width, [&](std::size_t from, std::size_t length) {
    send(round.peer, finished_step(lane.part), result(lane, round.keep.begin + from), length * width);
  });
}

// --- back on this host

void SpanningDoubling::share() {
  std::vector<Span> buffers;
  std::vector<Stretch> stretches;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const std::size_t width = size_of(parts_[p].kind.out);
    buffers.push_back({finished_[p], parts_[p].count * width});
    for (int owner = 0; owner < local_size(); ++owner) {
      const std::size_t at = std::min(parts_[p].count, static_cast<std::size_t>(owner) * slice_of(p));
      stretches.push_back({p, at * width, std::min(slice_of(p), parts_[p].count - at) * width, owner});
    }
  }
  const auto& here = owner().local_group();
  local(here->issue(std::make_shared<MoveOperation>(here, inner_print(Operation::kAllGather, fingerprint), inner_options(),
                                                     share_stretches(buffers, stretches, place(), local_size(), true))));
}

void SpanningDoubling::take_over_shared() {
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (finished_[p] != parts_[p].out) take_over(parts_[p].kind, parts_[p].out, finished_[p], parts_[p].count);
  }
}

}  // namespace wirewise::comm
