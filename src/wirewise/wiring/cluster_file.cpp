#include "wirewise/wiring/cluster_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "wirewise/base/nearest.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/cluster_measured.h"
#include "wirewise/wiring/cluster_spec.h"
#include "wirewise/wiring/embedded.h"
#include "wirewise/wiring/link_settings.h"
#include "wirewise/wiring/settings.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

constexpr int kMostHosts = 262'144;

class ClusterReader {
 public:
  ClusterReader(std::string_view text, std::string_view file) : settings_(text, file), file_(file) {}

  Reading read() {
    reading_.format = Format::kClusterToml;
    if (!settings_.has("host")) return one_host_file();
    settings_.expect({"name", "about", "source", "template", "host", "override", "network", "level", "switch", "link", "measured", "rank", "fact", "partial"});
    state("name", settings_.text("name"));
    state("about", settings_.text("about"));
    for (const std::string& source : settings_.texts("source")) state("source", source);
    read_templates();
    for (Settings& entry : settings_.tables("host")) read_hosts(entry);
    for (Settings& entry : settings_.tables("override")) read_override(entry);
    read_network();
    try {
      reading_.wiring = build_cluster(spec_);
    } catch (const Error& failure) {
      throw unreadable(file_, 0, 0, failure.sentence(), failure.remedy());
    }
    for (Settings& entry : settings_.tables("switch")) read_switch(entry);
    read_links();
    for (Settings& entry : settings_.tables("measured")) read_measured(entry, by_name_, reading_);
    for (Settings& entry : settings_.tables("rank")) {
      reading_.wiring.rank_device.push_back(link_end(entry, "on"));
      entry.finish();
    }
    int out = 0;
    for (const ClusterHost& host : spec_.hosts) out += host.out ? 1 : 0;
    if (out > 0) state("hosts taken out", std::to_string(out));
    read_kept();
    settings_.finish();
    return std::move(reading_);
  }

 private:
  void state(const std::string& name, const std::string& value) {
    if (!value.empty()) reading_.facts.push_back({"cluster", name, value, 0});
  }

  /// What was said of a machine that became this description, and has no key of its own.
  void read_kept() {
    for (Settings& entry : settings_.tables("fact")) {
      reading_.facts.push_back({entry.text("subject"), entry.text("name"), entry.text("value"), 0});
      entry.finish();
    }
    reading_.partial = settings_.truth("partial", false);
  }

  /// A file without [[host]] describes one host.
  Reading one_host_file() {
    std::string name = settings_.text("name");
    if (name.empty()) {
      name = file_.substr(file_.find_last_of('/') + 1);
      if (name.ends_with(".toml")) name.resize(name.size() - 5);
    }
    const bool any = settings_.has("device") || settings_.has("numa") || settings_.has("bridge") || settings_.has("gpus");
    if (!any) {
      const std::vector<std::string> known{"host", "template", "network", "level", "override", "measured", "switch", "link", "rank", "fact", "partial", "name", "about", "source", "numa", "bridge", "gpus", "nics", "nvlink", "device"};
      for (const std::string& key : settings_.keys()) {
        if (std::find(known.begin(), known.end(), key) == known.end()) throw settings_.wrong(key, "there is no key " + printable(key) + " here.", suggest(key, known));
      }
      throw unreadable(file_, 0, 0, "this describes no host.", "A cluster has [[host]] tables, a host has [[bridge]] and [[numa]] tables.");
    }
    ClusterHost host;
    host.name = name;
    std::vector<Settings> measured = settings_.tables("measured");
    host.kind = std::make_shared<const HostTemplate>(read_host_template(settings_, name));
    by_name_.emplace(name, 0);
    state("about", host.kind->about);
    for (const std::string& source : host.kind->sources) state("source", source);
    spec_.hosts.push_back(std::move(host));
    reading_.wiring = build_cluster(spec_);
    for (Settings& entry : measured) read_measured(entry, by_name_, reading_);
    return std::move(reading_);
  }

  void read_templates() {
    for (Settings& entry : settings_.tables("template")) {
      const std::string name = entry.text("name");
      if (name.empty()) throw entry.wrong("name", "a template needs a name.");
      if (kinds_.contains(name)) throw entry.wrong("name", "two templates are named " + printable(name) + ".");
      kinds_[name] = std::make_shared<const HostTemplate>(read_host_template(entry, name));
    }
  }

  std::shared_ptr<const HostTemplate> kind_of(const Settings& at, const std::string& name) {
    auto& kind = kinds_[name];
    if (kind != nullptr) return kind;
    try {
      kind = std::make_shared<const HostTemplate>(shipped_host(name));
    } catch (const Error& failure) {
      if (failure.kind() != ErrorKind::kBadInput) throw;
      throw at.wrong("template", failure.sentence(), failure.remedy() + " Or describe it in a [[template]] of this file.");
    }
    return kind;
  }

