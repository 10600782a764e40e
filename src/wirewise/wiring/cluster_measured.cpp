#include "wirewise/wiring/cluster_measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "wirewise/base/text.h"
#include "wirewise/wiring/link_settings.h"

namespace wirewise {
namespace {

constexpr double kMostFigure = 1e9;
constexpr double kAboveSpec = 1.05;  // rounding of measurements

}  // namespace

void read_measured(Settings& entry, const std::map<std::string, std::size_t>& hosts_known, Reading& reading) {
  entry.expect({"class", "units", "hosts", "alpha_us", "beta_GBps", "source", "between", "date", "sizes", "residual_percent"});
  const std::string name = entry.text("class");
  if (name.empty()) throw entry.wrong("class", "measured figures need the class of their links.", "See wirewise topo links for the names.");
  LinkClass of;
  if (name == name_of(LinkKind::kSharedMemory)) of.kind = LinkKind::kSharedMemory;  // of ranks' cores, no interconnect that is sold
  else of = class_setting(entry, "class", name);
  const int units = entry.integer("units", 0, 1, 65535);
  std::set<std::string> hosts;
  for (const std::string& host : names_setting(entry, "hosts")) {
    if (!hosts_known.contains(host)) throw entry.wrong("hosts", "there is no host " + printable(host) + ".");
    hosts.insert(host);
  }
  const double alpha = entry.number("alpha_us", -1, 0, kMostFigure);
  const double beta = entry.number("beta_GBps", -1, 1e-6, kMostFigure);
  const std::string source = entry.text("source", "measured");
  if (alpha < 0 && beta < 0) throw entry.wrong("class", "measured needs alpha_us, beta_GBps or both.");
  // How it was measured is for people, but has its form.
  std::string subject = "measured " + name + (units > 0 ? " x" + std::to_string(units) : "");
  if (!hosts.empty()) subject += " of " + join(entry.texts("hosts"), ",");
  const auto tell = [&](const std::string& what, const std::string& value) {
    if (!value.empty()) reading.facts.push_back({subject, what, value, 0});
  };
  tell("between", entry.text("between"));
  tell("date", entry.text("date"));
  std::vector<std::string> sizes;
  for (int size : entry.integers("sizes", 0, std::numeric_limits<int>::max())) sizes.push_back(std::to_string(size));
  tell("sizes", join(sizes, ", "));
  if (entry.has("residual_percent")) tell("off by", fmt::format("{} %", entry.number("residual_percent", 0, 0, kMostFigure)));
  entry.finish();
  std::vector<bool> chosen;
  for (const Device& device : reading.wiring.devices) {
    if (device.kind == DeviceKind::kHost) chosen.resize(static_cast<std::size_t>(std::max(device.host + 1, static_cast<int>(chosen.size()))), false);
    if (device.kind == DeviceKind::kHost) chosen[static_cast<std::size_t>(device.host)] = hosts.empty() || hosts.contains(device.name);
  }
  const auto of_chosen = [&](int device) {
    const int host = reading.wiring.devices[static_cast<std::size_t>(device)].host;
    return host >= 0 ? chosen[static_cast<std::size_t>(host)] : false;
  };
  int changed = 0;
  BytesPerSecond exceeded = 0;  // what the standard says of a link that is said to carry more
  for (Link& link : reading.wiring.links) {
    const bool by_kind = of.kind == LinkKind::kSharedMemory;
    const bool by_generation = of.generation > 0;
    const bool same = link.kind == of.kind && (by_kind || (by_generation ? link.generation == of.generation : link.source == of.name || link.source.starts_with(of.name + ", ")));
    if (!same || (units > 0 && link.lanes != units) || (!of_chosen(link.from) && !of_chosen(link.to))) continue;
    if (alpha >= 0) link.alpha = alpha * 1e-6;
    if (beta >= 0) link.beta = beta * 1e9 * (of.unit == "link" ? std::max(link.lanes, 1) : 1);  // of NVLinks and xGMI side by side it is one's
    if (beta >= 0 && link.spec > 0 && link.beta > link.spec * kAboveSpec) exceeded = link.spec;
    link.provenance = Provenance::kMeasured;
    link.source = by_generation || by_kind ? source : of.name + ", " + source;
    ++changed;
  }
  if (exceeded > 0) {
    reading.notes.push_back({entry.line(), 0, fmt::format("beta_GBps = {} makes links of {} faster than the {:.4g} GB/s a direction that the standard gives them.", beta, printable(name), exceeded / 1e9),
                             "It is in gigabytes a second and per direction: an eighth of Gbit/s."});
  }
  if (changed == 0) reading.notes.push_back({entry.line(), 0, "no link is " + printable(name) + ", so these measured figures change nothing."});
}

}  // namespace wirewise
