// Pinned host memory that outlives one operation: registering pages with a driver takes longer than most copies, and training asks for
// the same sizes every step.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "wirewise/comm/accelerator.h"

namespace wirewise::comm {

class PinnedPool {
 public:
  /// Memory comes from `host`, so that its collectives work in place; both must outlive the pool.
  PinnedPool(Communicator& host, Accelerator& device) : host_(host), device_(device) {}
  ~PinnedPool() {
    for (const auto& [size, pointer] : free_) {
      device_.unpin(pointer);
      host_.free_shared(pointer);
    }
  }
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  struct Release {
    PinnedPool* pool = nullptr;
    std::size_t size = 0;
    void operator()(void* pointer) const noexcept {
      const std::lock_guard lock(pool->mutex_);
      pool->free_.emplace(size, pointer);
    }
  };
  using Block = std::unique_ptr<void, Release>;

  /// At least `bytes`; null for 0. Kept for reuse until the pool dies, at most a quarter larger than asked for.
  [[nodiscard]] Block take(std::size_t bytes) {
    if (bytes == 0) return {};
    constexpr std::size_t kPage = 4096;
    const std::size_t grain = std::max(kPage, std::bit_floor(bytes) / 4);
    const std::size_t size = (bytes + grain - 1) / grain * grain;
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = free_.find(size); found != free_.end()) {
        void* pointer = found->second;
        free_.erase(found);
        return Block(pointer, Release{this, size});
      }
    }
    void* pointer = host_.allocate_shared(size);
    try {
      device_.pin(pointer, size);
    } catch (...) {
      host_.free_shared(pointer);
      throw;
    }
    return Block(pointer, Release{this, size});
  }

 private:
  Communicator& host_;
  Accelerator& device_;
  std::mutex mutex_;
  std::multimap<std::size_t, void*> free_;
};

}  // namespace wirewise::comm
