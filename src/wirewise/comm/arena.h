// The memory that a process shares with its peers: one sealed memfd, sparse and larger than the machine's memory, that every peer maps
// once. So a place in it is a single number (its offset) for all ranks of all communicators, and allocating sends no descriptor.
// Pages are reserved when memory is allocated, so a full machine is an error there and never a SIGBUS later. Freed blocks keep their
// pages for the next allocation of about the same size (training asks for the same sizes every step), up to the peak in use.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "wirewise/comm/unique_fd.h"

namespace wirewise::comm {

/// The first page of an arena: how peers wake the progress thread of the process that owns it.
struct ArenaHeader {
  std::atomic<std::uint32_t> doorbell;
  std::atomic<std::uint32_t> asleep;
};

struct ArenaId {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  auto operator<=>(const ArenaId&) const = default;
};

class Arena {
 public:
  /// `ranks`: how many processes will map each other's arenas, which bounds the address space each may take.
  explicit Arena(int ranks);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Whole pages. Throws Failed when the machine has no room for them.
  [[nodiscard]] void* allocate(std::size_t bytes);
  void free(void* pointer) noexcept;

  /// The offset of `bytes` bytes at `pointer` when all lie in one allocated block, else 0.
  [[nodiscard]] std::uint64_t offset_of(const void* pointer, std::size_t bytes) const noexcept;

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] int descriptor() const noexcept { return file_.get(); }
  [[nodiscard]] ArenaId id() const noexcept { return id_; }
  [[nodiscard]] ArenaHeader& header() const noexcept { return *reinterpret_cast<ArenaHeader*>(base_); }

 private:
  struct Cached {
    std::size_t size = 0;
    std::uint64_t freed = 0;  // order of release: the oldest goes first
  };
  void reserve(std::uint64_t offset, std::size_t bytes);
  void release_pages(std::uint64_t offset, std::size_t bytes) noexcept;
  void trim(std::size_t keep) noexcept;
  void give_back(std::uint64_t offset, std::size_t bytes) noexcept;

  UniqueFd file_;
  ArenaId id_;
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;

  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::size_t> used_;      // offset to size
  std::map<std::uint64_t, std::size_t> unbacked_;  // free ranges without pages, neighbours joined
  std::map<std::uint64_t, Cached> cached_;         // freed blocks that kept their pages
  std::size_t used_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
  std::size_t cached_bytes_ = 0;
  std::uint64_t frees_ = 0;
};

/// A peer's arena as this process maps it.
class PeerArena {
 public:
  /// Checks that `file` is a memfd of `size` bytes sealed against shrinking, and maps it.
  PeerArena(const UniqueFd& file, std::size_t size);
  ~PeerArena();
  PeerArena(const PeerArena&) = delete;
  PeerArena& operator=(const PeerArena&) = delete;
  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
};

/// 128 random bits.
[[nodiscard]] ArenaId random_id();

}  // namespace wirewise::comm
