// One turn of a waiting loop, told to the processor.
#pragma once

namespace wirewise::comm {

inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace wirewise::comm
