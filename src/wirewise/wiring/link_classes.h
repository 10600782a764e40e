// Interconnects by class: data/links.toml as a table, and links made from it.
#pragma once

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
/// `count` NVLinks side by side; generation 0: unknown, taken as 3, and kAssumed.
[[nodiscard]] Link nvlink_link(int generation, int count, Provenance provenance);
/// A network's port of `gbit` Gbit/s: the class of its rate, or one scaled to it.
[[nodiscard]] Link network_link(LinkKind kind, double gbit, bool rdma, Provenance provenance);
/// Between NUMA nodes. `cpu`: "" when it isn't known, else as the class table names it.
[[nodiscard]] Link sockets_link(std::string_view cpu, Provenance provenance);

}  // namespace wirewise
