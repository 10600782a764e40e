// NCCL's and RCCL's topology files (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE): CPUs, which are NUMA nodes, with PCIe under them, GPUs and NICs at its
// ends, and NVLinks or xGMI between GPUs. The clouds' templates say of each PCI function only its class, fragments begin or end in the middle.
//
// The text becomes a document, its elements parts, the parts a graph. The host bridges of a NUMA node aren't told apart by the format: a node
// has one.
#include <algorithm>
#include <cstdint>
#include <pugixml.hpp>

#include "wirewise/wiring/nccl_document.h"
#include "wirewise/wiring/nccl_graph.h"
#include "wirewise/wiring/nccl_parts.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/xml_scan.h"

namespace wirewise {

namespace {

/// Whether a GPU of these numbers ("vendor" and "device" first) is one that has no NVLink. Sources: NVIDIA/gpu-admin-tools gpu/devid_names.py; lspci.
bool has_no_nvlink(std::uint64_t ids) {
  constexpr std::uint64_t kCards[] = {0x10de1eb8, 0x10de2236, 0x10de2237,              // T4, A10, A10G
                                      0x10de27b6, 0x10de27b8, 0x10de26b7, 0x10de26ba,  // L2, L4, L20
                                      0x10de26b5, 0x10de26b8, 0x10de26b9, 0x10de2bb5};  // L40, L40G, L40S, RTX PRO 6000 Blackwell Server Edition
  return std::find(std::begin(kCards), std::end(kCards), ids >> 32) != std::end(kCards);
}

/// Templates list PCI functions and leave the GPUs themselves, and so their NVLinks, to NCCL, which asks the driver.
void note_missing_nvlinks(const NcclParts& parts, NcclDocument& document) {
  for (int host = 0; host < parts.hosts; ++host) {
    const std::vector<int> gpus = parts.gpus(host);
    const NcclGpuLinks& links = parts.gpu_links[static_cast<std::size_t>(host)];
    const bool told = std::any_of(gpus.begin(), gpus.end(), [&](int gpu) { return parts.parts[static_cast<std::size_t>(gpu)].told; });
    if (gpus.size() < 2 || told || !links.between.empty() || !links.to_switch.empty()) continue;
    if (std::all_of(gpus.begin(), gpus.end(), [&](int gpu) { return has_no_nvlink(parts.parts[static_cast<std::size_t>(gpu)].ids); })) continue;
    document.note({}, "the file has no NVLinks; where the GPUs have some, NCCL adds those that the driver tells of, and figures here are without. Machines of wirewise topo list have theirs.");
    document.fact("host" + std::to_string(host), "NVLinks", "not in the file", {});
  }
}

}  // namespace

bool looks_like_nccl_xml(std::string_view text) {
  const std::string_view first = first_element(text);
  constexpr std::string_view kNames[] = {"system", "cpu", "pci", "gpu", "nic", "net", "nvlink", "xgmi", "graphs", "graph"};
  return std::find(std::begin(kNames), std::end(kNames), first) != std::end(kNames);
}

Reading read_nccl_xml(std::string_view text, std::string_view file) {
  Reading reading;
  reading.format = Format::kNcclXml;
  NcclDocument document(text, file, reading);
  if (document.root().child("graphs") || document.root().child("graph")) {
    read_nccl_graphs(document.text(), reading, [&](std::ptrdiff_t offset) { return document.line_at(offset); });
  } else {
    const NcclParts parts = read_nccl_parts(document);
    note_missing_nvlinks(parts, document);
    build_nccl_graph(parts, reading.wiring);
  }
  return reading;
}

}  // namespace wirewise
