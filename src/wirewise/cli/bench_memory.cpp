#include "wirewise/cli/bench_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <string>

#include "wirewise/base/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace wirewise::bench {
namespace {

constexpr int kPasses = 5;
// What is written: zeros would tell more than memory can take, where a machine keeps them in a short form.
alignas(64) constexpr std::uint64_t kPattern[8] = {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb, 0x2545f4914f6cdd1d,
                                                   0xd1342543de82ef95, 0xaf251af3b0f025b5, 0x369dea0f31a53f85, 0xda942042e4dd58b5};

struct Kernels {
  std::uint64_t (*read)(const std::byte*, std::size_t);
  void (*write)(std::byte*, std::size_t);
  void (*copy)(std::byte*, const std::byte*, std::size_t);
};

#if defined(__x86_64__)
// Arrays are page-aligned and whole multiples of 256 bytes.
#define WIREWISE_STREAM_KERNELS(NAME, TARGET, VECTOR, LOAD, ADD, ZERO, STREAM)                                    \
  __attribute__((target(TARGET))) std::uint64_t read_##NAME(const std::byte* in, std::size_t bytes) {             \
    constexpr std::size_t kStep = sizeof(VECTOR);                                                                 \
    VECTOR sums[4] = {ZERO(), ZERO(), ZERO(), ZERO()};                                                            \
    for (std::size_t at = 0; at < bytes; at += 4 * kStep) {                                                       \
      for (std::size_t k = 0; k < 4; ++k) sums[k] = ADD(sums[k], LOAD(reinterpret_cast<const VECTOR*>(in + at + k * kStep))); \
    }                                                                                                             \
    std::uint64_t words[sizeof(VECTOR) / 8];                                                                      \
    const VECTOR sum = ADD(ADD(sums[0], sums[1]), ADD(sums[2], sums[3]));                                         \
    std::memcpy(words, &sum, sizeof sum);                                                                         \
    return words[0];                                                                                              \
  }                                                                                                               \
  __attribute__((target(TARGET))) void write_##NAME(std::byte* out, std::size_t bytes) {                          \
    constexpr std::size_t kStep = sizeof(VECTOR);                                                                 \
    const VECTOR value = LOAD(reinterpret_cast<const VECTOR*>(kPattern));                                         \
    for (std::size_t at = 0; at < bytes; at += kStep) STREAM(reinterpret_cast<VECTOR*>(out + at), value);         \
    _mm_sfence();                                                                                                 \
  }                                                                                                               \
  __attribute__((target(TARGET))) void copy_##NAME(std::byte* out, const std::byte* in, std::size_t bytes) {      \
    constexpr std::size_t kStep = sizeof(VECTOR);                                                                 \
    for (std::size_t at = 0; at < bytes; at += kStep) {                                                           \
      STREAM(reinterpret_cast<VECTOR*>(out + at), LOAD(reinterpret_cast<const VECTOR*>(in + at)));                \
    }                                                                                                             \
    _mm_sfence();                                                                                                 \
  }
WIREWISE_STREAM_KERNELS(sse2, "sse2", __m128i, _mm_load_si128, _mm_add_epi64, _mm_setzero_si128, _mm_stream_si128)
WIREWISE_STREAM_KERNELS(avx2, "avx2", __m256i, _mm256_load_si256, _mm256_add_epi64, _mm256_setzero_si256, _mm256_stream_si256)
WIREWISE_STREAM_KERNELS(avx512, "avx512f", __m512i, _mm512_load_si512, _mm512_add_epi64, _mm512_setzero_si512, _mm512_stream_si512)
#undef WIREWISE_STREAM_KERNELS

Kernels kernels() {
  if (__builtin_cpu_supports("avx512f")) return {read_avx512, write_avx512, copy_avx512};
  if (__builtin_cpu_supports("avx2")) return {read_avx2, write_avx2, copy_avx2};
  return {read_sse2, write_sse2, copy_sse2};
}
#else
std::uint64_t read_plain(const std::byte* in, std::size_t bytes) {
  std::uint64_t sums[4] = {};
  for (std::size_t at = 0; at < bytes; at += sizeof sums) {
    std::uint64_t words[4];
    std::memcpy(words, in + at, sizeof words);
    for (std::size_t k = 0; k < 4; ++k) sums[k] += words[k];
  }
  return sums[0] + sums[1] + sums[2] + sums[3];
}
Kernels kernels() {
  return {read_plain, [](std::byte* out, std::size_t bytes) { std::memset(out, 0x5a, bytes); },
          [](std::byte* out, const std::byte* in, std::size_t bytes) { std::memcpy(out, in, bytes); }};
}
#endif

/// Ordinary memory in huge pages where the system gives them.
class Array {
 public:
  explicit Array(std::size_t bytes) : bytes_(bytes) {
    void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
      throw Error(ErrorKind::kFailed, "no memory for an array of " + format_bytes(bytes) + ".", "Free memory, or measure with fewer ranks.");
    }
    data_ = static_cast<std::byte*>(address);
    ::madvise(address, bytes, MADV_HUGEPAGE);
    std::memset(address, 1, bytes);
  }
  ~Array() { ::munmap(data_, bytes_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

Seconds slowest(Communicator& communicator, Seconds own) {
  double all = 0;
  communicator.all_reduce({&own, DType::kFloat64}, {&all, DType::kFloat64}, 1, Reduction::kMax).wait();
  return all;
}

}  // namespace

Bytes last_level_cache() {
  // The kernel's view first: under a hypervisor the processor's own answer may be that of the whole chip.
  Bytes largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    std::string text;
    if (!(file >> text)) continue;
    try {
      largest = std::max(largest, parse_size(text));
    } catch (const Error&) {  // a form that this kernel alone writes
    }
  }
  if (largest > 0) return largest;
  for (const int name : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (const long bytes = ::sysconf(name); bytes > 0) return static_cast<Bytes>(bytes);
  }
  return 32 * kMiB;
}

MemoryLimit measure_memory(Communicator& communicator) {
  const auto ranks = static_cast<Bytes>(communicator.size());
  // Two arrays a rank; all ranks' source arrays together are four times the cache.
  const Bytes bytes = round_up(std::max<Bytes>(4 * last_level_cache() / ranks, 8 * kMiB), 2 * kMiB);
  const Array source(bytes);
  const Array target(bytes);
  const Kernels run = kernels();
  volatile std::uint64_t sink = 0;
  const auto rate = [&](const std::function<void()>& pass) {
    Seconds best = std::numeric_limits<Seconds>::infinity();
    for (int i = 0; i < kPasses; ++i) {
      communicator.barrier().wait();
      const auto begin = std::chrono::steady_clock::now();
      pass();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      best = std::min(best, slowest(communicator, took.count()));
    }
    return static_cast<double>(ranks * bytes) / best;
  };
  MemoryLimit limit;
  limit.read = rate([&] { sink = sink + run.read(source.data(), bytes); });
  limit.write = rate([&] { run.write(target.data(), bytes); });
  limit.copy = rate([&] { run.copy(target.data(), source.data(), bytes); });
  return limit;
}

Seconds least_time(const MemoryLimit& limit, const Traffic& traffic) noexcept {
  const double pairs = std::min(traffic.read, traffic.written);
  return pairs / limit.copy + (traffic.read - pairs) / limit.read + (traffic.written - pairs) / limit.write;
}

}  // namespace wirewise::bench
