#include "wirewise/comm/reduce.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "wirewise/base/error.h"
#include "wirewise/comm/reduce_kernels.h"
#include "wirewise/comm/stream_copy.h"

namespace wirewise::comm {
namespace {

const ReduceKernels& best_kernels() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return avx512_kernels();
  }
  if (__builtin_cpu_supports("avx2")) return avx2_kernels();
#endif
  return portable_kernels();
}

constexpr std::size_t kLine = 64;
// Bytes of a result between inputs and memory: stores past the caches are slow while the reads of a longer block keep the core waiting.
constexpr std::size_t kStreamBlock = 256;

std::size_t index(DType dtype) noexcept { return static_cast<std::size_t>(dtype); }

bool is_half(DType dtype) noexcept { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

ReduceKernels::Combine combine_of(const ReduceKind& kind) noexcept {
  return reduce_kernels().combine[index(kind.in)][static_cast<std::size_t>(kind.op)];
}

}  // namespace

const ReduceKernels& reduce_kernels() noexcept {
  static const ReduceKernels& chosen = best_kernels();
  return chosen;
}

void check_reduce_kind(const ReduceKind& kind, const char* operation) {
  const bool widens = kind.out != kind.in && is_half(kind.in) && kind.out == DType::kFloat32;
  if (combine_of(kind) != nullptr && (kind.out == kind.in || widens) && (!kind.accumulate || kind.out == DType::kFloat32)) return;
  const std::string who = std::string(operation) + ": ";
  if (combine_of(kind) == nullptr) {
    const bool bits = kind.op == Reduction::kBitAnd || kind.op == Reduction::kBitOr || kind.op == Reduction::kBitXor;
    throw bad_input(who + (bits ? "a bitwise reduction of " : "an average of ") + std::string(name_of(kind.in)) + " doesn't exist.",
                    bits ? "Use an integer type or bool." : "Convert to a number type first.");
  }
  if (kind.out != kind.in && !widens) {
    throw bad_input(who + "the output is " + std::string(name_of(kind.out)) + " for an input of " + std::string(name_of(kind.in)) + ".",
                    "Use the input's type, or float32 for 16-bit floats.");
  }
  if (kind.accumulate && kind.out != DType::kFloat32) {
    throw bad_input(who + "accumulate needs a float32 output, this one is " + std::string(name_of(kind.out)) + ".",
                    "Give a float32 output, or add outside the call.");
  }
}

void reduce(const ReduceKind& kind, std::span<const std::byte* const> sources, std::span<std::byte* const> targets,
            std::size_t count, bool stream) {
  if (targets.empty() || sources.empty()) return;
  const ReduceKernels::Combine combine = combine_of(kind);
  const bool widened = kind.out != kind.in;
  const ReduceKernels::Finish finish = widened ? reduce_kernels().finish_float32[index(kind.in)] : reduce_kernels().finish[index(kind.in)];
  const int ranks = static_cast<int>(sources.size());
  const int divisor = kind.op == Reduction::kAverage ? ranks : 0;
  const std::size_t out_size = size_of(kind.out);
  // The accumulators are the result already: no second pass.
  const bool plain = !kind.accumulate && divisor == 0 && (widened || !is_half(kind.in));

  alignas(64) std::byte accumulators[kReduceBlock * 8];
  alignas(64) std::byte rounded[kReduceBlock * 8];
  // What was just read is in the caches: written in place it stays there.
  const auto in_place = [&](const std::byte* target) { return std::find(sources.begin(), sources.end(), target) != sources.end(); };
  const bool streams = stream && !kind.accumulate && !std::all_of(targets.begin(), targets.end(), in_place);
  std::size_t length = 0;
  for (std::size_t first = 0; first < count; first += length) {
    length = kReduceBlock;
    if (streams) {  // blocks end with a line of the first target
      const std::size_t over = reinterpret_cast<std::uintptr_t>(targets[0] + first * out_size) % kLine;
      length = (kStreamBlock - over) / out_size;
    }
    length = std::min(length, count - first);
    const std::size_t at = first * out_size;
    if (targets.size() == 1 && !streams) {
      std::byte* const out = targets[0] + at;
      if (plain) {
        combine(out, sources.data(), ranks, first, length);
      } else {
        combine(accumulators, sources.data(), ranks, first, length);
        finish(out, accumulators, length, divisor, kind.accumulate);
      }
      continue;
    }
    combine(accumulators, sources.data(), ranks, first, length);
    if (kind.accumulate) {
      for (std::byte* const target : targets) finish(target + at, accumulators, length, divisor, true);
      continue;
    }
    const std::byte* result = accumulators;
    if (!plain) {
      finish(rounded, accumulators, length, divisor, false);
      result = rounded;
    }
    for (std::byte* const target : targets) {
      if (streams && !in_place(target)) {
        stream_store(target + at, result, length * out_size);
      } else {
        std::memcpy(target + at, result, length * out_size);
      }
    }
  }
  if (streams) stream_fence();
}

void take_over(const ReduceKind& kind, std::byte* out, const std::byte* result, std::size_t count) {
  if (!kind.accumulate) {
    std::memcpy(out, result, count * size_of(kind.out));
    return;
  }
  reduce_kernels().finish[index(DType::kFloat32)](out, result, count, 0, true);
}

}  // namespace wirewise::comm
