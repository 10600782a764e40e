// NCCL's and RCCL's topology files (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE): CPUs, which are NUMA nodes, with PCIe under them, GPUs and NICs at its
// ends, and NVLinks or xGMI between GPUs. The clouds' templates say of each PCI function only its class, fragments begin or end in the middle.
//
// The text becomes a document, its elements parts, the parts a graph. The host bridges of a NUMA node aren't told apart by the format: a node
// has one.
#include <algorithm>
#include <pugixml.hpp>

#include "wirewise/wiring/nccl_document.h"
#include "wirewise/wiring/nccl_graph.h"
#include "wirewise/wiring/nccl_parts.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/xml_scan.h"

namespace wirewise {

namespace {

/// Templates list PCI functions and leave the GPUs themselves, and so their NVLinks, to NCCL, which asks the driver.
void note_missing_nvlinks(const NcclParts& parts, NcclDocument& document) {
  for (int host = 0; host < parts.hosts; ++host) {
    const std::vector<int> gpus = parts.gpus(host);
    const NcclGpuLinks& links = parts.gpu_links[static_cast<std::size_t>(host)];
    const bool told = std::any_of(gpus.begin(), gpus.end(), [&](int gpu) { return parts.parts[static_cast<std::size_t>(gpu)].told; });
    if (gpus.size() < 2 || told || !links.between.empty() || !links.to_switch.empty()) continue;
    document.note({}, "the file has no NVLinks; NCCL adds those that the driver tells of, and figures here are without. Machines of wirewise topo list have them: --from aws-p4d.");
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
  if (document.root().child("graphs")) {
    read_nccl_graphs(document.text(), reading, [&](std::ptrdiff_t offset) { return document.line_at(offset); });
  } else {
    const NcclParts parts = read_nccl_parts(document);
    note_missing_nvlinks(parts, document);
    build_nccl_graph(parts, reading.wiring);
  }
  return reading;
}

}  // namespace wirewise
