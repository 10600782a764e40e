// Buffers that all ranks of a host's group see, each in the arena of one of them: given back by every rank before the owner frees it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "wirewise/comm/communicator.h"
#include "wirewise/comm/group.h"

namespace wirewise::comm {

class GroupSharedMemory {
 public:
  explicit GroupSharedMemory(std::shared_ptr<Group> group) : group_(std::move(group)) {}
  /// Gives back what this rank still holds.
  ~GroupSharedMemory();
  GroupSharedMemory(const GroupSharedMemory&) = delete;
  GroupSharedMemory& operator=(const GroupSharedMemory&) = delete;

  /// Collective over `ranks`, the group's own communicator. Throws kMismatch where ranks ask for different things, and on every rank when the
  /// owner has no room.
  [[nodiscard]] void* allocate(Communicator& ranks, std::size_t bytes, int owner);
  /// False where the pointer is none of these buffers.
  bool give_back(void* pointer) noexcept;

 private:
  using Mark = std::atomic<std::uint32_t>;
  struct Buffer {
    Mark* given_back = nullptr;  // by rank; they stand behind its bytes
    int owner = 0;
  };
  void leave(void* pointer, const Buffer& buffer) noexcept;

  std::shared_ptr<Group> group_;
  std::mutex mutex_;
  std::map<void*, Buffer> buffers_;
};

}  // namespace wirewise::comm
