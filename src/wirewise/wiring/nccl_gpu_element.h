// The <gpu> of a GPU in NCCL's topology file: its number and kind, and the links that it has besides PCIe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wirewise/wiring/host_tree.h"
#include "wirewise/wiring/pci_addresses.h"
#include "wirewise/wiring/reading.h"

namespace pugi {
class xml_node;
}  // namespace pugi

namespace wirewise {

/// The value of a fact; empty where there is none.
[[nodiscard]] std::string value_of_fact(const Reading& reading, const std::string& subject, std::string_view name);

/// Whether a GPU is one of AMD's. `out`: the links out of each device.
[[nodiscard]] bool is_amd_gpu(const Wiring& wiring, const std::vector<std::vector<int>>& out, int gpu);

/// Appends it to the GPU's `pci`, unless the reading is of a file of NCCL's own that leaves it to be found out. Returns what the format has no place for, as a sentence;
/// empty where it holds all.
[[nodiscard]] std::string write_gpu_element(const Reading& reading, const std::vector<std::vector<int>>& out, const PciAddresses& addresses, const HostTree::Down& gpu, int number,
                                            pugi::xml_node pci);

}  // namespace wirewise
