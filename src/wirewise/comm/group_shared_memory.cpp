#include "wirewise/comm/group_shared_memory.h"

#include <new>
#include <optional>
#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/base/units.h"
#include "wirewise/comm/calls.h"

namespace wirewise::comm {
namespace {

/// What each rank tells the others of its call.
struct Request {
  std::int64_t bytes = 0;
  std::int64_t owner = 0;
  std::int64_t place = 0;  // the owner's: offset in its arena; 0 where it has no room
};

Request agreed(const Group& group, const std::vector<Request>& all) {
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r].bytes == all[0].bytes && all[r].owner == all[0].owner) continue;
    throw Error(ErrorKind::kMismatch,
                "ranks disagree: in allocate_group_shared " + group.name_of_rank(0) + " asks for " + std::to_string(all[0].bytes) + " bytes of rank " +
                    std::to_string(all[0].owner) + ", " + group.name_of_rank(static_cast<int>(r)) + " for " + std::to_string(all[r].bytes) +
                    " bytes of rank " + std::to_string(all[r].owner) + ".",
                "Call it with equal arguments on all ranks.");
  }
  return all[static_cast<std::size_t>(all[0].owner)];
}

}  // namespace

GroupSharedMemory::~GroupSharedMemory() {
  for (const auto& [pointer, buffer] : buffers_) leave(pointer, buffer);
}

void* GroupSharedMemory::allocate(Communicator& ranks, std::size_t bytes, int owner) {
  check_rank(owner, ranks.size(), "owner", "allocate_group_shared");
  static_assert(Mark::is_always_lock_free);
  const std::size_t marks_at = round_up(bytes, alignof(Mark));
  const auto count = static_cast<std::size_t>(ranks.size());
  Arena& arena = group_->context().arena;
  void* memory = nullptr;
  std::optional<Error> failure;
  if (ranks.rank() == owner) {
    group_->context().collect();
    try {
      memory = arena.allocate(marks_at + count * sizeof(Mark));
      for (std::size_t r = 0; r < count; ++r) ::new (static_cast<std::byte*>(memory) + marks_at + r * sizeof(Mark)) Mark{0};
    } catch (const Error& error) {
      failure = error;
    }
  }
  std::uint64_t place = 0;
  try {
    const Request own{static_cast<std::int64_t>(bytes), owner, memory == nullptr ? 0 : static_cast<std::byte*>(memory) - arena.base()};
    std::vector<Request> all(count);
    CallOptions call;
    call.label = "allocate_group_shared";
    constexpr std::size_t kWords = sizeof(Request) / sizeof(std::int64_t);
    ranks.all_gather({&own, DType::kInt64}, {all.data(), DType::kInt64}, kWords, call).wait();
    place = static_cast<std::uint64_t>(agreed(*group_, all).place);
    if (failure) throw *failure;
    if (place == 0) {
      throw Error(ErrorKind::kFailed,
                  "shared memory: " + group_->name_of_rank(owner) + " has no room for " + format_bytes(bytes) + " that all ranks were to share.",
                  "Free memory, use smaller buffers, or shard further.");
    }
  } catch (...) {
    arena.free(memory);
    throw;
  }
  std::byte* const seen = group_->at(owner, place);
  const std::lock_guard lock(mutex_);
  buffers_.emplace(seen, Buffer{reinterpret_cast<Mark*>(seen + marks_at), owner});
  return seen;
}

bool GroupSharedMemory::give_back(void* pointer) noexcept {
  Buffer buffer;
  {
    const std::lock_guard lock(mutex_);
    const auto found = buffers_.find(pointer);
    if (found == buffers_.end()) return false;
    buffer = found->second;
    buffers_.erase(found);
  }
  leave(pointer, buffer);
  return true;
}

void GroupSharedMemory::leave(void* pointer, const Buffer& buffer) noexcept {
  buffer.given_back[group_->rank()].store(1, std::memory_order_release);
  if (buffer.owner != group_->rank()) return;
  try {
    const auto left = [marks = buffer.given_back](int r) { return marks[r].load(std::memory_order_acquire) != 0; };
    group_->context().free_when(once_all_left(group_->link(), left), {pointer});
  } catch (...) {
    // It stays until the process ends.
  }
}

}  // namespace wirewise::comm
