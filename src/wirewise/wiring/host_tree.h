// The tree that PCIe and the sockets' interconnect make of a host, downwards: what hangs on what, and by which link.
#pragma once

#include <vector>

#include "wirewise/wiring/wiring.h"

namespace wirewise {

struct HostTree {
  struct Down {
    int device = -1;
    const Link* link = nullptr;  // of the wiring, towards the device
  };
  int host = -1;  // the device
  std::vector<std::vector<Down>> below;  // of each device of the wiring, in the graph's order; each hangs on one
  std::vector<bool> reached;             // whether a device hangs on the host at all
  int depth = 0;                         // links between the host and what is furthest

  [[nodiscard]] const std::vector<Down>& of(int device) const { return below[static_cast<std::size_t>(device)]; }
};

/// `host` is the host's device. The tree points into `wiring`.
[[nodiscard]] HostTree host_tree(const Wiring& wiring, int host);

}  // namespace wirewise
