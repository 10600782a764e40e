#include "wirewise/comm/stream_copy.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace wirewise::comm {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kBlockLines = 64;  // a page: fetched ahead, since the processor's own prefetching ends with it

#if defined(__x86_64__)

__attribute__((target("avx512f"))) void stream_lines_avx512(std::byte* to, const std::byte* from, std::size_t lines, bool fetch) noexcept {
  for (std::size_t first = 0; first < lines; first += kBlockLines) {
    const std::size_t end = std::min(first + kBlockLines, lines);
    for (std::size_t i = first; fetch && i < end; ++i) _mm_prefetch(reinterpret_cast<const char*>(from + i * kLine), _MM_HINT_T0);
    for (std::size_t i = first; i < end; ++i) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i * kLine), _mm512_loadu_si512(from + i * kLine));
    }
  }
}

void stream_lines_sse2(std::byte* to, const std::byte* from, std::size_t lines) noexcept {
  for (std::size_t i = 0; i < lines * 4; ++i) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i));
  }
}

#endif

void stream(std::byte* out, const std::byte* in, std::size_t bytes, [[maybe_unused]] bool fetch) noexcept {
#if defined(__x86_64__)
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(out) % kLine) % kLine;
  if (bytes >= head + kLine) {
    std::memcpy(out, in, head);
    out += head;
    in += head;
    bytes -= head;
    static const bool wide = __builtin_cpu_supports("avx512f");
    const std::size_t lines = bytes / kLine;
    if (wide) {
      stream_lines_avx512(out, in, lines, fetch);
    } else {
      stream_lines_sse2(out, in, lines);
    }
    out += lines * kLine;
    in += lines * kLine;
    bytes -= lines * kLine;
  }
#endif
  std::memcpy(out, in, bytes);
}

std::size_t last_level_cache_bytes() noexcept {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  const long bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes > 0) return static_cast<std::size_t>(bytes);
#endif
  return std::size_t{32} << 20;
}

}  // namespace

void stream_copy(void* to, const void* from, std::size_t bytes) noexcept {
  stream(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, true);
  stream_fence();
}

void stream_store(void* to, const void* from, std::size_t bytes) noexcept {
  stream(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, false);
}

void stream_fence() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

bool exceeds_caches(std::size_t bytes) noexcept {
  static const std::size_t most = last_level_cache_bytes() / 4 * 3;
  return bytes > most;
}

}  // namespace wirewise::comm
