// What nvidia-smi -q prints, in either of its forms: GPUs with values under the names of the sections round them.
#pragma once

#include <string>
#include <vector>

#include "wirewise/wiring/reading.h"

namespace wirewise {

/// "    PCIe Generation" over "Max : 4" is "pcie_generation/max"; XML's <pcie_gen><max_link_gen> is "pcie_gen/max_link_gen".
struct ReportField {
  std::string path, value;
  int line = 0;
};

struct ReportGpu {
  std::string bus_id;  // as the driver writes it
  int line = 0;
  std::vector<ReportField> fields;
};

struct NvidiaReport {
  std::vector<ReportField> fields;  // before the first GPU
  std::vector<ReportGpu> gpus;
};

/// Adds one host with the report's GPUs: address, name, memory and PCIe link of each, what else is worth knowing as facts, and notes on what is
/// below what it could be, broken or divided.
void add_nvidia_report(const NvidiaReport& report, Reading& reading);

}  // namespace wirewise
