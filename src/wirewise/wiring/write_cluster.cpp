// A reading as a cluster.toml: hosts that are alike share a template that lists devices and links one by one, so that reading it back gives the
// same graph and facts, to the bit, whatever it was read from.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/write.h"

namespace wirewise {
namespace {

/// A basic string of TOML; what is no UTF-8 becomes visible text.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : is_utf8(text) ? text : printable(text)) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (code < 0x20 || code == 0x7f) {
      out += fmt::format("\\u{:04X}", code);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string device_text(const Device& device, bool port) {
  std::string text = fmt::format("{{ name = {}, kind = \"{}\"", quoted(device.name), name_of(device.kind));
  if (device.numa >= 0) text += fmt::format(", numa = {}", device.numa);
  if (device.level > 0) text += fmt::format(", level = {}", device.level);
  if (!device.placed) text += ", placed = false";
  for (const auto& [key, value] : {std::pair{"pci", &device.pci}, std::pair{"model", &device.model}, std::pair{"cpus", &device.cpus}, std::pair{"rack", &device.rack}}) {
    if (!value->empty()) text += fmt::format(", {} = {}", key, quoted(*value));
  }
  if (device.memory > 0) text += fmt::format(", memory_gib = {}", static_cast<double>(device.memory) / static_cast<double>(kGiB));
  if (device.nvls) text += ", nvls = true";
  if (!port && device.kind == DeviceKind::kNic) text += ", network = false";
  return text + " }";
}

/// In the unit that people read, or exactly under another key where its rounding would change the figure. `back`: as the unit's key is read.
std::string figure(std::string_view key, double in_unit, double back, std::string_view exact, double value) {
  return back == value ? fmt::format("{} = {}", key, in_unit) : fmt::format("{} = {}", exact, value);
}

/// Without its ends: the class it was made of where that says all, else every figure.
std::string figures(const Link& link) {
  for (const LinkClass& of : link_classes()) {
    if (of.kind != link.kind || link.lanes < 1) continue;
    const Link made = make_link(of, link.lanes, Provenance::kSpec);
    if (made.source != link.source || made.generation != link.generation || made.beta != link.beta || made.alpha != link.alpha || made.spec != link.spec) continue;
    std::string text = fmt::format("class = {}", quoted(of.name));
    if (link.lanes != 1) text += fmt::format(", units = {}", link.lanes);
    if (link.provenance != Provenance::kSpec) text += fmt::format(", provenance = \"{}\"", name_of(link.provenance));
    return text;
  }
  std::string text = fmt::format("kind = \"{}\", {}, {}, provenance = \"{}\"", name_of(link.kind), figure("beta_GBps", link.beta / 1e9, link.beta / 1e9 * 1e9, "beta_Bps", link.beta),
                                 figure("alpha_us", link.alpha * 1e6, link.alpha * 1e6 / 1e6, "alpha_s", link.alpha), name_of(link.provenance));
  if (!link.source.empty()) text += ", source = " + quoted(link.source);
  if (link.lanes > 0) text += fmt::format(", lanes = {}", link.lanes);
  if (link.generation > 0) text += fmt::format(", generation = {}", link.generation);
  if (link.spec > 0) text += ", " + figure("spec_GBps", link.spec / 1e9, link.spec / 1e9 * 1e9, "spec_Bps", link.spec);
  return text;
}

/// What a description says of itself, then the facts that have no key of their own.
std::string heading(const Reading& reading) {
  std::string text, about, others;
  std::vector<std::string> sources;
  bool named = false;
  for (const Fact& fact : reading.facts) {
    const bool own = fact.subject == "cluster";
    if (own && fact.name == "name" && !named) {
      text += "name = " + quoted(fact.value) + "\n";
      named = true;
    } else if (own && fact.name == "about" && about.empty()) {
      about = "about = " + quoted(fact.value) + "\n";
    } else if (own && fact.name == "source") {
      sources.push_back("  " + quoted(fact.value) + ",\n");
    } else {
      others += fmt::format("  {{ subject = {}, name = {}, value = {} }},\n", quoted(fact.subject), quoted(fact.name), quoted(fact.value));
    }
  }
  text += about;
  if (!sources.empty()) text += "source = [\n" + join(sources, "") + "]\n";
  if (reading.partial) text += "partial = true\n";
  return others.empty() ? text : text + "fact = [\n" + others + "]\n";
}

class Writer {
 public:
  Writer(const Wiring& wiring, std::string heading) : wiring_(wiring), heading_(std::move(heading)) {
    for (const Link& link : wiring_.links) figures_.push_back(figures(link));
  }

