#include <torch/version.h>

#include "wirewise/cli/libtorch_version.h"

namespace wirewise {

std::string libtorch_version() { return TORCH_VERSION; }

}  // namespace wirewise
