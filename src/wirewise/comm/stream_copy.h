// Copies past the caches: for results that are larger than the last-level cache holds, where a plain store would first read what it overwrites.
#pragma once

#include <cstddef>

namespace wirewise::comm {

/// memcpy with non-temporal stores where the processor has them. Visible to whoever sees a later release store of this thread.
void stream_copy(void* to, const void* from, std::size_t bytes) noexcept;

/// The same of a source that lies in the first-level cache; visible so only after stream_fence(), which costs more than a small copy.
void stream_store(void* to, const void* from, std::size_t bytes) noexcept;
void stream_fence() noexcept;

/// Whether buffers of `bytes` in total, over all ranks of a host, are better written past the caches.
[[nodiscard]] bool exceeds_caches(std::size_t bytes) noexcept;

}  // namespace wirewise::comm
