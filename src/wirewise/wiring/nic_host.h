// A host of which only its NICs are known, and their ports.
#pragma once

#include <string>
#include <vector>

#include "wirewise/wiring/reading.h"

namespace wirewise {

struct NicPort {
  int number = 1;
  std::string state;       // "Active", "Down"
  std::string layer;       // "InfiniBand", "Ethernet"
  double gbit = 0;         // 0: not stated
  int line = 0;
};

struct NicSeen {
  std::string name, model, firmware;
  bool rdma = true;
  std::vector<NicPort> ports;
  int line = 0;
};

/// Adds the host and its NICs, whose places aren't known, to reading.wiring; ports that are up lead to one switch a kind of network, named
/// "InfiniBand" or "Ethernet". Facts: firmware, state, layer and rate of each port. Ports that are down are noted.
void add_nic_host(const std::vector<NicSeen>& nics, Reading& reading);

}  // namespace wirewise
