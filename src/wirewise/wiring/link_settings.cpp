#include "wirewise/wiring/link_settings.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "wirewise/base/nearest.h"
#include "wirewise/base/node_list.h"
#include "wirewise/base/text.h"

namespace wirewise {
namespace {

constexpr std::array kDeviceKinds{DeviceKind::kHost, DeviceKind::kSocket, DeviceKind::kNumaNode, DeviceKind::kHostBridge, DeviceKind::kPcieSwitch,
                                  DeviceKind::kCpu, DeviceKind::kGpu, DeviceKind::kNvSwitch, DeviceKind::kNic, DeviceKind::kSwitch};
constexpr std::array kLinkKinds{LinkKind::kSharedMemory, LinkKind::kSockets, LinkKind::kPcie, LinkKind::kNvlink, LinkKind::kXgmi, LinkKind::kEthernet, LinkKind::kInfiniband};
constexpr std::array kProvenances{Provenance::kSpec, Provenance::kDriver, Provenance::kMeasured, Provenance::kAssumed};

constexpr int kMostNumber = 1'000'000'000;

/// A figure in its unit, or exactly under another key; `fallback` where there is neither.
double figure(Settings& entry, std::string_view key, double unit, std::string_view exact, double fallback) {
  if (entry.has(key) && entry.has(exact)) throw entry.wrong(exact, fmt::format("a link has either {} or {}.", key, exact));
  if (entry.has(exact)) return entry.number(exact, 0, 0, 1e18);
  if (!entry.has(key)) return fallback;
  const double value = entry.number(key, 0, 0, 1e9);
  return unit < 1 ? value / 1e6 : value * unit;  // microseconds are no exact factor
}

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

std::vector<std::string> names_setting(Settings& at, std::string_view key) {
  std::vector<std::string> all;
  for (const std::string& list : at.texts(key)) {
    try {
      const std::vector<std::string> some = expand_node_list(list);
      all.insert(all.end(), some.begin(), some.end());
    } catch (const Error& failure) {
      throw at.wrong(key, failure.sentence(), failure.remedy());
    }
  }
  return all;
}

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
  device.numa = entry.integer("numa", -1, -1, kMostNumber);
  device.pci = entry.text("pci");
  device.model = entry.text("model");
  device.cpus = entry.text("cpus");
  device.memory = static_cast<Bytes>(entry.number("memory_gib", 0, 0, 1e9) * static_cast<double>(kGiB));
  device.nvls = entry.truth("nvls", false);
  device.placed = entry.truth("placed", true);
  device.level = entry.integer("level", 0, 0, kMostNumber);
  device.rack = entry.text("rack");
  return device;
}

void add_link_setting(Wiring& wiring, int a, int b, Settings& entry) {
  const std::string name = entry.text("class");
  Link link;
  if (!name.empty()) {
    link = make_link(class_setting(entry, "class", name), entry.integer("units", 1, 1, kMostNumber), Provenance::kSpec, entry.text("source"));
  } else {
    link.kind = choice(entry, "kind", kLinkKinds, "");
    link.source = entry.text("source");
    link.generation = entry.integer("generation", 0, 0, kMostNumber);
    link.lanes = entry.integer("lanes", 0, 0, kMostNumber);
    link.spec = figure(entry, "spec_GBps", 1e9, "spec_Bps", 0);
    if (!entry.has("beta_GBps") && !entry.has("beta_Bps")) throw entry.wrong("beta_GBps", "a link without a class needs beta_GBps.");
  }
  link.beta = figure(entry, "beta_GBps", 1e9, "beta_Bps", link.beta);
  link.alpha = figure(entry, "alpha_us", 1e-6, "alpha_s", link.alpha);
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
