#include "wirewise/wiring/link_classes.h"

#include <toml++/toml.h>

#include <cmath>

#include "wirewise/base/error.h"
#include "wirewise/base/nearest.h"
#include "wirewise/wiring/embedded.h"

namespace wirewise {
namespace {

constexpr double kGiga = 1e9;

LinkKind kind_of(std::string_view name) {
  for (LinkKind kind : {LinkKind::kSharedMemory, LinkKind::kSockets, LinkKind::kPcie, LinkKind::kNvlink, LinkKind::kEthernet, LinkKind::kInfiniband, LinkKind::kXgmi}) {
    if (name_of(kind) == name) return kind;
  }
  throw Error(ErrorKind::kFailed, "data/links.toml has a link of the unknown kind " + std::string(name) + ".");
}

std::vector<LinkClass> load() {
  const toml::table file = toml::parse(embedded("links.toml"));
  std::vector<LinkClass> classes;
  for (const toml::node& node : *file["link"].as_array()) {
    const toml::table& entry = *node.as_table();
    LinkClass link;
    link.name = entry["name"].value<std::string>().value();
    link.kind = kind_of(entry["kind"].value<std::string>().value());
    link.generation = entry["generation"].value_or(0);
    link.rate_gbit = entry["rate"].value_or(0.0);
    link.rdma = entry["rdma"].value_or(false);
    link.unit = entry["unit"].value<std::string>().value();
    link.full = entry["full"].value_or(1);
    link.spec = entry["spec"].value<double>().value() * kGiga;
    link.usable = entry["usable"].value<double>().value() * kGiga;
    link.advertised_gbyte = entry["advertised"].value<double>().value();
    link.latency = entry["latency_us"].value_or(0.0) * 1e-6;
    link.in_switch = entry["in_switch"].value_or(0.0);
    link.source = entry["source"].value<std::string>().value();
    link.notes = entry["notes"].value_or(std::string());
    classes.push_back(std::move(link));
  }
  return classes;
}

std::string unit_count(const LinkClass& of, int units) {
  if (of.unit == "lane") return of.name + " x" + std::to_string(units);
  if (of.unit == "link") return std::to_string(units) + " x " + of.name;
  return of.name;
}

}  // namespace

std::string_view embedded(std::string_view name) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name == name) return file.text;
  }
  throw Error(ErrorKind::kFailed, "the program was built without data/" + std::string(name) + ".", "Build it again.");
}

std::span<const LinkClass> link_classes() {
  static const std::vector<LinkClass> classes = load();
  return classes;
}

const LinkClass& link_class(LinkKind kind, int generation) {
  const LinkClass* best = nullptr;
  for (const LinkClass& one : link_classes()) {
    if (one.kind != kind) continue;
    if (best == nullptr || std::abs(one.generation - generation) < std::abs(best->generation - generation)) best = &one;
  }
  return *best;
}

const LinkClass& link_class(std::string_view name) {
  std::vector<std::string> known;
  for (const LinkClass& one : link_classes()) {
    if (one.name == name) return one;
    known.push_back(one.name);
  }
  const auto guess = nearest(std::string(name), known);
  throw bad_input("there is no interconnect named " + std::string(name) + ".",
                  guess ? "Did you mean " + *guess + "?" : "See wirewise topo links for the names.");
}

Link make_link(const LinkClass& of, int units, Provenance provenance, std::string source) {
  Link link;
  link.kind = of.kind;
  link.generation = of.generation;
  link.lanes = units;
  link.spec = of.spec * units;
  link.beta = of.usable * units;
  link.alpha = joins_gpus(of.kind) ? of.latency : of.latency / 2;  // the other half at the other end
  link.provenance = provenance;
  link.source = source.empty() ? unit_count(of, units) : std::move(source);
  return link;
}

