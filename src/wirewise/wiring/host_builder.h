// From pairs of devices and how near they are to each other to a host's tree of NUMA nodes, host bridges and PCIe switches.
#pragma once

#include <optional>
#include <vector>

#include "wirewise/wiring/relation.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise {

/// What is known of `devices.size()` GPUs and NICs of one host: devices[i].numa where known, and relation(i, j) where stated, row by row
/// (both ways alike; empty: not stated).
struct HostPairs {
  std::vector<Device> devices;
  std::vector<std::optional<Connection>> pcie;  // by i * size + j; kPix to kSys
  std::vector<int> nvlinks;                     // by i * size + j; 0: none stated
  std::vector<std::size_t> loose{};             // devices of whose place nothing is known: they hang on the host itself

  [[nodiscard]] std::optional<Connection>& connection(std::size_t i, std::size_t j) { return pcie[i * devices.size() + j]; }
  [[nodiscard]] const std::optional<Connection>& connection(std::size_t i, std::size_t j) const { return pcie[i * devices.size() + j]; }
  [[nodiscard]] int& links(std::size_t i, std::size_t j) { return nvlinks[i * devices.size() + j]; }
  [[nodiscard]] int links(std::size_t i, std::size_t j) const { return nvlinks[i * devices.size() + j]; }
};

/// Appends a host named `name` with these devices, which keep their order and come right after the host. Devices that are as near as PHB
/// share a host bridge, PXB a tree of switches, PIX a switch; where pairs contradict each other the nearer one holds. Devices near one NUMA
/// node that are stated to be SYS to each other stand on nodes of their own, all with its number. GPUs whose NVLinks to
/// all others add up to more than a GPU has are joined by an NVSwitch. PCIe's generation isn't known, nor that of NVLinks: both are assumed.
int add_host(Wiring& wiring, const std::string& name, HostPairs pairs);

}  // namespace wirewise
