// This machine as a graph.
#pragma once

#include <string_view>

#include "wirewise/wiring/machine.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {

/// The graph of a machine's facts: host, sockets that have several NUMA nodes, NUMA nodes, host bridges and PCIe switches above GPUs and
/// NICs, and NVLinks. Links that the kernel states are kDriver. Facts: rate and state of each NIC, the GPUs' driver, or that there is none.
[[nodiscard]] Reading wire(const Machine& machine);

/// The same of what `inspect_machine` finds.
[[nodiscard]] Reading discover(const Places& places = {});

/// The class of links between the NUMA nodes of a processor, by its model's name; empty: not known.
[[nodiscard]] std::string_view sockets_class(std::string_view cpu);

}  // namespace wirewise
