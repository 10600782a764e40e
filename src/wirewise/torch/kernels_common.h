// What the kernel files share: conversion to float32, dtype dispatch, a deterministic loop over rows, and code for several vector widths.
#pragma once

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

#include "wirewise/base/error.h"

// One body compiled for several vector widths and chosen at load. clang 14 has no such attribute that works on templates' callees.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define WIREWISE_VECTOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIREWISE_VECTOR
#endif

namespace wirewise::kernels {

// Names that macros can paste: the element types of kernels.
using Float = float;
using BFloat16 = c10::BFloat16;
using Half = c10::Half;

[[gnu::always_inline]] inline float load(float value) { return value; }
[[gnu::always_inline]] inline float load(c10::BFloat16 value) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(value.x) << 16);
}
[[gnu::always_inline]] inline float load(c10::Half value) { return static_cast<float>(value); }

[[gnu::always_inline]] inline void store(float& out, float value) { out = value; }
[[gnu::always_inline]] inline void store(c10::BFloat16& out, float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  out.x = static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? 0x7fc0U : rounded);
}
[[gnu::always_inline]] inline void store(c10::Half& out, float value) { out = static_cast<c10::Half>(value); }

/// Calls f with a null pointer of the tensor's element type.
template <typename F>
auto dispatch(c10::ScalarType type, F&& f) {
  switch (type) {
    case c10::kFloat: return f(static_cast<float*>(nullptr));
    case c10::kBFloat16: return f(static_cast<c10::BFloat16*>(nullptr));
    case c10::kHalf: return f(static_cast<c10::Half*>(nullptr));
    default: throw bad_input(std::string("compute in ") + c10::toString(type) + " is not supported.", "Use float32, bfloat16 or float16.");
  }
}

/// Sums eight interleaved partial sums in a fixed tree.
template <typename Real>
[[gnu::always_inline]] inline Real fold(const Real (&lane)[16]) {
  Real half[8];
  for (int i = 0; i < 8; ++i) half[i] = lane[i] + lane[i + 8];
  return ((half[0] + half[4]) + (half[2] + half[6])) + ((half[1] + half[5]) + (half[3] + half[7]));
}

/// f(begin, end) over [0, rows) on the intra-op threads; rows are independent.
template <typename F>
void for_rows(std::int64_t rows, std::int64_t work_per_row, F&& f) {
  const std::int64_t grain = std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, work_per_row));
  at::parallel_for(0, rows, grain, f);
}

}  // namespace wirewise::kernels
