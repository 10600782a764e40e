#include "wirewise/torch/memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/alignment.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "wirewise/base/error.h"

namespace wirewise::memory {
namespace {

constexpr std::size_t kCacheFrom = 64 * kKiB;  // smaller blocks are malloc's business
constexpr std::size_t kPage = 4 * kKiB;
constexpr std::size_t kHugePage = 2 * kMiB;
constexpr std::size_t kCacheAlways = 256 * kMiB;

thread_local Category current_category = Category::kTemporaries;

/// Size and category stand in front of each block, so that freeing needs no table.
struct alignas(c10::gAlignment) Header {
  std::size_t bytes;     // as asked for
  std::size_t capacity;  // of the whole block, header included
  Category category;
};

class CountingAllocator final : public c10::Allocator {
 public:
  /// libtorch keeps the allocator for the life of the process, and tensors of static storage outlive main: never destroyed.
  static CountingAllocator& instance() {
    static auto* allocator = new CountingAllocator;
    return *allocator;
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &CountingAllocator::free_data, c10::Device(c10::DeviceType::CPU)};
    // Data and context are one pointer, as raw_allocate and raw_deallocate of some kernels need.
    void* data = static_cast<char*>(take(bytes)) + sizeof(Header);
    return {data, data, &CountingAllocator::free_data, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &CountingAllocator::free_data; }
  void copy_data(void* destination, const void* source, std::size_t count) const override { std::memcpy(destination, source, count); }

  void count(Category category, std::int64_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    count_locked(category, bytes);
  }
  Usage usage() noexcept {
    const std::lock_guard lock(mutex_);
    return usage_;
  }
  void reset_peak() noexcept {
    const std::lock_guard lock(mutex_);
    usage_.peak = usage_.live;
    usage_.category_peak = usage_.category_live;
  }
  void release_cached() noexcept {
    const std::lock_guard lock(mutex_);
    release_locked();
  }

 private:
  void* take(std::size_t bytes) {
    std::size_t capacity = bytes + sizeof(Header);
    void* block = nullptr;
    if (capacity < kCacheFrom) {
      block = std::aligned_alloc(c10::gAlignment, round_up(capacity, c10::gAlignment));
    } else {
      capacity = round_up(capacity, capacity >= kHugePage ? kHugePage : kPage);
      {
        const std::lock_guard lock(mutex_);
        if (auto found = free_.find(capacity); found != free_.end() && !found->second.empty()) {
          block = found->second.back();
          found->second.pop_back();
          cached_ -= capacity;
        }
      }
      if (block == nullptr) block = allocate_pages(capacity);
    }
    if (block == nullptr) {
      throw Error(ErrorKind::kFailed, "out of memory: no room for a tensor of " + format_bytes(bytes) + ".",
                  "Lower train.micro_batch, raise strategy.zero or the number of ranks, or set strategy.recompute = \"full\".");
    }
    new (block) Header{bytes, capacity, current_category};
    count(current_category, static_cast<std::int64_t>(bytes));
    return block;
  }

  void* allocate_pages(std::size_t capacity) {
    const std::size_t alignment = capacity >= kHugePage ? kHugePage : kPage;
    void* block = std::aligned_alloc(alignment, capacity);
    if (block == nullptr) {
      release_cached();
      block = std::aligned_alloc(alignment, capacity);
    }
    if (block != nullptr && capacity >= kHugePage) ::madvise(block, capacity, MADV_HUGEPAGE);
    return block;
  }

  static void free_data(void* data) {
    if (data != nullptr) instance().give_back(static_cast<char*>(data) - sizeof(Header));
  }

  void give_back(void* block) noexcept {
    const auto* header = static_cast<const Header*>(block);
    const std::size_t capacity = header->capacity;
    const std::lock_guard lock(mutex_);
    count_locked(header->category, -static_cast<std::int64_t>(header->bytes));
    if (capacity < kCacheFrom) {
      std::free(block);
      return;
    }
    free_[capacity].push_back(block);
    cached_ += capacity;
    // Sizes that no later step asks for must not pile up: the cache holds at most what tensors held at their peak.
    if (cached_ > std::max<std::size_t>(usage_.peak, kCacheAlways)) release_locked();
  }

  void release_locked() noexcept {
    for (auto& [capacity, blocks] : free_) {
      for (void* block : blocks) std::free(block);
    }
    free_.clear();
    cached_ = 0;
  }

  void count_locked(Category category, std::int64_t bytes) noexcept {
    const auto index = static_cast<std::size_t>(category);
    usage_.live += static_cast<Bytes>(bytes);
    usage_.category_live[index] += static_cast<Bytes>(bytes);
    usage_.peak = std::max(usage_.peak, usage_.live);
    usage_.category_peak[index] = std::max(usage_.category_peak[index], usage_.category_live[index]);
  }

  std::mutex mutex_;
  std::unordered_map<std::size_t, std::vector<void*>> free_;
  std::size_t cached_ = 0;
  Usage usage_;
};

}  // namespace

void install() {
  static const bool once = [] {
    c10::SetCPUAllocator(&CountingAllocator::instance(), /*priority=*/255);
    return true;
  }();
  (void)once;
}

Scope::Scope(Category category) noexcept : previous_(current_category) { current_category = category; }
Scope::~Scope() { current_category = previous_; }

Usage usage() noexcept { return CountingAllocator::instance().usage(); }
void reset_peak() noexcept { CountingAllocator::instance().reset_peak(); }

Usage usage(c10::Device device) {
  if (device.is_cpu()) return usage();
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  const auto& bytes = stats.allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  Usage usage;
  usage.live = static_cast<Bytes>(bytes.current);
  usage.peak = static_cast<Bytes>(bytes.peak);
  return usage;
}

void reset_peak(c10::Device device) {
  if (device.is_cpu()) return reset_peak();
  c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
}

void add_external(Category category, Bytes bytes) noexcept {
  CountingAllocator::instance().count(category, static_cast<std::int64_t>(bytes));
}
void remove_external(Category category, Bytes bytes) noexcept {
  CountingAllocator::instance().count(category, -static_cast<std::int64_t>(bytes));
}
void release_cached() noexcept { CountingAllocator::instance().release_cached(); }

}  // namespace wirewise::memory
