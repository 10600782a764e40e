// The bandwidth between GPUs as hwloc's XML keeps it: a matrix beside the objects, named NVLinkBandwidth or XGMIBandwidth.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "wirewise/wiring/reading.h"

namespace wirewise {

/// One matrix: the objects by their gp_index, and MB/s from each to each, row by row.
struct HwlocBandwidth {
  bool xgmi = false;
  std::vector<long long> objects, values;
};

/// Adds the links that a matrix states to the GPUs of `reading`. `address` gives the PCI address of each object that has one; those that are no
/// GPU's are taken for NVSwitches, which are one device.
void add_bandwidth(const HwlocBandwidth& matrix, const std::map<long long, std::string>& address, Reading& reading);

}  // namespace wirewise
