// Our own dump of a graph, read back to the same graph.
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "wirewise/base/nearest.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/xml_scan.h"

namespace wirewise {
namespace {

using Json = nlohmann::json;

constexpr int kMostDepth = 8;
constexpr int kMostNumber = 1 << 30;

template <typename Kind>
std::optional<Kind> kind_named(std::string_view name, Kind last) {
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (name_of(static_cast<Kind>(i)) == name) return static_cast<Kind>(i);
  }
  return std::nullopt;
}

/// An object of the dump, and where it stands in it: "links[3]".
class Entry {
 public:
  Entry(const Json& json, std::string place, std::string_view file) : json_(json), place_(std::move(place)), file_(file) {
    if (!json.is_object()) refuse("an object belongs here.");
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& remedy = {}) const {
    throw unreadable(file_, 0, 0, (place_.empty() ? "" : place_ + ": ") + what, remedy);
  }

  void only(const std::vector<std::string>& known) const {
    for (const auto& [key, value] : json_.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end()) refuse("the key " + printable(key) + " isn't known.", suggest(key, known));
    }
  }

  [[nodiscard]] const Json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  [[nodiscard]] const Json& array(const char* key) const {
    static const Json none = Json::array();
    const Json* found = find(key);
    if (found == nullptr) return none;
    if (!found->is_array()) refuse(std::string(key) + " is no array.");
    return *found;
  }
  [[nodiscard]] std::string text(const char* key, bool needed = false) const {
    const Json* found = find(key);
    if (found == nullptr && needed) refuse(std::string("it has no ") + key + ".");
    if (found == nullptr) return {};
    if (!found->is_string()) refuse(std::string(key) + " is no text.");
    return found->get<std::string>();
  }
  [[nodiscard]] bool flag(const char* key, bool otherwise) const {
    const Json* found = find(key);
    if (found == nullptr) return otherwise;
    if (!found->is_boolean()) refuse(std::string(key) + " is neither true nor false.");
    return found->get<bool>();
  }
  [[nodiscard]] int integer(const char* key, int otherwise, int least, int most) const {
    const Json* found = find(key);
    if (found == nullptr) return otherwise;
    const bool whole = found->is_number_integer() && !(found->is_number_unsigned() && found->get<std::uint64_t>() > static_cast<std::uint64_t>(kMostNumber));
    const auto number = whole ? found->get<std::int64_t>() : 0;
    if (!whole || number < least || number > most) refuse(std::string(key) + " is no whole number from " + std::to_string(least) + " to " + std::to_string(most) + ".");
    return static_cast<int>(number);
  }
  /// A figure in `unit`, or exactly under another key.
  [[nodiscard]] double figure(const char* key, double unit, const char* exact) const {
    const Json* found = find(exact);
    const double scale = found == nullptr ? unit : 1;
    if (found == nullptr) found = find(key);
    if (found == nullptr) refuse(std::string("it has no ") + key + ".");
    if (!found->is_number() || !std::isfinite(found->get<double>()) || found->get<double>() < 0) refuse(std::string(key) + " is no number from 0.");
    return found->get<double>() * scale;
  }
  template <typename Kind>
  [[nodiscard]] Kind kind(const char* key, Kind last) const {
    const std::string name = text(key, true);
    if (const auto found = kind_named(name, last)) return *found;
    std::vector<std::string> known;
    for (int i = 0; i <= static_cast<int>(last); ++i) known.emplace_back(name_of(static_cast<Kind>(i)));
    refuse(printable(name) + " is no " + key + ".", suggest(name, known));
  }

 private:
  const Json& json_;
  std::string place_;
  std::string_view file_;
};

Json parse(std::string_view text, std::string_view file) {
  const auto shallow = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMostDepth) throw unreadable(file, 0, 0, "it nests deeper than " + std::to_string(kMostDepth) + ".", "Give what wirewise topo --json printed.");
    return true;
  };
  try {
    return Json::parse(text, shallow);
  } catch (const Json::parse_error& error) {
    const TextPlaces places(text);
    const std::size_t at = std::min(error.byte > 0 ? error.byte - 1 : 0, text.size());
    throw unreadable(file, places.line(at), places.column(at), at >= text.size() ? "the JSON ends in the middle." : "this is no JSON from here on.", "Give the whole of what wirewise topo --json printed.");
  } catch (const Json::exception&) {
    throw unreadable(file, 0, 0, "a number in it is out of range.");
  }
}

