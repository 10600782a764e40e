// The loops of reduce() for x86-64 processors with AVX2.
#if defined(__x86_64__)

#include <bit>
#include <cstdint>
#include <type_traits>

#include "wirewise/comm/reduce_kernels.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif

namespace wirewise::comm {
namespace avx2 {
namespace {
#include "wirewise/comm/reduce_loops.inl"
}  // namespace
}  // namespace avx2
}  // namespace wirewise::comm

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace wirewise::comm {

const ReduceKernels& avx2_kernels() noexcept {
  static const ReduceKernels kernels = avx2::make_kernels();
  return kernels;
}

}  // namespace wirewise::comm

#endif
