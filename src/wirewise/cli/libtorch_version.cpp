#include "wirewise/cli/libtorch_version.h"

#ifdef WIREWISE_WITH_TORCH
#include <torch/version.h>
#endif

namespace wirewise {

std::string libtorch_version() {
#ifdef WIREWISE_WITH_TORCH
  return TORCH_VERSION;
#else
  return {};
#endif
}

}  // namespace wirewise
