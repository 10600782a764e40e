// Two ways to write a host: by what it has (gpus, nics, nvlink, numa, bridge with switches), as people do, or device by device and link by
// link, as write_cluster() does for a graph that was read from elsewhere.
#include "wirewise/wiring/host_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "wirewise/base/nearest.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/embedded.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/link_settings.h"
#include "wirewise/wiring/path.h"

namespace wirewise {
namespace {

constexpr int kMostUnits = 1024;   // GPUs or NICs of one host
constexpr int kMostDepth = 8;      // PCIe switches under each other

class TemplateReader {
 public:
  TemplateReader(Settings& settings, std::string name) : settings_(settings) {
    host_.name = std::move(name);
    Device host;
    host.name = host_.name;
    host.host = 0;
    add_device(host_.wiring, std::move(host));
  }

  HostTemplate read() {
    host_.about = settings_.text("about");
    host_.sources = settings_.texts("source");
    host_.wiring.devices[0].model = settings_.text("model");
    if (settings_.has("device")) {
      Device& host = host_.wiring.devices[0];
      host.cpus = settings_.text("cpus");
      host.pci = settings_.text("pci");
      host.memory = static_cast<Bytes>(settings_.number("memory_gib", 0, 0, 1e9) * static_cast<double>(kGiB));
      listed();
    } else {
      composed();
    }
    settings_.finish();
    return std::move(host_);
  }

 private:
  struct Slot {
    int device = -1;
    Link link;          // to what it hangs on
    bool used = false;
  };

  [[nodiscard]] static const LinkClass& class_of(Settings& at, std::string_view key, const std::string& name) { return class_setting(at, key, name); }

  int add(Device device) {
    device.host = 0;
    const auto twin = std::find_if(host_.wiring.devices.begin() + 1, host_.wiring.devices.end(), [&](const Device& other) { return other.name == device.name; });
    if (twin != host_.wiring.devices.end()) throw settings_.wrong("", "two devices of " + printable(host_.name) + " are named " + printable(device.name) + ".");
    return add_device(host_.wiring, std::move(device));
  }

  void composed() {
    settings_.expect({"host", "name", "about", "source", "model", "device", "gpus", "nics", "sockets", "numa", "bridge", "nvlink", "measured"});
    read_gpus();
    read_nics();
    const std::string between = settings_.text("sockets");
    if (!between.empty() && class_of(settings_, "sockets", between).kind != LinkKind::kSockets) throw settings_.wrong("sockets", printable(between) + " doesn't join sockets.");
    const Link sockets = sockets_link(between, Provenance::kSpec);
    read_numa(sockets);
    for (Settings& bridge : settings_.tables("bridge")) read_bridge(bridge);
    for (const auto* slots : {&gpus_, &nics_}) {
      for (std::size_t i = 0; i < slots->size(); ++i) {
        if ((*slots)[i].used) continue;
        throw settings_.wrong(slots == &gpus_ ? "gpus" : "nics", fmt::format("{} {} hangs on no bridge.", slots == &gpus_ ? "GPU" : "NIC", i),
                              fmt::format("Name it in the {} of a [[bridge]] or of a switch in one.", slots == &gpus_ ? "gpus" : "nics"));
      }
    }
    read_nvlink();
  }

  void read_gpus() {
    for (Settings& kind : settings_.tables("gpus")) {
      const int count = kind.integer("count", 1, 1, kMostUnits);
      Device device;
      device.kind = DeviceKind::kGpu;
      device.model = kind.text("model");
      device.memory = static_cast<Bytes>(kind.number("memory_gib", 0, 0, 1 << 20) * static_cast<double>(kGiB));
      const Link link = attach(kind);
      const std::vector<std::string> addresses = kind.texts("pci");
      if (!addresses.empty() && addresses.size() != static_cast<std::size_t>(count)) throw kind.wrong("pci", fmt::format("pci lists {} addresses, but count is {}.", addresses.size(), count));
      for (int i = 0; i < count; ++i) {
        device.name = "GPU" + std::to_string(gpus_.size());
        device.pci = addresses.empty() ? "" : addresses[static_cast<std::size_t>(i)];
        gpus_.push_back({add(device), link, false});
      }
      kind.finish();
    }
  }

