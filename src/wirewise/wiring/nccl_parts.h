// What a topology file of NCCL or RCCL says of a machine, between its XML and the graph: parts, each hanging on another, and the links that GPUs
// have besides. read_nccl_parts() takes them from the elements and notes all that is odd; build_nccl_graph() needs nothing but them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "wirewise/wiring/nccl_document.h"
#include "wirewise/wiring/nccl_words.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise {

/// A device to be, and what it hangs on. Indices are those of NcclParts::parts.
struct NcclPart {
  DeviceKind kind = DeviceKind::kPcieSwitch;
  int host = 0;
  int parent = -1;  // -1: the host
  std::string name, pci, model, cpus;
  int numa = -1, number = -1;  // the number that the file gives it
  int generation = 0, lanes = 0;
  std::uint64_t ids = 0;  // vendor, device, and both of the subsystem; 0: not printed
  bool inside_chip = false;  // a PCIe switch that is one chip with the one above
  bool placed = true;
  CpuKind cpu;
  int compute_capability = 0;  // of NVIDIA's GPUs
  std::string gfx;             // of AMD's GPUs: "gfx90a"
  bool told = false;           // a GPU with a <gpu>, in which its links would stand
};

/// The links of a host's GPUs besides PCIe, in numbers.
struct NcclGpuLinks {
  std::map<std::pair<int, int>, int> between;  // each pair of GPUs once
  std::map<int, int> to_cpu, to_switch;        // by GPU
  std::vector<std::pair<int, Link>> c2c;       // a GPU's NVLink-C2C to the CPU beside it
};

struct NcclParts {
  int hosts = 0;
  std::vector<NcclPart> parts;
  std::vector<int> nics;                 // in the order of the numbers that the file gives them
  std::vector<NcclGpuLinks> gpu_links;   // by host

  [[nodiscard]] std::vector<int> of_kind(DeviceKind kind, int host) const;
  /// A host's, by number.
  [[nodiscard]] std::vector<int> gpus(int host) const;
};

/// Throws bad input where the file names no device, or one twice.
[[nodiscard]] NcclParts read_nccl_parts(NcclDocument& document);
/// What the <gpu> elements say, of which `nodes` has each part's: links into `parts.gpu_links`, the rest as facts.
void read_nccl_gpus(NcclDocument& document, const std::vector<pugi::xml_node>& nodes, NcclParts& parts);

void build_nccl_graph(const NcclParts& parts, Wiring& wiring);

}  // namespace wirewise
