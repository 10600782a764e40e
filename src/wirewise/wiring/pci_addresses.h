// A PCI address for every device of a host that has a place among its PCIe: the known ones as they are, the others made up.
//
// Made-up addresses are what firmware would give: each root port has buses of its own, a switch one for its upper side and one within, and
// what hangs below follows. Their domains are f000 and up, a domain a root complex, which real machines leave alone, so that a device of the
// machine where such a file is used is never taken for another. The same graph gives the same addresses.
#pragma once

#include <string>
#include <vector>

#include "wirewise/wiring/host_tree.h"

namespace wirewise {

struct PciAddresses {
  std::vector<std::string> of;  // by device of the wiring; empty: it has no place in the tree, or is no device of PCIe
  std::vector<int> made_up;     // devices whose address is
};

/// Known addresses are written in small letters, with a domain of four digits where four do. Throws bad input where two devices have one address.
[[nodiscard]] PciAddresses pci_addresses(const Wiring& wiring, const HostTree& tree);

}  // namespace wirewise