  void read_hosts(Settings& entry) {
    const std::string wanted = entry.text("template");
    if (wanted.empty()) throw entry.wrong("template", "hosts need a template.", "Name one of wirewise topo list, or a [[template]] of this file.");
    const auto kind = kind_of(entry, wanted);
    std::vector<std::string> names = names_setting(entry, "names");
    const std::vector<std::string> literal = entry.texts("literal_names");  // whose brackets and commas are their own
    names.insert(names.end(), literal.begin(), literal.end());
    if (names.empty() && (entry.has("names") || entry.has("literal_names"))) throw entry.wrong("names", "names lists no host.", "Name them, or leave names out and give count.");
    const int count = entry.integer("count", names.empty() ? 1 : static_cast<int>(names.size()), 1, kMostHosts);
    const std::string prefix = entry.text("prefix", "node");
    const int first = entry.integer("first", static_cast<int>(spec_.hosts.size()), 0, 1'000'000'000);
    if (!names.empty() && (entry.has("prefix") || entry.has("first"))) throw entry.wrong("names", "hosts have either names or a prefix.");
    if (!names.empty() && static_cast<std::size_t>(count) != names.size()) throw entry.wrong("count", fmt::format("names lists {} hosts, but count is {}.", names.size(), count));
    for (int i = static_cast<int>(names.size()); i < count; ++i) names.push_back(prefix + std::to_string(first + i));
    if (spec_.hosts.size() + names.size() > static_cast<std::size_t>(kMostHosts)) throw entry.wrong("count", fmt::format("a cluster has at most {} hosts here.", kMostHosts));
    const std::string rack = entry.text("rack");
    const int per_rack = entry.integer("per_rack", 0, 1, kMostHosts);
    if (per_rack > 0 && !rack.empty()) throw entry.wrong("rack", "hosts have either a rack or a number per_rack.");
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) throw entry.wrong("names", "a host has an empty name.");
      if (!by_name_.try_emplace(names[i], spec_.hosts.size()).second) throw entry.wrong(entry.has("names") ? "names" : "count", "two hosts are named " + printable(names[i]) + ".");
      ClusterHost host;
      host.name = names[i];
      host.kind = kind;
      host.rack = per_rack > 0 ? "rack" + std::to_string(racks_ + i / static_cast<std::size_t>(per_rack)) : rack;
      spec_.hosts.push_back(std::move(host));
    }
    if (per_rack > 0) racks_ += (names.size() + static_cast<std::size_t>(per_rack) - 1) / static_cast<std::size_t>(per_rack);
    for (ClusterHost* host : hosts_named(entry, "out")) host->out = true;
    entry.finish();
  }

  std::vector<ClusterHost*> hosts_named(Settings& entry, std::string_view key) {
    std::vector<ClusterHost*> all;
    for (const std::string& name : names_setting(entry, key)) {
      const auto found = by_name_.find(name);
      if (found == by_name_.end()) throw entry.wrong(key, "there is no host " + printable(name) + " above.");
      all.push_back(&spec_.hosts[found->second]);
    }
    return all;
  }

  void read_override(Settings& entry) {
    const auto hosts = hosts_named(entry, "hosts");
    if (hosts.empty()) throw entry.wrong("hosts", "an override needs hosts.");
    const std::string port = entry.text("link");
    const std::vector<int> gpus = entry.integers("gpus_out", 0, 65535);
    const std::vector<int> nics = entry.integers("nics_out", 0, 65535);
    const bool out = entry.truth("out", false);
    if (port.empty() && gpus.empty() && nics.empty() && !entry.has("out") && !entry.has("rack") && !entry.has("template")) {
      throw entry.wrong("hosts", "this override changes nothing.", "Give gpus_out, nics_out, link, rack, template or out.");
    }
    for (ClusterHost* host : hosts) {
      if (entry.has("rack")) host->rack = entry.text("rack");
      Taken& taken = taken_[host];
      if (taken.whole == nullptr) taken.whole = host->kind;
      if (entry.has("template")) taken.whole = kind_of(entry, entry.text("template"));
      if (!port.empty()) host->port = &network_class(entry, "link", port);
      host->out = host->out || out;
      taken.gpus.insert(gpus.begin(), gpus.end());
      taken.nics.insert(nics.begin(), nics.end());
      host->kind = taken.whole;
      if (taken.gpus.empty() && taken.nics.empty()) continue;
      auto& kind = less_[{taken.whole, taken.gpus, taken.nics}];
      try {
        if (kind == nullptr) kind = std::make_shared<const HostTemplate>(without(*taken.whole, {taken.gpus.begin(), taken.gpus.end()}, {taken.nics.begin(), taken.nics.end()}));
      } catch (const Error& failure) {
        throw entry.wrong(gpus.empty() ? "nics_out" : "gpus_out", failure.sentence(), failure.remedy());
      }
      host->kind = kind;
    }
    entry.finish();
  }

  void read_network() {
    ClusterNetwork& network = spec_.network;
    const auto tables = settings_.tables("network").size();
    if (tables > 1) throw settings_.wrong("network", "a cluster has one [network].");
    bool wanted = false;
    for (Settings& entry : settings_.tables("network")) {
      wanted = true;
      const std::string port = entry.text("link");
      if (!port.empty()) network.port = &network_class(entry, "link", port);
      network.nics = entry.integer("nics", 0, 1, 1024);
      network.rails = entry.truth("rails", false);
      if (network.nics > 0) {
        for (const ClusterHost& host : spec_.hosts) {
          if (host.kind->ports.size() >= static_cast<std::size_t>(network.nics)) continue;
          reading_.notes.push_back({entry.line(), 0, fmt::format("{} has {} NICs, fewer than nics = {}.", host.name, host.kind->ports.size(), network.nics)});
          break;
        }
      }
      entry.finish();
    }
    static constexpr std::string_view kNames[] = {"leaf", "spine", "core"};
    for (Settings& entry : settings_.tables("level")) {
      wanted = true;
      ClusterLevel level;
      const std::size_t number = network.levels.size();
      level.name = entry.text("name", number < 3 ? std::string(kNames[number]) : "level" + std::to_string(number) + "-");
      if (number == 0) {
        level.by_rack = entry.truth("by_rack", false);
        level.below = entry.integer("hosts", 0, 1, kMostHosts);
        if (level.by_rack && level.below > 0) throw entry.wrong("by_rack", "a leaf holds either a rack or a number of hosts.");
        const auto lost = std::find_if(spec_.hosts.begin(), spec_.hosts.end(), [](const ClusterHost& host) { return host.rack.empty(); });
        if (level.by_rack && lost != spec_.hosts.end()) throw entry.wrong("by_rack", printable(lost->name) + " is in no rack, so no leaf is its own.", "Give its [[host]] a rack or per_rack.");
      } else {
        level.below = entry.integer("groups", 0, 1, kMostHosts);
      }
      level.switches = entry.integer("switches", 1, 1, 4096);
      if (number == 0 && network.rails && entry.has("switches")) throw entry.wrong("switches", "rails have a leaf for each NIC.", "Leave switches out, or set rails to false.");
      level.oversubscription = entry.number("oversubscription", 1, 0.01, 1000);
      level.uplinks = entry.integer("uplinks", 0, 1, 65536);
      if (level.uplinks > 0 && entry.has("oversubscription")) throw entry.wrong("uplinks", "a level has either oversubscription or a number of uplinks.");
      const std::string up = entry.text("uplink");
      if (!up.empty()) level.uplink = &network_class(entry, "uplink", up);
      if (up.empty() == false && level.uplinks == 0) throw entry.wrong("uplink", "uplink needs the number of uplinks.");
      entry.finish();
      network.levels.push_back(std::move(level));
    }
    if (!network.levels.empty() && (network.levels.back().uplinks > 0 || network.levels.back().oversubscription != 1)) {
      throw unreadable(file_, 0, 0, "the last [[level]] has nothing above it, so it has neither oversubscription nor uplinks.", "Add the [[level]] above it.");
    }
    const bool listed = settings_.has("link") || settings_.has("switch");
    if (network.levels.empty() && (wanted || (spec_.hosts.size() > 1 && !listed))) {
      network.levels.push_back({.name = "leaf"});
      const bool nics = std::any_of(spec_.hosts.begin(), spec_.hosts.end(), [](const ClusterHost& host) { return !host.kind->ports.empty(); });
      if (!nics) reading_.notes.push_back({0, 0, "no host has a NIC, so no network joins them."});
      else if (!wanted) reading_.notes.push_back({0, 0, "no [network] is described: one switch joins the NICs of all hosts."});
    }
  }

  static const LinkClass& network_class(const Settings& at, std::string_view key, const std::string& name) {
    const LinkClass& of = class_setting(at, key, name);
    if (of.kind != LinkKind::kEthernet && of.kind != LinkKind::kInfiniband) throw at.wrong(key, printable(name) + " is no network.");
    return of;
  }

  void read_switch(Settings& entry) {
    Device device = read_device(entry);
    if (device.kind != DeviceKind::kSwitch && device.kind != DeviceKind::kNvSwitch) throw entry.wrong("kind", "outside of hosts stand switches and nvswitches only.");
    if (find_outside(device.name) >= 0 || by_name_.contains(device.name)) throw entry.wrong("name", "two devices are named " + printable(device.name) + ".");
    device.host = -1;
    outside_.emplace(device.name, add_device(reading_.wiring, device));
    entry.finish();
  }

  [[nodiscard]] int find_outside(const std::string& name) {
    if (outside_.empty()) {
      for (std::size_t i = 0; i < reading_.wiring.devices.size(); ++i) {
        const Device& device = reading_.wiring.devices[i];
        if (device.host == -1 || device.kind == DeviceKind::kHost) outside_.emplace(device.name, static_cast<int>(i));
      }
    }
    const auto found = outside_.find(name);
    return found == outside_.end() ? -1 : found->second;
  }

  /// One end of a link: a switch or host by name, or [host, device].
  int link_end(Settings& entry, std::string_view key) {
    const std::vector<std::string> names = entry.texts(key);
    if (names.empty() || names.size() > 2) throw entry.wrong(key, fmt::format("{} must be a switch's name or [host, device].", key));
    int found = find_outside(names[0]);
    if (found >= 0 && names.size() == 2) {
      const int host = reading_.wiring.devices[static_cast<std::size_t>(found)].host;
      const auto& devices = reading_.wiring.devices;
      std::size_t at = static_cast<std::size_t>(found) + 1;
      while (at < devices.size() && devices[at].host == host && devices[at].name != names[1]) ++at;
      found = host >= 0 && at < devices.size() && devices[at].host == host ? static_cast<int>(at) : -1;
    }
    if (found < 0) throw entry.wrong(key, "there is no device " + printable(join(names, "/")) + ".");
    return found;
  }

  void read_links() {
    for (Settings& entry : settings_.tables("link")) {
      const int a = link_end(entry, "a");
      const int b = link_end(entry, "b");
      if (a == b) throw entry.wrong("b", "a link joins two devices.");
      add_link_setting(reading_.wiring, a, b, entry);
      entry.finish();
    }
  }

  Settings settings_;
  std::string file_;
  Reading reading_;
  ClusterSpec spec_;
  std::map<std::string, std::shared_ptr<const HostTemplate>> kinds_;
  std::map<std::string, std::size_t> by_name_;
  /// What overrides leave of a host, by the numbers of its whole kind.
  struct Taken {
    std::shared_ptr<const HostTemplate> whole;
    std::set<int> gpus, nics;
  };
  std::map<const ClusterHost*, Taken> taken_;
  std::map<std::tuple<std::shared_ptr<const HostTemplate>, std::set<int>, std::set<int>>, std::shared_ptr<const HostTemplate>> less_;
  std::map<std::string, int> outside_;
  std::size_t racks_ = 0;
};

