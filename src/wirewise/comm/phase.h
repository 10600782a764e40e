// A breakpoint for tests that end a rank in the midst of an operation: called wherever peers may have come to rely on this rank. Unset, it
// costs one load.
#pragma once

#include <atomic>

namespace wirewise::comm {

using PhaseHook = void (*)(const char* phase);

// Process-wide, since whoever drives an operation may be any thread of the process.
inline constinit std::atomic<PhaseHook> phase_hook{nullptr};

inline void phase(const char* name) {
  if (const PhaseHook hook = phase_hook.load(std::memory_order_relaxed)) hook(name);
}

}  // namespace wirewise::comm