  void read_nics() {
    for (Settings& kind : settings_.tables("nics")) {
      const int count = kind.integer("count", 1, 1, kMostUnits);
      const std::string port = kind.text("link");
      if (port.empty()) throw kind.wrong("link", "nics need their link.", "See wirewise topo links for the names.");
      const LinkKind network = class_of(kind, "link", port).kind;
      if (network != LinkKind::kEthernet && network != LinkKind::kInfiniband) throw kind.wrong("link", printable(port) + " is no network.");
      const bool joins = kind.truth("network", true);
      const std::vector<std::string> names = kind.texts("names");
      if (!names.empty() && names.size() != static_cast<std::size_t>(count)) throw kind.wrong("names", fmt::format("names lists {} NICs, but count is {}.", names.size(), count));
      Device device;
      device.kind = DeviceKind::kNic;
      device.model = kind.text("model", port);
      const Link link = attach(kind);
      for (int i = 0; i < count; ++i) {
        device.name = names.empty() ? "NIC" + std::to_string(nics_.size()) : names[static_cast<std::size_t>(i)];
        nics_.push_back({add(device), link, false});
        if (!joins) continue;
        if (host_.port_class.empty()) host_.port_class = port;
        if (host_.port_class == port) host_.ports.push_back(nics_.back().device);
      }
      kind.finish();
    }
  }

  /// What joins a GPU, NIC or switch to what it hangs on: PCIe of a generation and width, or a class by its name.
  Link attach(Settings& at) {
    const std::string name = at.text("host_link");
    const int generation = at.integer("pcie", 0, 0, 8);
    const int lanes = at.integer("lanes", 16, 1, 32);
    if (name.empty()) return pcie_link(generation, lanes, Provenance::kSpec);
    for (const char* key : {"pcie", "lanes"}) {
      if (at.has(key)) throw at.wrong(key, fmt::format("what hangs on {} has no {} of its own.", printable(name), key), "Give either host_link, or pcie and lanes.");
    }
    return make_link(class_of(at, "host_link", name), 1, Provenance::kSpec);
  }

  void read_numa(const Link& sockets) {
    std::vector<Settings> tables = settings_.tables("numa");
    std::map<int, int> nodes_of, socket_device;
    std::vector<int> socket_of;
    for (Settings& numa : tables) {
      socket_of.push_back(numa.integer("socket", static_cast<int>(socket_of.size()), 0, 63));
      ++nodes_of[socket_of.back()];
    }
    for (std::size_t i = 0; i < tables.size(); ++i) {
      Settings& numa = tables[i];
      Device device;
      device.kind = DeviceKind::kNumaNode;
      device.numa = numa.integer("node", static_cast<int>(i), 0, 1023);
      device.name = "numa" + std::to_string(device.numa);
      device.cpus = cpus_of(numa);
      device.memory = static_cast<Bytes>(numa.number("memory_gib", 0, 0, 1 << 24) * static_cast<double>(kGiB));
      if (numas_.contains(device.numa)) throw numa.wrong("node", fmt::format("NUMA node {} is described twice.", device.numa));
      int parent = 0;
      if (nodes_of[socket_of[i]] > 1 && nodes_of.size() > 1) {
        auto [socket, fresh] = socket_device.try_emplace(socket_of[i], -1);
        if (fresh) {
          Device chip;
          chip.name = "socket" + std::to_string(socket_of[i]);
          chip.kind = DeviceKind::kSocket;
          socket->second = add(chip);
          add_link(host_.wiring, 0, socket->second, sockets);
        }
        parent = socket->second;
      }
      const int added = add(device);
      add_link(host_.wiring, parent, added, sockets);
      numas_[device.numa] = added;
      // What hangs on the node itself, with no PCIe between: a GPU by NVLink-C2C.
      place(numa, added, device.numa);
      numa.finish();
    }
  }

  /// CPUs as Linux lists them, with blanks or without.
  [[nodiscard]] static std::string cpus_of(Settings& numa) {
    std::string list = numa.text("cpus");
    const std::string said = list;
    std::erase_if(list, [](char c) { return c == ' ' || c == '\t'; });
    if (list.empty()) return list;
    constexpr long long kMostCpu = (1 << 16) - 1;
    for (const std::string& part : split(list, ',')) {
      const auto dash = part.find('-');
      const auto first = parse_integer(std::string_view(part).substr(0, dash));
      const auto last = dash == std::string::npos ? first : parse_integer(std::string_view(part).substr(dash + 1));
      if (!first || !last || *first < 0 || *last < *first || *last > kMostCpu) throw numa.wrong("cpus", "\"" + printable(said) + "\" lists no CPUs.", "Write them as Linux does: \"0-23,48-71\".");
    }
    return list;
  }

