// Rings between hosts: one for each NIC of a host, all at once.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "wirewise/wiring/group.h"

namespace wirewise {

/// Where a host's data leaves it: a NIC (or the host itself, where its NICs aren't described), and what it gets from the group's devices
/// into the network.
struct Exit {
  int device = -1;            // the NIC or host
  int link = -1;              // into the network
  BytesPerSecond bandwidth = 0;  // of that link and of its part of the PCIe before it
};

/// The NICs that the devices of each unit (by_unit()) use: each its nearest, all that are equally near. Data reaches a NIC over the device that is
/// nearest to it. Ports of less than half of the host's fastest are left alone. In the graph's order.
[[nodiscard]] std::map<int, std::vector<Exit>> exits_of(const Wiring& wiring, const std::map<int, std::vector<int>>& units);

/// What leads from an island of switches (all up to some level that are joined) to higher ones, together.
struct Uplinks {
  BytesPerSecond capacity = 0;
  int slowest = -1;
};
struct SwitchLevel {
  std::vector<int> island;  // of each device; -1: in none
  std::vector<Uplinks> up;  // of each island
};
/// Every level that has one above it.
[[nodiscard]] std::vector<SwitchLevel> switch_levels(const Wiring& wiring);

/// Rings over devices of several hosts, as placement prices them: one a port, each with an equal part. Throws bad input when a host has no network.
[[nodiscard]] GroupBandwidth network_ring(const Wiring& wiring, std::span<const int> devices);

}  // namespace wirewise
