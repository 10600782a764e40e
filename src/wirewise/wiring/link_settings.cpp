#include "wirewise/wiring/link_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "wirewise/base/nearest.h"
#include "wirewise/base/text.h"

namespace wirewise {
namespace {

constexpr std::array kDeviceKinds{DeviceKind::kHost, DeviceKind::kSocket, DeviceKind::kNumaNode, DeviceKind::kHostBridge, DeviceKind::kPcieSwitch,
                                  DeviceKind::kCpu, DeviceKind::kGpu, DeviceKind::kNvSwitch, DeviceKind::kNic, DeviceKind::kSwitch};
constexpr std::array kLinkKinds{LinkKind::kSharedMemory, LinkKind::kSockets, LinkKind::kPcie, LinkKind::kNvlink, LinkKind::kXgmi, LinkKind::kEthernet, LinkKind::kInfiniband};
constexpr std::array kProvenances{Provenance::kSpec, Provenance::kDriver, Provenance::kMeasured, Provenance::kAssumed};

template <typename Kinds>
auto choice(Settings& entry, std::string_view key, const Kinds& kinds, const std::string& fallback) {
  const std::string name = entry.text(key, fallback);
  std::vector<std::string> known;
  for (const auto kind : kinds) {
    if (name_of(kind) == name) return kind;
    known.emplace_back(name_of(kind));
  }
  throw entry.wrong(key, fmt::format("there is no {} \"{}\".", key, printable(name)), suggest(name, known));
}

}  // namespace

const LinkClass& class_setting(const Settings& at, std::string_view key, const std::string& name) {
  std::vector<std::string> known;
  for (const LinkClass& one : link_classes()) {
    if (one.name == name) return one;
    known.push_back(one.name);
  }
  const auto guess = nearest(name, known);
  throw at.wrong(key, "there is no interconnect named " + printable(name) + ".", guess ? "Did you mean " + *guess + "?" : "See wirewise topo links for the names.");
}

Device read_device(Settings& entry) {
  Device device;
  device.name = entry.text("name");
  if (device.name.empty()) throw entry.wrong("name", "a device needs a name.");
  device.kind = choice(entry, "kind", kDeviceKinds, "");
  device.numa = entry.integer("numa", -1, -1, 65535);
  device.pci = entry.text("pci");
  device.model = entry.text("model");
  device.cpus = entry.text("cpus");
  device.memory = static_cast<Bytes>(entry.number("memory_gib", 0, 0, 1e9) * static_cast<double>(kGiB));
  device.nvls = entry.truth("nvls", false);
  device.placed = entry.truth("placed", true);
  device.level = entry.integer("level", 0, 0, 15);
  device.rack = entry.text("rack");
  return device;
}

void add_link_setting(Wiring& wiring, int a, int b, Settings& entry) {
  const std::string name = entry.text("class");
  Link link;
  if (!name.empty()) {
    link = make_link(class_setting(entry, "class", name), entry.integer("units", 1, 1, 65535), Provenance::kSpec, entry.text("source"));
  } else {
    link.kind = choice(entry, "kind", kLinkKinds, "");
    link.source = entry.text("source");
    link.generation = entry.integer("generation", 0, 0, 15);
    link.lanes = entry.integer("lanes", 0, 0, 65535);
    link.spec = entry.number("spec_GBps", 0, 0, 1e9) * 1e9;
    if (!entry.has("beta_GBps")) throw entry.wrong("beta_GBps", "a link without a class needs beta_GBps.");
  }
  if (entry.has("beta_GBps")) link.beta = entry.number("beta_GBps", 0, 0, 1e9) * 1e9;
  if (entry.has("alpha_us")) link.alpha = entry.number("alpha_us", 0, 0, 1e9) / 1e6;
  link.provenance = choice(entry, "provenance", kProvenances, std::string(name_of(name.empty() ? Provenance::kAssumed : Provenance::kSpec)));
  if (!entry.truth("one_way", false)) {
    add_link(wiring, a, b, std::move(link));
    return;
  }
  link.from = a;
  link.to = b;
  wiring.links.push_back(std::move(link));
}

}  // namespace wirewise
