#include "wirewise/comm/small_operation.h"

#include <array>
#include <cstring>

namespace wirewise::comm {

std::size_t input_bytes(Operation operation, std::span<const ReducePlanPart> parts, int ranks) noexcept {
  std::size_t bytes = 0;
  for (const ReducePlanPart& part : parts) bytes += part.count * size_of(part.kind.in);
  return operation == Operation::kReduceScatter ? bytes * static_cast<std::size_t>(ranks) : bytes;
}

SmallReduction::SmallReduction(std::shared_ptr<Group> owner, const Fingerprint& print, CallOptions options, std::vector<ReducePlanPart> parts)
    : Collective(std::move(owner), print, std::move(options)), parts_(std::move(parts)) {
  bytes_ = input_bytes(print.operation, parts_, size());
}

bool SmallReduction::post() {
  std::array<std::uint64_t, kInlineWords> words{};
  std::byte* to = reinterpret_cast<std::byte*>(words.data());
  std::size_t count = kInlineWords;
  if (bytes_ > kCellBytes) {
    const std::uint64_t lane = group->take_lane(fingerprint.sequence);
    if (lane == 0) return false;
    words[0] = lane;
    count = 1;
    to = group->at(rank(), lane);
  }
  for (const ReducePlanPart& part : parts_) {
    const std::size_t bytes = input_bytes(fingerprint.operation, std::span(&part, 1), size());
    if (bytes > 0) std::memcpy(to, part.in, bytes);
    to += bytes;
  }
  announce(std::span(words.data(), count), bytes_ <= kCellBytes);
  return true;
}

/// Not into a lane: those may all wait for this very call.
bool SmallReduction::copy_late() {
  if ((own().flags & CallHead::kDirect) == 0 || late_copy_ != nullptr) return false;
  late_copy_ = lend(bytes_);
  std::memcpy(late_copy_, parts_.front().in, bytes_);
  own().table = static_cast<std::uint64_t>(static_cast<std::byte*>(late_copy_) - group->context().arena.base());
  own().published.store(1);
  group->ring_peers();
  return true;
}

bool SmallReduction::copies_there() const noexcept {
  for (int r = 0; r < size(); ++r) {
    if ((cell(r).flags & CallHead::kDirect) != 0 && cell(r).published.load() == 0) return false;
  }
  return true;
}

const std::byte* SmallReduction::input_of(int r) const noexcept {
  return (cell(r).flags & CallHead::kDirect) != 0 ? group->at(r, cell(r).table) : group->carried_data(fingerprint.sequence, r);
}

void SmallReduction::reduce_all() {
  std::vector<const std::byte*> bases;
  for (int r = 0; r < size(); ++r) bases.push_back(input_of(r));
  std::vector<const std::byte*> sources(bases.size());
  for (const ReducePlanPart& part : parts_) {
    const std::size_t slice = part.count * size_of(part.kind.in);
    const std::size_t at = fingerprint.operation == Operation::kReduceScatter ? static_cast<std::size_t>(rank()) * slice : 0;
    for (std::size_t r = 0; r < bases.size(); ++r) sources[r] = bases[r] + at;
    reduce(part.kind, sources, std::span(&part.out, 1), part.count);
    for (auto& base : bases) base += input_bytes(fingerprint.operation, std::span(&part, 1), size());
  }
}

bool SmallReduction::step() {
  if (!posted()) return false;
  bool moved = meet();
  if (reached(Level::kComplete) || !all_arrived()) return moved;
  if (group->all_direct(fingerprint.sequence)) {
    if (!is_done()) {
      QuickCall call;
      call.print = fingerprint;
      call.in = parts_.front().in;
      call.out = parts_.front().out;
      call.count = parts_.front().count;
      call.kind = parts_.front().kind;
      group->reduce_slice(call);
      post_done();
      moved = true;
    }
    if (!peers_done()) return moved;
  } else {
    moved = copy_late() || moved;
    if (!copies_there()) return moved;
    reduce_all();
    post_done();
  }
  reach(Level::kComplete);
  return true;
}

}  // namespace wirewise::comm
