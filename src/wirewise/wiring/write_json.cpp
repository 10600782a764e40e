#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "wirewise/base/text.h"
#include "wirewise/wiring/path.h"
#include "wirewise/wiring/relation.h"
#include "wirewise/wiring/write.h"

namespace wirewise {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostPaired = 160;  // devices for which pairs across hosts are listed

/// Names out of files may be no UTF-8, which JSON has to be: their bytes become visible, so that different names stay different.
std::string visible(const std::string& text) { return is_utf8(text) ? text : printable(text); }

Json device_json(const std::vector<std::string>& host_names, const Device& device) {
  Json json{{"name", visible(device.name)}, {"kind", name_of(device.kind)}};
  if (device.host >= 0) json["host_index"] = device.host;
  const std::string name = device.host >= 0 ? host_names[static_cast<std::size_t>(device.host)] : "";
  json["host"] = name.empty() ? Json() : Json(visible(name));
  json["numa"] = device.numa >= 0 ? Json(device.numa) : Json();
  json["pci"] = device.pci.empty() ? Json() : Json(visible(device.pci));
  if (!device.model.empty()) json["model"] = visible(device.model);
  if (!device.cpus.empty()) json["cpus"] = visible(device.cpus);
  if (!device.rack.empty()) json["rack"] = visible(device.rack);
  if (device.memory > 0) json["memory_bytes"] = device.memory;
  if (device.level > 0) json["level"] = device.level;
  if (!device.placed) json["placed"] = false;
  if (device.nvls) json["nvls"] = true;
  return json;
}

}  // namespace

std::string write_json(const Reading& reading) {
  const Wiring& wiring = reading.wiring;
  Json json{{"format", name_of(reading.format)}, {"partial", reading.partial}};
  Json& devices = json["devices"] = Json::array();
  std::vector<std::string> host_names(static_cast<std::size_t>(hosts_of(wiring)));
  for (const Device& device : wiring.devices) {
    if (device.kind == DeviceKind::kHost) host_names[static_cast<std::size_t>(device.host)] = device.name;
  }
  for (const Device& device : wiring.devices) devices.push_back(device_json(host_names, device));
  Json& pairs = json["pairs"] = Json::array();
  const Relations relations(wiring);
  const Paths paths(wiring);
  std::vector<int> ends;
  for (DeviceKind kind : {DeviceKind::kGpu, DeviceKind::kNic, DeviceKind::kCpu}) {
    const std::vector<int> some = devices_of(wiring, kind);
    ends.insert(ends.end(), some.begin(), some.end());
  }
  const auto host = [&](int device) { return wiring.devices[static_cast<std::size_t>(device)].host; };
  // With which of `ends` each is paired: those behind it, of all hosts or of its own.
  std::map<int, std::vector<std::size_t>> others;
  const auto group = [&](std::size_t i) { return ends.size() > kMostPaired ? host(ends[i]) : 0; };
  for (std::size_t i = 0; i < ends.size(); ++i) others[group(i)].push_back(i);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const std::vector<std::size_t>& paired = others[group(i)];
    for (auto at = std::upper_bound(paired.begin(), paired.end(), i); at != paired.end(); ++at) {
      const std::size_t j = *at;
      const auto path = paths.find(ends[i], ends[j]);
      pairs.push_back({{"a", visible(wiring.devices[static_cast<std::size_t>(ends[i])].name)},
                       {"b", visible(wiring.devices[static_cast<std::size_t>(ends[j])].name)},
                       {"connection", name_of(relations.between(ends[i], ends[j]))},
                       {"bandwidth_GBps", path ? Json(path->bandwidth / 1e9) : Json()},
                       {"provenance", path ? Json(name_of(path->provenance)) : Json()}});
      if (host(ends[i]) != host(ends[j])) pairs.back()["hosts"] = Json::array({host(ends[i]), host(ends[j])});
    }
  }
  Json& links = json["links"] = Json::array();
  for (const Link& link : wiring.links) {
    Json& written = links.emplace_back(Json{{"from", link.from}, {"to", link.to}, {"kind", name_of(link.kind)}, {"bandwidth_GBps", link.beta / 1e9}, {"latency_us", link.alpha * 1e6},
                     {"provenance", name_of(link.provenance)}, {"source", visible(link.source)}, {"lanes", link.lanes}, {"generation", link.generation}, {"spec_GBps", link.spec / 1e9}});
    // Figures that the rounding of their unit changes, as they are.
    if (link.beta / 1e9 * 1e9 != link.beta) written["bandwidth_Bps"] = link.beta;
    if (link.alpha * 1e6 * 1e-6 != link.alpha) written["latency_s"] = link.alpha;
    if (link.spec / 1e9 * 1e9 != link.spec) written["spec_Bps"] = link.spec;
  }
  if (!wiring.rank_device.empty()) json["rank_device"] = wiring.rank_device;
  Json& facts = json["facts"] = Json::array();
  for (const Fact& fact : reading.facts) facts.push_back({{"subject", visible(fact.subject)}, {"name", visible(fact.name)}, {"value", visible(fact.value)}, {"line", fact.line}});
  Json& notes = json["notes"] = Json::array();
  for (const Note& note : reading.notes) {
    notes.push_back({{"line", note.line}, {"column", note.column}, {"text", visible(note.text)}});
    if (!note.remedy.empty()) notes.back()["remedy"] = visible(note.remedy);
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace wirewise
