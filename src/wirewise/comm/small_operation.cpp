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

void SmallReduction::reduce_all() {
  std::vector<const std::byte*> bases;
  for (int r = 0; r < size(); ++r) bases.push_back(group->carried_data(fingerprint.sequence, r));
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
  const bool moved = meet();
  if (is_done() || !all_arrived()) return moved;
  reduce_all();
  post_done();
  reach(Level::kComplete);
  return true;
}

}  // namespace wirewise::comm