  std::string write() {
    for (std::size_t i = 0; i < wiring_.devices.size(); ++i) {
      const Device& device = wiring_.devices[i];
      if (device.host < 0) continue;
      if (static_cast<std::size_t>(device.host) >= hosts_.size()) hosts_.resize(static_cast<std::size_t>(device.host) + 1);
      Host& host = hosts_[static_cast<std::size_t>(device.host)];
      if (device.kind == DeviceKind::kHost) host.itself = static_cast<int>(i);
      else host.devices.push_back(static_cast<int>(i));
    }
    for (const Host& host : hosts_) {
      if (host.itself < 0) throw bad_input("a cluster is described by whole hosts, but this graph has parts of a host without the host.", "Write it as json.");
    }
    pair_links();
    std::vector<std::pair<std::string, std::vector<int>>> kinds;  // a template's body and its hosts, in the order of the first
    std::map<std::string, std::size_t> kind_of;
    std::vector<std::size_t> kind_of_host;
    for (const Host& host : hosts_) {
      std::string body = host_body(host);
      const auto [found, fresh] = kind_of.try_emplace(body, kinds.size());
      if (fresh) kinds.push_back({std::move(body), {}});
      kind_of_host.push_back(found->second);
    }
    std::string text = "# Written by wirewise topo --to cluster.\n" + heading_ + outside();
    for (std::size_t i = 0; i < kinds.size(); ++i) text += fmt::format("\n[[template]]\nname = \"kind{}\"\n{}", i, kinds[i].first);
    for (std::size_t i = 0; i < hosts_.size();) {
      // Hosts of one kind and rack, one after another, stand together.
      std::vector<std::string> names;
      const std::string& rack = at(hosts_[i].itself).rack;
      const std::size_t first = i;
      for (; i < hosts_.size() && kind_of_host[i] == kind_of_host[first] && at(hosts_[i].itself).rack == rack; ++i) names.push_back(quoted(at(hosts_[i].itself).name));
      text += fmt::format("\n[[host]]\ntemplate = \"kind{}\"\nliteral_names = [{}]\n", kind_of_host[first], join(names, ", "));
      if (!rack.empty()) text += "rack = " + quoted(rack) + "\n";
    }
    return text;
  }

 private:
  struct Host {
    int itself = -1;
    std::vector<int> devices, links;
  };
  struct Pair {
    int link = -1;
    bool both = false;
  };

  [[nodiscard]] const Device& at(int device) const { return wiring_.devices[static_cast<std::size_t>(device)]; }

  /// Links with one like them back are written once.
  void pair_links() {
    std::map<std::pair<int, int>, std::vector<int>> open;
    for (std::size_t i = 0; i < wiring_.links.size(); ++i) {
      const Link& link = wiring_.links[i];
      auto& back = open[{link.to, link.from}];
      const auto twin = std::find_if(back.begin(), back.end(), [&](int other) { return figures_[static_cast<std::size_t>(other)] == figures_[i]; });
      if (twin == back.end()) {
        open[{link.from, link.to}].push_back(static_cast<int>(i));
        pair_of_[static_cast<int>(i)] = {static_cast<int>(i), false};
      } else {
        pair_of_[*twin].both = true;
        back.erase(twin);
      }
    }
    for (const auto& [first, pair] : pair_of_) {
      const Link& link = wiring_.links[static_cast<std::size_t>(first)];
      const int host = at(link.from).host;
      if (host >= 0 && host == at(link.to).host) hosts_[static_cast<std::size_t>(host)].links.push_back(first);
      else outer_.push_back(first);
    }
    for (int first : outer_) {
      ports_.insert({wiring_.links[static_cast<std::size_t>(first)].from, true});
      ports_.insert({wiring_.links[static_cast<std::size_t>(first)].to, true});
    }
  }

  std::string host_body(const Host& host) const {
    std::string text;
    const Device& itself = at(host.itself);
    for (const auto& [key, value] : {std::pair{"model", &itself.model}, std::pair{"cpus", &itself.cpus}, std::pair{"pci", &itself.pci}}) {
      if (!value->empty()) text += fmt::format("{} = {}\n", key, quoted(*value));
    }
    if (itself.memory > 0) text += fmt::format("memory_gib = {}\n", static_cast<double>(itself.memory) / static_cast<double>(kGiB));
    text += "device = [\n";
    for (int device : host.devices) text += "  " + device_text(at(device), ports_.contains(device)) + ",\n";
    text += "]\nlink = [\n";
    for (int first : host.links) {
      const Link& link = wiring_.links[static_cast<std::size_t>(first)];
      text += "  { ";
      if (link.from != host.itself) text += "a = " + quoted(at(link.from).name) + ", ";
      if (link.to != host.itself) text += "b = " + quoted(at(link.to).name) + ", ";
      text += figures_[static_cast<std::size_t>(first)] + (pair_of_.at(first).both ? "" : ", one_way = true") + " },\n";
    }
    return text + "]\n";
  }

  /// Keys of the whole file, which TOML has before all tables.
  std::string outside() const {
    std::string switches, links;
    for (const Device& device : wiring_.devices) {
      if (device.host < 0) switches += "  " + device_text(device, true) + ",\n";
    }
    const auto end = [&](int device) {
      const Device& one = at(device);
      if (one.host < 0 || one.kind == DeviceKind::kHost) return quoted(one.name);
      return "[" + quoted(at(hosts_[static_cast<std::size_t>(one.host)].itself).name) + ", " + quoted(one.name) + "]";
    };
    for (int first : outer_) {
      const Link& link = wiring_.links[static_cast<std::size_t>(first)];
      links += "  { a = " + end(link.from) + ", b = " + end(link.to) + ", " + figures_[static_cast<std::size_t>(first)] + (pair_of_.at(first).both ? "" : ", one_way = true") + " },\n";
    }
    std::string ranks;
    for (int device : wiring_.rank_device) ranks += "  { on = " + end(device) + " },\n";
    if (!ranks.empty()) ranks = "rank = [\n" + ranks + "]\n";
    if (switches.empty() && links.empty() && hosts_.size() < 2) return ranks;
    return "switch = [\n" + switches + "]\n" + (links.empty() ? "" : "link = [\n" + links + "]\n") + ranks;
  }

  const Wiring& wiring_;
  std::string heading_;
  std::vector<std::string> figures_;  // of each link
  std::vector<Host> hosts_;
  std::map<int, Pair> pair_of_;  // by the first of both links
  std::vector<int> outer_;
  std::map<int, bool> ports_;
};

}  // namespace

std::string write_cluster(const Reading& reading) { return Writer(reading.wiring, heading(reading)).write(); }

std::string write_cluster(const Wiring& wiring) { return Writer(wiring, "").write(); }

}  // namespace wirewise
