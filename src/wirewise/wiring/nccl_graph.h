// What NCCL_GRAPH_DUMP_FILE says: the rings and trees that NCCL chose.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "wirewise/wiring/reading.h"

namespace wirewise {

/// States each <graph> of `xml`, which is well-formed, and the order of GPUs and networks in its channels as facts. `line` gives the line of
/// an offset in `xml`.
void read_nccl_graphs(const std::string& xml, Reading& reading, const std::function<int(std::ptrdiff_t)>& line);

}  // namespace wirewise
