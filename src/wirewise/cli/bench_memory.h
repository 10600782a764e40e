// How fast this machine's memory is when all ranks use it at once: what collectives on one host are held against.
#pragma once

#include "wirewise/base/units.h"
#include "wirewise/cli/bench_operation.h"
#include "wirewise/comm/communicator.h"

namespace wirewise::bench {

/// Of all ranks of the host together, through arrays that are several times larger than the last-level cache.
struct MemoryLimit {
  BytesPerSecond read = 0;   // bytes read by sums over an array
  BytesPerSecond write = 0;  // bytes written past the caches
  BytesPerSecond copy = 0;   // bytes copied past the caches: each is read once and written once
};

/// Size of the largest cache of a core, by what the kernel says; 32 MiB where it says nothing.
[[nodiscard]] Bytes last_level_cache();

/// Collective. Each rank streams through an array of its own; the slowest rank of the best of several passes counts.
[[nodiscard]] MemoryLimit measure_memory(Communicator& communicator);

/// The least time for `traffic`: as much of it as pairs off at the rate of copies, the rest at that of reads or writes.
[[nodiscard]] Seconds least_time(const MemoryLimit& limit, const Traffic& traffic) noexcept;

}  // namespace wirewise::bench