  void read_bridge(Settings& bridge) {
    if (numas_.empty()) {
      Device device;
      device.kind = DeviceKind::kNumaNode;
      device.name = "numa0";
      device.numa = 0;
      numas_[0] = add(device);
      add_link(host_.wiring, 0, numas_[0], sockets_link("", Provenance::kAssumed));
    }
    const int numa = bridge.integer("numa", numas_.begin()->first, 0, 1023);
    if (!numas_.contains(numa)) throw bridge.wrong("numa", fmt::format("there is no NUMA node {}.", numa), "Describe it in a [[numa]] before.");
    Device device;
    device.name = bridge.text("name", "bridge" + std::to_string(bridges_++));
    device.kind = DeviceKind::kHostBridge;
    device.numa = numa;
    const int added = add(device);
    const std::size_t first = host_.wiring.links.size();
    place(bridge, added, numa);
    for (Settings& below : bridge.tables("switch")) read_switch(below, added, numa, 1);
    bridge.finish();
    // A root complex carries what its ports do, all at once.
    Link whole = pcie_link(0, 0, Provenance::kAssumed);
    int ports = 0;
    for (std::size_t i = first; i < host_.wiring.links.size(); ++i) {
      const Link& link = host_.wiring.links[i];
      if (link.from != added || link.kind != LinkKind::kPcie) continue;
      if (ports++ == 0) {
        whole = link;
        continue;
      }
      whole.beta += link.beta;
      whole.spec += link.spec;
      whole.provenance = less_certain(whole.provenance, link.provenance);
      whole.lanes = whole.generation = 0;  // of no slot
      whole.source = "as wide as its ports together";
    }
    add_link(host_.wiring, numas_[numa], added, whole);
  }

  void read_switch(Settings& settings, int parent, int numa, int depth) {
    if (depth > kMostDepth) throw settings.wrong("", fmt::format("PCIe switches hang under each other more than {} deep.", kMostDepth));
    Device device;
    device.name = settings.text("name", "switch" + std::to_string(switches_++));
    device.kind = DeviceKind::kPcieSwitch;
    device.model = settings.text("model");
    device.numa = numa;
    const int added = add(device);
    const bool inside = settings.truth("one_chip", false);
    if (inside && depth == 1) throw settings.wrong("one_chip", "there is no switch above that this one could be one chip with.", "Leave it out, or write it in a switch of a switch.");
    const std::size_t up = host_.wiring.links.size();
    add_link(host_.wiring, parent, added, attach(settings));
    place(settings, added, numa);
    for (Settings& below : settings.tables("switch")) read_switch(below, added, numa, depth + 1);
    settings.finish();
    if (!inside) return;
    std::vector<Link> below;
    for (std::size_t i = up + 2; i < host_.wiring.links.size(); ++i) {
      if (host_.wiring.links[i].from == added) below.push_back(host_.wiring.links[i]);
    }
    Link whole = inside_chip_link(below);
    for (std::size_t i = up; i < up + 2; ++i) {
      Link& link = host_.wiring.links[i];
      whole.from = link.from;
      whole.to = link.to;
      link = whole;
    }
  }

  void place(Settings& settings, int parent, int numa) {
    const auto hang = [&](std::string_view key, std::vector<Slot>& slots, std::string_view what) {
      for (int number : settings.integers(key, 0, kMostUnits)) {
        if (static_cast<std::size_t>(number) >= slots.size()) throw settings.wrong(key, fmt::format("there is no {} {}: the host has {}.", what, number, slots.size()));
        Slot& slot = slots[static_cast<std::size_t>(number)];
        if (slot.used) throw settings.wrong(key, fmt::format("{} {} hangs in two places.", what, number));
        slot.used = true;
        host_.wiring.devices[static_cast<std::size_t>(slot.device)].numa = numa;
        host_.wiring.devices[static_cast<std::size_t>(slot.device)].cpus = host_.wiring.devices[static_cast<std::size_t>(numas_[numa])].cpus;
        add_link(host_.wiring, parent, slot.device, slot.link);
      }
    };
    hang("gpus", gpus_, "GPU");
    hang("nics", nics_, "NIC");
  }

