// What the executor's parts have in common.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "wirewise/torch/executor.h"

namespace wirewise::executor {

[[nodiscard]] inline std::size_t at(int index) { return static_cast<std::size_t>(index); }

[[nodiscard]] inline bool contains(const std::vector<BufferId>& ids, BufferId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

}  // namespace wirewise::executor
