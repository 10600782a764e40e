// The loops of reduce() for any processor.
#include <bit>
#include <cstdint>
#include <type_traits>

#include "wirewise/comm/reduce_kernels.h"

namespace wirewise::comm {
namespace portable {
namespace {
#include "wirewise/comm/reduce_loops.inl"
}  // namespace
}  // namespace portable
}  // namespace wirewise::comm

namespace wirewise::comm {

const ReduceKernels& portable_kernels() noexcept {
  static const ReduceKernels kernels = portable::make_kernels();
  return kernels;
}

}  // namespace wirewise::comm