  void read_nvlink() {
    std::vector<Settings> tables = settings_.tables("nvlink");
    if (tables.empty()) return;
    if (tables.size() > 1) throw tables[1].wrong("", "a host has one [nvlink].");
    Settings& nvlink = tables.front();
    const int generation = nvlink.integer("generation", 0, 0, 8);
    const std::string name = nvlink.text("link");
    const int links = nvlink.integer("links", 1, 1, 64);
    const std::string reach = nvlink.text("switch");
    const bool nvls = nvlink.truth("nvls", false);
    const int hosts = nvlink.integer("hosts", 1, 1, 1024);
    const int gpus = static_cast<int>(gpus_.size());
    const LinkClass* of = name.empty() ? nullptr : &class_of(nvlink, "link", name);
    if (of != nullptr && nvlink.has("generation")) throw nvlink.wrong("generation", "[nvlink] has either a link or a generation.");
    if (nvlink.has("pairs") && !reach.empty()) throw nvlink.wrong("switch", "[nvlink] has either a switch or pairs.");
    if (!reach.empty() && !nvlink.has("links")) throw nvlink.wrong("switch", "[nvlink] needs links, the number of NVLinks that each GPU has to the switch.");
    for (const char* key : {"links", "nvls", "hosts"}) {
      if (reach.empty() && nvlink.has(key) && (key != std::string_view("nvls") || nvls)) throw nvlink.wrong(key, fmt::format("{} goes with a switch of NVLinks; pairs have theirs in each list.", key), "Leave it out, or give switch.");
    }
    if (reach == "rack" && !nvlink.has("hosts")) throw nvlink.wrong("switch", "the switch of a rack needs hosts, the number that it joins.", "GB200 NVL72 has hosts = 18.");
    if (reach == "host" && nvlink.has("hosts")) throw nvlink.wrong("hosts", "hosts goes with switch = \"rack\"; a host's own switch joins one.");
    std::set<std::pair<int, int>> joined;
    const auto bundle = [&](int count) { return of == nullptr ? nvlink_link(generation, count, Provenance::kSpec) : make_link(*of, count, Provenance::kSpec); };
    for (const auto& pair : nvlink.tuples("pairs", 3, 0, kMostUnits)) {
      if (pair[0] >= gpus || pair[1] >= gpus || pair[0] == pair[1] || pair[2] < 1) throw nvlink.wrong("pairs", fmt::format("[{}, {}, {}] is no pair of two GPUs and their NVLinks.", pair[0], pair[1], pair[2]));
      if (!joined.insert(std::minmax(pair[0], pair[1])).second) throw nvlink.wrong("pairs", fmt::format("the pair of GPU {} and GPU {} stands there twice.", std::min(pair[0], pair[1]), std::max(pair[0], pair[1])), "Give it once: its links lead both ways.");
      add_link(host_.wiring, gpus_[static_cast<std::size_t>(pair[0])].device, gpus_[static_cast<std::size_t>(pair[1])].device, bundle(pair[2]));
    }
    if (reach == "host") {
      Device middle;
      middle.name = "nvswitch0";
      middle.kind = DeviceKind::kNvSwitch;
      middle.nvls = nvls;
      const int added = add(middle);
      for (const Slot& gpu : gpus_) add_link(host_.wiring, gpu.device, added, bundle(links));
    } else if (reach == "rack") {
      host_.domain_hosts = hosts;
      host_.domain_nvls = nvls;
      for (const Slot& gpu : gpus_) {
        host_.domain.push_back(bundle(links));
        host_.domain.back().from = gpu.device;
      }
    } else if (!reach.empty()) {
      throw nvlink.wrong("switch", "switch must be \"host\" or \"rack\", not \"" + printable(reach) + "\".");
    } else if (!nvlink.has("pairs")) {
      throw nvlink.wrong("switch", "[nvlink] needs a switch or pairs.");
    }
    nvlink.finish();
  }

  /// Device by device.
  void listed() {
    std::map<std::string, int, std::less<>> by_name{{"", 0}};  // a link's end without a name is the host
    for (Settings& entry : settings_.tables("device")) {
      Device device = read_device(entry);
      const bool joins = entry.truth("network", device.kind == DeviceKind::kNic);
      if (device.kind == DeviceKind::kHost || device.kind == DeviceKind::kSwitch) throw entry.wrong("kind", "a device of a host is no host and no network switch.");
      const std::string name = device.name;
      if (!by_name.try_emplace(name, static_cast<int>(host_.wiring.devices.size())).second) throw entry.wrong("name", "two devices are named " + printable(name) + ".");
      device.host = 0;
      const int added = add_device(host_.wiring, std::move(device));
      if (joins) host_.ports.push_back(added);
      entry.finish();
    }
    for (Settings& entry : settings_.tables("link")) {
      const auto end = [&](std::string_view key) {
        const std::string name = entry.text(key);
        const auto found = by_name.find(name);
        if (found == by_name.end()) throw entry.wrong(key, "there is no device " + printable(name) + " in this host.");
        return found->second;
      };
      const int a = end("a");
      const int b = end("b");
      if (a == b) throw entry.wrong("b", "a link joins two devices.");
      add_link_setting(host_.wiring, a, b, entry);
      entry.finish();
    }
  }

  Settings& settings_;
  HostTemplate host_;
  std::vector<Slot> gpus_, nics_;
  std::map<int, int> numas_;
  int bridges_ = 0, switches_ = 0;
};

}  // namespace

HostTemplate read_host_template(Settings& settings, std::string name) { return TemplateReader(settings, std::move(name)).read(); }

HostTemplate shipped_host(std::string_view name) {
  constexpr std::string_view kFolder = "hosts/", kEnd = ".toml";
  std::vector<std::string> known;
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.name.starts_with(kFolder)) continue;
    known.emplace_back(file.name.substr(kFolder.size(), file.name.size() - kFolder.size() - kEnd.size()));
    if (known.back() != name) continue;
    Settings settings(file.text, file.name);
    return read_host_template(settings, known.back());
  }
  throw bad_input("there is no kind of host named " + printable(name) + ".", suggest(name, known));
}

}  // namespace wirewise
