// Interconnects by class: data/links.toml as a table, and links made from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/wiring/wiring.h"

namespace wirewise {

/// Figures are per unit (lane, link, port, pair of sockets) and direction.
struct LinkClass {
  std::string name;
  LinkKind kind = LinkKind::kPcie;
  int generation = 0;          // of PCIe and NVLink
  double rate_gbit = 0;        // of a network's port, Gbit/s
  bool rdma = false;           // of a network
  std::string unit;            // "lane", "link", "port", "pair"
  int full = 1;                // units of a full connection
  BytesPerSecond spec = 0;
  BytesPerSecond usable = 0;
  double advertised_gbyte = 0;  // GB/s, data sheets' figure of a full connection; most count both directions
  Seconds latency = 0;         // 0: no figure found
  double in_switch = 0;        // of NVLink: what sums in NVSwitches reach of `usable`; 0: they can't
  std::string source, notes;
};

/// All classes, in the order of the file.
[[nodiscard]] std::span<const LinkClass> link_classes();

/// The class of PCIe or NVLink generation; the nearest known one when there is no such.
[[nodiscard]] const LinkClass& link_class(LinkKind kind, int generation);
/// The class with this name. Throws bad input with the nearest known name.
[[nodiscard]] const LinkClass& link_class(std::string_view name);

/// A link of `units` units of a class. `provenance` says where class and units come from.
[[nodiscard]] Link make_link(const LinkClass& of, int units, Provenance provenance, std::string source = {});
/// PCIe of this generation and width; 0: unknown, taken as generation 4 and 16 lanes, and kAssumed.
[[nodiscard]] Link pcie_link(int generation, int lanes, Provenance provenance);
/// Between the two levels of PCIe switches that are one chip: as wide as the links below it, which `below` is, together. Broadcom's switches of
/// generation 4 and 5 show themselves so though they carry full bandwidth across all ports (NVIDIA/nccl src/graph/topo.cc, which joins
/// the levels).
[[nodiscard]] Link inside_chip_link(std::span<const Link> below);
/// Whether PCI's numbers of a switch and of the one above it say that they are one such chip. Each: vendor, device, subsystem's vendor and device,
/// 16 bits each from the highest on.
[[nodiscard]] bool one_pcie_chip(std::uint64_t above, std::uint64_t below);
/// The latency of this link, and where it isn't known that of the nearest class that has one; `as` says which, and is empty otherwise.
struct LinkLatency {
  Seconds alpha = 0;
  std::string as{};
};
[[nodiscard]] LinkLatency latency_of(const Link& link);
/// `count` NVLinks side by side; generation 0: unknown, taken as 3, and kAssumed.
[[nodiscard]] Link nvlink_link(int generation, int count, Provenance provenance);
/// A network's port of `gbit` Gbit/s: the class of its rate, or one scaled to it.
[[nodiscard]] Link network_link(LinkKind kind, double gbit, bool rdma, Provenance provenance);
/// Between NUMA nodes. `cpu`: "" when it isn't known, else as the class table names it.
[[nodiscard]] Link sockets_link(std::string_view cpu, Provenance provenance);

}  // namespace wirewise