Link pcie_link(int generation, int lanes, Provenance provenance) {
  const bool known = generation > 0 && lanes > 0;
  const LinkClass& of = link_class(LinkKind::kPcie, generation > 0 ? generation : 4);
  Link link = make_link(of, lanes > 0 ? lanes : 16, known ? provenance : Provenance::kAssumed);
  if (generation == 1 || generation == 2) {  // 2.5 and 5 GT/s, of which 8 bits in 10 are data
    const double scale = 0.25e9 * generation / of.spec;
    link.spec *= scale;
    link.beta *= scale;
    link.generation = generation;
    link.source = "PCIe " + std::to_string(generation) + " x" + std::to_string(link.lanes) + ", scaled from " + of.name;
  }
  if (!known) {
    link.generation = generation;
    link.lanes = lanes;
  }
  return link;
}

Link inside_chip_link(std::span<const Link> below) {
  if (below.empty()) return pcie_link(0, 0, Provenance::kAssumed);
  Link link = below.front();
  for (const Link& one : below.subspan(1)) {
    link.lanes += one.lanes;
    link.beta += one.beta;
    link.spec += one.spec;
  }
  link.source = "inside a PCIe switch, as wide as its ports below";
  return link;
}

bool one_pcie_chip(std::uint64_t above, std::uint64_t below) {
  constexpr std::uint64_t kModels = 0xfffffffffffff000, kGen4 = 0x1000c0101000a000, kGen5 = 0x1000c03010000000, kLower = 0x1000;
  if ((above & kModels) == kGen4) return (below & kModels) == kGen4;
  return (above & kModels) == kGen5 && (below & kModels) == kGen5 + kLower;
}

LinkLatency latency_of(const Link& link) {
  const bool inside = link.kind == LinkKind::kSharedMemory || (link.kind == LinkKind::kPcie && link.generation == 0);
  if (link.alpha > 0 || link.provenance == Provenance::kMeasured || inside) return {link.alpha};
  const LinkClass* best = nullptr;
  const bool xgmi = link.kind == LinkKind::kXgmi;  // none of whose classes has a figure
  for (const LinkClass& one : link_classes()) {
    if (one.kind != (xgmi ? LinkKind::kNvlink : link.kind) || one.latency <= 0) continue;
    if (best == nullptr || std::abs(one.generation - link.generation) < std::abs(best->generation - link.generation)) best = &one;
  }
  if (best == nullptr) return {link.alpha};
  return {make_link(*best, 1, Provenance::kAssumed).alpha, link.source + " as " + best->name};
}

Link nvlink_link(int generation, int count, Provenance provenance) {
  Link link = make_link(link_class(LinkKind::kNvlink, generation > 0 ? generation : 3), count, generation > 0 ? provenance : Provenance::kAssumed);
  if (generation <= 0) link.generation = 0;
  return link;
}

Link network_link(LinkKind kind, double gbit, bool rdma, Provenance provenance) {
  const LinkClass* best = nullptr;
  for (const LinkClass& one : link_classes()) {
    if (one.kind != kind || one.rdma != rdma) continue;
    if (best == nullptr || std::abs(std::log(one.rate_gbit / gbit)) < std::abs(std::log(best->rate_gbit / gbit))) best = &one;
  }
  Link link = make_link(*best, 1, provenance);
  if (best->rate_gbit != gbit) {
    const double scale = gbit / best->rate_gbit;
    link.spec *= scale;
    link.beta *= scale;
    link.source = std::string(kind == LinkKind::kInfiniband ? "InfiniBand" : rdma ? "RoCE" : "Ethernet") + ", scaled from " + best->name;
  }
  return link;
}

Link sockets_link(std::string_view cpu, Provenance provenance) {
  if (!cpu.empty()) return make_link(link_class(cpu), 1, provenance);
  return make_link(link_class("AMD xGMI, Zen 2"), 1, Provenance::kAssumed, "as AMD xGMI, Zen 2");
}

}  // namespace wirewise
