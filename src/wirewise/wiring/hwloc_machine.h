// What hwloc found, on this machine or in a file that it wrote on another one, as a machine's facts.
#pragma once

#include "wirewise/wiring/machine.h"

struct hwloc_topology;

namespace wirewise {

[[nodiscard]] Processors processors_of(hwloc_topology* topology);

/// Processors, the PCI tree, network and RDMA devices and names of GPUs, as far as the topology has them.
[[nodiscard]] Machine machine_of(hwloc_topology* topology);

}  // namespace wirewise
