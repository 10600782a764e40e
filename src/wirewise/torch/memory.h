// Tensor memory on the CPU: every byte counted by category, and freed blocks kept for the next tensor of the same size, since a training
// step allocates the same sizes over and over and fresh pages cost more than the arithmetic on them.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstddef>

#include "wirewise/base/units.h"
#include "wirewise/schedule/schedule.h"

namespace wirewise::memory {

/// Installs the counting allocator as libtorch's CPU allocator. Call before the first tensor; later calls do nothing.
void install();

/// Tensors allocated by this thread while the scope lives belong to `category` (outside of any scope: temporaries).
class Scope {
 public:
  explicit Scope(Category category) noexcept;
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Category previous_;
};

struct Usage {
  Bytes live = 0;                              // all categories, now
  Bytes peak = 0;                              // largest `live` since reset_peak
  std::array<Bytes, kCategories> category_live{};
  std::array<Bytes, kCategories> category_peak{};
};
[[nodiscard]] Usage usage() noexcept;
/// Of a device: what its caching allocator gave to tensors. It knows no categories: those stay 0.
[[nodiscard]] Usage usage(c10::Device device);
void reset_peak(c10::Device device);
/// Starts the peaks anew from what lives now.
void reset_peak() noexcept;

/// Counts memory that does not come from the CPU allocator (shared with peers): add on allocation, remove on free.
void add_external(Category category, Bytes bytes) noexcept;
void remove_external(Category category, Bytes bytes) noexcept;

/// Returns cached free blocks to the system.
void release_cached() noexcept;

}  // namespace wirewise::memory
