// A CUDA device behind the Accelerator interface: libtorch's caching allocator and its streams, CUDA's own pinning.
#pragma once

#include <memory>

#include "wirewise/comm/accelerator.h"

namespace wirewise::cuda {

/// Throws bad input when there is no device `index`.
[[nodiscard]] std::shared_ptr<Accelerator> open_device(int index);

}  // namespace wirewise::cuda