Device read_device(const Entry& entry) {
  entry.only({"name", "kind", "host_index", "host", "numa", "pci", "model", "cpus", "rack", "memory_bytes", "level", "placed", "nvls"});
  Device device;
  device.name = entry.text("name", true);
  device.kind = entry.kind("kind", DeviceKind::kSwitch);
  device.host = entry.integer("host_index", -1, 0, kMostNumber);
  device.numa = entry.integer("numa", -1, 0, kMostNumber);
  device.pci = entry.text("pci");
  device.model = entry.text("model");
  device.cpus = entry.text("cpus");
  device.rack = entry.text("rack");
  device.level = entry.integer("level", 0, 0, kMostNumber);
  device.placed = entry.flag("placed", true);
  device.nvls = entry.flag("nvls", false);
  if (const Json* memory = entry.find("memory_bytes")) {
    if (!memory->is_number_unsigned()) entry.refuse("memory_bytes is no whole number.");
    device.memory = static_cast<Bytes>(memory->get<std::uint64_t>());
  }
  return device;
}

Link read_link(const Entry& entry, int devices) {
  entry.only({"from", "to", "kind", "bandwidth_GBps", "latency_us", "provenance", "source", "lanes", "generation", "spec_GBps", "bandwidth_Bps", "latency_s", "spec_Bps"});
  Link link;
  for (const char* end : {"from", "to"}) {
    if (entry.find(end) == nullptr) entry.refuse(std::string("it has no ") + end + ".");
  }
  link.from = entry.integer("from", -1, 0, devices - 1);
  link.to = entry.integer("to", -1, 0, devices - 1);
  link.kind = entry.kind("kind", LinkKind::kXgmi);
  link.beta = entry.figure("bandwidth_GBps", 1e9, "bandwidth_Bps");
  link.alpha = entry.figure("latency_us", 1e-6, "latency_s");
  link.spec = entry.figure("spec_GBps", 1e9, "spec_Bps");
  link.provenance = entry.kind("provenance", Provenance::kAssumed);
  link.source = entry.text("source");
  link.lanes = entry.integer("lanes", 0, 0, kMostNumber);
  link.generation = entry.integer("generation", 0, 0, kMostNumber);
  return link;
}

/// Hosts are numbered without gaps, one host device each, and names are unique where the graph needs them so.
void check(const Wiring& wiring, std::string_view file) {
  std::set<std::pair<int, std::string>> names;
  std::set<int> hosts;
  int highest = -1;
  for (std::size_t i = 0; i < wiring.devices.size(); ++i) {
    const Device& device = wiring.devices[i];
    const std::string place = "devices[" + std::to_string(i) + "]: ";
    if (!names.emplace(device.host, device.name).second) throw unreadable(file, 0, 0, place + "a second device of its host is named " + printable(device.name) + ".");
    highest = std::max(highest, device.host);
    if (device.kind != DeviceKind::kHost) continue;
    if (device.host < 0) throw unreadable(file, 0, 0, place + "a host has no host_index.");
    if (!hosts.insert(device.host).second) throw unreadable(file, 0, 0, place + "a second host has the host_index " + std::to_string(device.host) + ".");
  }
  if (highest + 1 != static_cast<int>(hosts.size())) throw unreadable(file, 0, 0, "devices name hosts that aren't among them.", "Number hosts from 0 without gaps.");
}

}  // namespace

bool looks_like_json(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

Reading read_json(std::string_view text, std::string_view file) {
  const Json json = parse(text, file);
  const Entry top(json, "", file);
  top.only({"format", "partial", "devices", "pairs", "links", "rank_device", "facts", "notes", "all_reduce"});
  if (top.find("devices") == nullptr) top.refuse("it has no devices.", "Give what wirewise topo --json printed.");
  Reading reading;
  reading.format = top.kind("format", Format::kThisMachine);
  reading.partial = top.flag("partial", false);
  const auto each = [&](const char* key, const auto& read) {
    const Json& array = top.array(key);
    for (std::size_t i = 0; i < array.size(); ++i) read(Entry(array[i], std::string(key) + "[" + std::to_string(i) + "]", file));
  };
  Wiring& wiring = reading.wiring;
  each("devices", [&](const Entry& entry) { wiring.devices.push_back(read_device(entry)); });
  check(wiring, file);
  const int devices = static_cast<int>(wiring.devices.size());
  each("links", [&](const Entry& entry) { wiring.links.push_back(read_link(entry, devices)); });
  for (const Json& rank : top.array("rank_device")) {
    if (!rank.is_number_unsigned() || rank.get<std::uint64_t>() >= static_cast<std::uint64_t>(devices)) top.refuse("rank_device names a device that isn't there.");
    wiring.rank_device.push_back(rank.get<int>());
  }
  each("facts", [&](const Entry& entry) {
    entry.only({"subject", "name", "value", "line"});
    reading.facts.push_back({entry.text("subject", true), entry.text("name", true), entry.text("value", true), entry.integer("line", 0, 0, kMostNumber)});
  });
  each("notes", [&](const Entry& entry) {
    entry.only({"line", "column", "text", "remedy"});
    reading.notes.push_back({entry.integer("line", 0, 0, kMostNumber), entry.integer("column", 0, 0, kMostNumber), entry.text("text", true), entry.text("remedy", false)});
  });
  return reading;
}

}  // namespace wirewise
