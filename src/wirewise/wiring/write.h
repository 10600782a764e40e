// A graph as people and programs read it, one writer a form.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/wiring/reading.h"

namespace wirewise {

/// The hosts as trees, each link with its bandwidth; lines end with \n. Hosts that are alike are drawn once.
[[nodiscard]] std::string write_tree(const Wiring& wiring);
/// What all GPUs (where there are none, ranks' cores) of a host, and of all hosts, get together: bus bandwidth of an all-reduce, what limits
/// it, and what crosses the middle.
/// Hosts that get alike share a line; empty where there are fewer than two. With `sizes` also the time and bus bandwidth of each.
/// `caveat` stands in each line: what the reading lacks.
[[nodiscard]] std::string write_groups(const Wiring& wiring, std::span<const Bytes> sizes = {}, std::string_view caveat = {});
/// Where a figure is from, for people: an achievable one of the table of interconnects is no standard's.
[[nodiscard]] std::string_view words_of(Provenance provenance) noexcept;
/// The GPUs and NICs of each host against each other, as nvidia-smi topo -m prints them.
[[nodiscard]] std::string write_matrix(const Wiring& wiring);
/// A cluster.toml that reads back to the same devices, links, ranks and facts; hosts that are alike share a template. Names that aren't UTF-8
/// become visible text. Throws bad input for parts of hosts.
[[nodiscard]] std::string write_cluster(const Reading& reading);
[[nodiscard]] std::string write_cluster(const Wiring& wiring);
/// A picture: hosts as boxes, in them NUMA nodes, host bridges and PCIe switches round their GPUs and NICs; NVLinks and the network as lines
/// as wide as they are fast. Alike hosts, and levels of many switches, are drawn once.
[[nodiscard]] std::string write_svg(const Wiring& wiring);
/// One JSON object: format, devices, pairs, links, facts, notes, partial. read_wiring() reads it back.
[[nodiscard]] std::string write_json(const Reading& reading);
struct NcclXml {
  std::string text;
  std::vector<std::string> notes;  // what was made up or left out, as sentences
};
/// A topology file as NCCL_TOPO_FILE takes it, which reads back to the same relations between GPUs and NICs. `host`: the one that is written,
/// by its name; empty: the only one. PCI addresses that aren't known are made up (pci_addresses.h). What NCCL finds out itself (compute
/// capability, network devices) is written where the reading has it. Throws bad input for several hosts without `host`, unless their hashes are
/// among the facts; for a host without devices; and for devices that hang on nothing.
[[nodiscard]] NcclXml write_nccl_xml(const Reading& reading, std::string_view host = {});

}  // namespace wirewise
