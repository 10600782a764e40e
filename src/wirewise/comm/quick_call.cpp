#include "wirewise/comm/quick_call.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <thread>

#include "wirewise/base/units.h"
#include "wirewise/comm/group.h"
#include "wirewise/comm/phase.h"
#include "wirewise/comm/small_operation.h"
#include "wirewise/comm/spin.h"

namespace wirewise::comm {
namespace {

constexpr int kLooks = 150;              // for peers in step: about two microseconds
constexpr int kYields = 12;              // where ranks outnumber cores
constexpr std::size_t kBytesPerLook = 96;  // a peer that moves data is waited for about as long as that may take
constexpr std::size_t kAlignment = 64;

bool reduces(Operation operation) noexcept { return operation == Operation::kAllReduce || operation == Operation::kReduceScatter; }

/// Looks until `there()`, within a budget of looks.
template <typename There>
bool look(int& looks, bool spin, There&& there) {
  while (!there()) {
    if (--looks < 0) return false;
    if (spin) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
  return true;
}

}  // namespace

/// Names this rank's buffers to its peers. False where they don't all lie in shared memory.
bool Group::name_buffers(const QuickCall& call, CallHead& head) const {
  const Arena& arena = context().arena;
  head.words[0] = arena.offset_of(call.in, call.in_bytes);
  if (!reduces(call.print.operation)) return head.words[0] != 0;
  head.count = 2;
  head.words[1] = call.print.operation == Operation::kAllReduce ? arena.offset_of(call.out, call.out_bytes) : kEverything;
  return head.words[0] != 0 && head.words[1] != 0;
}

/// Fills what peers read of this call first. False where the call can't go this way.
bool Group::place(QuickCall& call, CallHead& head) {
  const bool to_all = call.print.operation == Operation::kAllToAll;
  if (to_all && static_cast<std::size_t>(size()) + 1 > kInlineWords) return false;
  const bool reduction = reduces(call.print.operation);
  const bool small = reduction ? is_small_reduction(call.print.operation, call.in_bytes, size()) : call.in_bytes <= kSmallBytes;
  // Without cores of their own, ranks meet by taking turns on one: once is better than twice.
  const std::size_t copied = !spin_ ? kSmallBytes : reduction ? kCopiedReduction : kCopiedMove;
  head.count = 1;
  if (call.in_bytes == 0) {
    head.words[0] = kEverything;
  } else if (call.in_bytes > copied && name_buffers(call, head)) {
    if (small && reduction) head.flags = CallHead::kDirect;
  } else if (small && size() > 1) {
    call.copied = true;
    if (call.in_bytes <= kCellBytes && !to_all) {
      head.flags = CallHead::kCarried;
      head.count = kInlineWords;
      std::memcpy(head.words, call.in, call.in_bytes);
    } else {
      head.count = 1;
      head.words[0] = take_lane(next_sequence_);
      if (head.words[0] == 0) return false;
      std::memcpy(at(rank(), head.words[0]), call.in, call.in_bytes);
    }
  } else if (!name_buffers(call, head)) {
    return false;
  }
  if (!to_all) return true;
  head.count = static_cast<std::uint32_t>(size() + 1);
  std::copy(call.send_counts.begin(), call.send_counts.end(), head.words + 1);
  return true;
}

const std::byte* Group::carried_data(std::uint64_t sequence, int r) const noexcept {
  const CallCell& cell = control_.call(sequence, r);
  if ((cell.flags & CallHead::kCarried) != 0) return reinterpret_cast<const std::byte*>(cell.words);
  return cell.words[0] == 0 || cell.words[0] == kEverything ? nullptr : at(r, cell.words[0]);
}

bool Group::all_direct(std::uint64_t sequence) const noexcept {
  for (int r = 0; r < size(); ++r) {
    if ((control_.call(sequence, r).flags & CallHead::kDirect) == 0) return false;
  }
  return true;
}

void Group::reduce_slice(const QuickCall& call) const {
  std::array<const std::byte*, kQuickRanks> sources;
  std::array<std::byte*, kQuickRanks> targets;
  const auto me = static_cast<std::size_t>(rank());
  const auto ranks = static_cast<std::size_t>(size());
  const bool scatters = call.print.operation == Operation::kReduceScatter;
  const std::size_t slice = scatters ? call.count : round_up((call.count + ranks - 1) / ranks, kAlignment / size_of(call.kind.in));
  const std::size_t start = scatters ? me * slice : std::min(me * slice, call.count);
  const std::size_t count = scatters ? call.count : std::min(slice, call.count - start);
  for (std::size_t r = 0; r < ranks; ++r) {
    const CallCell& cell = control_.call(call.print.sequence, static_cast<int>(r));
    sources[r] = (r == me ? call.in : at(static_cast<int>(r), cell.words[0])) + start * size_of(call.kind.in);
    if (!scatters) targets[r] = (r == me ? call.out : at(static_cast<int>(r), cell.words[1])) + start * size_of(call.kind.out);
  }
  if (scatters) targets[0] = call.out;
  if (count > 0) reduce(call.kind, std::span(sources.data(), ranks), std::span(targets.data(), scatters ? 1 : ranks), count);
}

/// Moves this rank's data. False where that takes an operation.
bool Group::move(const QuickCall& call) {
  const std::uint64_t sequence = call.print.sequence;
  const auto me = static_cast<std::size_t>(rank());
  const auto ranks = static_cast<std::size_t>(size());
  const Operation operation = call.print.operation;
  std::array<const std::byte*, kQuickRanks> sources;
  int direct = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const CallCell& cell = control_.call(sequence, static_cast<int>(r));
    if ((cell.flags & (CallHead::kStagedIn | CallHead::kStagedOut)) != 0) return false;
    if ((cell.flags & CallHead::kDirect) != 0) ++direct;
    // Words that name a peer's own memory, or nothing to read from, are an operation's business.
    const auto elsewhere = [](std::uint64_t place) { return place != kEverything && (place == 0 || is_private_place(place)); };
    if (r != me && cell.count > 0 && (cell.flags & CallHead::kCarried) == 0 &&
        (elsewhere(cell.words[0]) || (operation == Operation::kAllReduce && cell.count > 1 && elsewhere(cell.words[1])))) {
      return false;
    }
    sources[r] = r == me ? call.in : carried_data(sequence, static_cast<int>(r));
  }
  if (direct > 0 && direct < size()) return false;
  switch (operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter: {
      if (call.count == 0) return true;
      if (ranks > 1 && !call.copied) {
        reduce_slice(call);
        return true;
      }
      if (operation == Operation::kReduceScatter) {
        for (std::size_t r = 0; r < ranks; ++r) sources[r] += me * call.block;
      }
      reduce(call.kind, std::span(sources.data(), ranks), std::span(&call.out, 1), call.count);
      return true;
    }
    case Operation::kAllGather:
      for (std::size_t i = 0; i < ranks && call.block > 0; ++i) {
        const std::size_t r = (me + i) % ranks;
        std::byte* const to = call.out + r * call.block;
        if (to != sources[r]) std::memcpy(to, sources[r], call.block);
      }
      return true;
    case Operation::kBroadcast: {
      const auto root = static_cast<std::size_t>(call.print.root);
      if (root != me && call.out_bytes > 0) std::memcpy(call.out, sources[root], call.out_bytes);
      return true;
    }
    case Operation::kAllToAll: {
      const std::size_t element = size_of(call.print.in);
      std::size_t to = 0;
      for (std::size_t r = 0; r < ranks; ++r) {
        const std::uint64_t* const counts = control_.call(sequence, static_cast<int>(r)).words + 1;
        if (counts[me] != call.recv_counts[r]) return false;
        const std::uint64_t before = std::accumulate(counts, counts + me, std::uint64_t{0});
        const std::size_t bytes = call.recv_counts[r] * element;
        if (bytes > 0) std::memcpy(call.out + to, sources[r] + before * element, bytes);
        to += bytes;
      }
      return true;
    }
    default: return true;
  }
}

Attempt Group::attempt(QuickCall& call) {
  if (size() > kQuickRanks || call.in_bytes + call.out_bytes > kQuickBytes) return Attempt::kUntouched;
  retire_complete();
  const std::lock_guard lock(issue_mutex_);
  if (failure_) throw *failure_;
  const std::uint64_t sequence = next_sequence_;
  const std::uint64_t begun = link_.flight ? link_.flight->now() : 0;
  if (control_.header().failure.load(std::memory_order_relaxed) != 0 || !unposted_.empty() || !slot_free(sequence)) return Attempt::kUntouched;
  CallCell& cell = control_.call(sequence, rank());
  CallHead head;
  if (!place(call, head)) return Attempt::kUntouched;
  ++next_sequence_;
  call.print.sequence = sequence;
  const std::uint64_t digest = call.print.digest();
  cell.published.store(0, std::memory_order_relaxed);
  cell.reduced.store(0, std::memory_order_relaxed);
  cell.claims.store(0, std::memory_order_relaxed);
  cell.consumed.store(0, std::memory_order_relaxed);
  cell.fingerprint.take_numbers(call.print);
  cell.fingerprint.set_label(call.label);
  head.digest = digest;
  head.finished = finished_;
  cell.issue(head, sequence);
  phase("announced");

  const std::uint64_t number = sequence + 1;
  int looks = spin_ ? kLooks : kYields;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const CallCell& theirs = control_.call(sequence, r);
    if (!look(looks, spin_, [&] { return theirs.issued.load(std::memory_order_acquire) == number; }) || theirs.digest != digest) {
      return Attempt::kAnnounced;
    }
    auto& known = known_finished_[static_cast<std::size_t>(r)];
    known = std::max(known, theirs.finished);
  }
  // No rank announces a call once it knows of a failure: with all here, this one can end well.
  if (!move(call)) return Attempt::kAnnounced;
  cell.consumed.store(kEverything, std::memory_order_relaxed);
  cell.reduced.store(kEverything, std::memory_order_relaxed);
  cell.done.store(number);
  if (!call.copied && call.in_bytes > 0 && size() > 1) {
    ring_peers();
    looks = spin_ ? kLooks + static_cast<int>((call.in_bytes + call.out_bytes) / kBytesPerLook) : kYields;
    for (int r = 0; r < size(); ++r) {
      const CallCell& theirs = control_.call(sequence, r);
      if (r != rank() && !look(looks, spin_, [&] { return theirs.done.load(std::memory_order_acquire) == number; })) return Attempt::kMoved;
    }
  }
  finish_sequence(sequence);
  ring_peers();
  if (link_.flight) {
    link_.flight->completed(link_.flight->issued(flight_id_, call.print, call.label, call.copied ? "small" : "shared", begun));
  }
  return Attempt::kComplete;
}

}  // namespace wirewise::comm