constexpr std::string_view kFolders[] = {"hosts/", "clusters/"};

}  // namespace

Reading read_cluster(std::string_view text, std::string_view file) { return ClusterReader(text, file).read(); }

bool looks_like_cluster(std::string_view text, std::string_view file) {
  if (file.ends_with(".toml")) return true;
  for (const TextLine& line : text_lines(text)) {
    const std::string_view words = trimmed(line.text);
    for (std::string_view header : {"[[host]]", "[[template]]", "[[bridge]]", "[[numa]]", "[[device]]", "[[gpus]]", "[gpus]", "[network]"}) {
      if (words == header) return true;
    }
  }
  return false;
}

std::vector<ShippedMachine> shipped_machines() {
  std::vector<ShippedMachine> all;
  for (std::string_view folder : kFolders) {
    const std::size_t first = all.size();
    for (const EmbeddedFile& file : embedded_files()) {
      if (!file.name.starts_with(folder)) continue;
      const std::string name(file.name.substr(folder.size(), file.name.size() - folder.size() - 5));
      all.push_back({name, Settings(file.text, file.name).text("about")});
    }
    std::sort(all.begin() + static_cast<std::ptrdiff_t>(first), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  }
  return all;
}

std::optional<Reading> read_shipped(std::string_view name) {
  for (std::string_view folder : kFolders) {
    for (const EmbeddedFile& file : embedded_files()) {
      if (file.name.starts_with(folder) && file.name.substr(folder.size()) == std::string(name) + ".toml") return read_cluster(file.text, file.name);
    }
  }
  return std::nullopt;
}

}  // namespace wirewise
