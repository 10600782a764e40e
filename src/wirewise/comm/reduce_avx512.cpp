// The loops of reduce() for x86-64 processors with AVX-512 (F, BW, DQ, VL).
#if defined(__x86_64__)

#include <bit>
#include <cstdint>
#include <type_traits>

#include "wirewise/comm/reduce_kernels.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2")
#endif

namespace wirewise::comm {
namespace avx512 {
namespace {
#include "wirewise/comm/reduce_loops.inl"
}  // namespace
}  // namespace avx512
}  // namespace wirewise::comm

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace wirewise::comm {

const ReduceKernels& avx512_kernels() noexcept {
  static const ReduceKernels kernels = avx512::make_kernels();
  return kernels;
}

}  // namespace wirewise::comm

#endif
