#include "wirewise/wiring/hwloc_document.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <pugixml.hpp>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include "wirewise/base/text.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostObjects = 200000;
constexpr std::size_t kMostDepth = 64;
constexpr long long kMostCpus = 65536, kMostNodes = 4096;

/// A set of CPUs or nodes, in hwloc's own form.
class Bits {
 public:
  Bits() : set_(hwloc_bitmap_alloc(), &hwloc_bitmap_free) {}
  void add(long long number) { hwloc_bitmap_set(set_.get(), static_cast<unsigned>(number)); }
  void add(const Bits& other) { hwloc_bitmap_or(set_.get(), set_.get(), other.set_.get()); }
  void keep(const Bits& other) { hwloc_bitmap_and(set_.get(), set_.get(), other.set_.get()); }
  /// Whether its first is the smaller.
  [[nodiscard]] bool before(const Bits& other) const { return hwloc_bitmap_first(set_.get()) < hwloc_bitmap_first(other.set_.get()); }
  [[nodiscard]] bool empty() const { return hwloc_bitmap_iszero(set_.get()) != 0; }
  [[nodiscard]] std::string text() const {
    char* made = nullptr;
    if (hwloc_bitmap_asprintf(&made, set_.get()) < 0) return "0x0";
    const std::unique_ptr<char, decltype(&std::free)> owner(made, &std::free);
    return made;
  }
  /// "0x0000000f,0xffffffff"; false when it is none, or larger than machines are.
  bool read(std::string_view text) {
    if (text.empty() || text.size() > 40000 || text.find_first_not_of("0123456789abcdefABCDEFx,.") != std::string_view::npos) return false;
    return hwloc_bitmap_sscanf(set_.get(), std::string(text).c_str()) == 0;
  }

 private:
  std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> set_;
};

/// What stays of an object. Those that hold CPUs have `inner`, their memory and their devices besides.
struct Object {
  std::string_view type;  // "Machine", "Package", "Group", "PU", "NUMANode", "Bridge", "PCIDev", "OSDev"
  pugi::xml_node from;
  long long number = 0;   // as the system numbers it
  Bits cpus, nodes, stated;
  bool states_cpus = false;
  std::vector<Object> memory, inner, devices;
};

/// As it may stand in a name: hwloc's own parser knows few escapes.
std::string plain(std::string_view text) {
  std::string made;
  for (const char c : text.substr(0, 1000)) {
    if (static_cast<unsigned char>(c) >= ' ' && c != 0x7f) made += c;
  }
  return made;
}

bool is_device(std::string_view type) { return type == "Bridge" || type == "PCIDev" || type == "OSDev"; }

class Document {
 public:
  explicit Document(const std::function<void(const pugi::xml_node&, const std::string&)>& refuse) : refuse_(refuse) {}

  std::string of(const pugi::xml_node& topology) {
    Object machine;
    machine.type = "Machine";
    machine.from = topology.child("object");
    const std::string_view type = machine.from.attribute("type").value();
    if (!machine.from) refuse_(topology, "there is no object.");
    if (type != "Machine" && type != "System") refuse_(machine.from, "the first object is no Machine.");
    if (machine.from.next_sibling("object")) refuse_(machine.from.next_sibling("object"), "there is a second machine.");
    read_children(machine.from, machine, 0);
    if (numbers_.empty()) refuse_(machine.from, "there is no CPU (an object of type PU).");
    if (nodes_.empty()) add_only_node(machine);
    Bits around;
    settle(machine, around);
    pugi::xml_document made;
    pugi::xml_node top = made.append_child("topology");
    top.append_attribute("version") = "2.0";
    write(machine, top);
    std::ostringstream out;
    out << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n";
    made.save(out, "  ", pugi::format_indent | pugi::format_no_declaration);
    return out.str();
  }

 private:
  long long number_of(const pugi::xml_node& from, long long most) {
    const auto number = parse_integer(from.attribute("os_index").value());
    if (!number || *number < 0 || *number >= most) refuse_(from, "a " + std::string(from.attribute("type").value()) + " has no os_index that a machine could have.");
    return number.value_or(0);
  }

  void read_children(const pugi::xml_node& from, Object& into, std::size_t depth) {
    for (const pugi::xml_node child : from.children("object")) read(child, into, depth + 1);
  }

  /// An object below one that holds CPUs.
  void read(const pugi::xml_node& from, Object& into, std::size_t depth) {
    count(from, depth);
    const std::string_view type = from.attribute("type").value();
    if (type == "PU") return read_cpu(from, into, depth);
    if (type == "NUMANode" || type == "NUMA") return read_node(from, into, depth);
    if (is_device(type)) return read_device(from, into, depth);
    if (type == "Misc") return;
    const bool socket = type == "Package" || type == "Socket";
    if (!socket && type != "Group" && type != "MemCache" && type != "Die" && type != "Core" && type != "Cache" && type != "Machine" && !type.ends_with("Cache")) {
      refuse_(from, printable(std::string(type.substr(0, 40))) + " is no type of object.");
    }
    const bool group = type == "Group" || type == "Die";
    if (!socket && !(group && holds_memory(from))) return read_children(from, into, depth);
    Object object;
    object.type = socket ? "Package" : "Group";
    object.from = from;
    read_children(from, object, depth);
    into.inner.push_back(std::move(object));
  }

  static bool holds_memory(const pugi::xml_node& from) {
    return std::any_of(from.begin(), from.end(), [](const pugi::xml_node& child) {
      const std::string_view type = child.attribute("type").value();
      return type == "NUMANode" || type == "MemCache";
    });
  }

  void read_cpu(const pugi::xml_node& from, Object& into, std::size_t depth) {
    Object cpu;
    cpu.type = "PU";
    cpu.from = from;
    cpu.number = number_of(from, kMostCpus);
    if (!numbers_.insert(cpu.number).second) refuse_(from, "CPU " + std::to_string(cpu.number) + " stands there twice.");
    into.inner.push_back(std::move(cpu));
    for (const pugi::xml_node child : from.children("object")) {
      if (is_device(child.attribute("type").value())) read(child, into, depth + 1);
    }
  }

  /// hwloc 1 has CPUs below a node, hwloc 2 the node beside them.
  void read_node(const pugi::xml_node& from, Object& into, std::size_t depth) {
    Object node;
    node.type = "NUMANode";
    node.from = from;
    node.number = number_of(from, kMostNodes);
    if (!nodes_.insert(node.number).second) refuse_(from, "NUMA node " + std::to_string(node.number) + " stands there twice.");
    node.nodes.add(node.number);
    if (const auto cpus = from.attribute("cpuset")) {
      if (!node.stated.read(cpus.value())) refuse_(from, printable(std::string(std::string_view(cpus.value()).substr(0, 60))) + " is no cpuset.");
      node.states_cpus = true;
    }
    if (!from.child("object")) {
      into.memory.push_back(std::move(node));
      return;
    }
    Object group;
    group.type = "Group";
    group.from = from;
    group.memory.push_back(std::move(node));
    read_children(from, group, depth);
    into.inner.push_back(std::move(group));
  }

  void read_device(const pugi::xml_node& from, Object& into, std::size_t depth) {
    Object device;
    device.from = from;
    const std::string_view type = from.attribute("type").value();
    device.type = type == "Bridge" ? "Bridge" : type == "PCIDev" ? "PCIDev" : "OSDev";
    for (const pugi::xml_node child : from.children("object")) {
      const std::string_view kind = child.attribute("type").value();
      count(child, depth + 1);
      if (kind == "Misc") continue;
      if (!is_device(kind)) refuse_(child, "a " + printable(std::string(kind.substr(0, 40))) + " stands below a device.");
      read_device(child, device, depth + 1);
    }
    into.devices.push_back(std::move(device));
  }

  void count(const pugi::xml_node& from, std::size_t depth) {
    if (depth >= kMostDepth) refuse_(from, "objects nest deeper than " + std::to_string(kMostDepth) + ".");
    if (++objects_ > kMostObjects) refuse_(from, "there are more than " + std::to_string(kMostObjects) + " objects.");
  }

  /// hwloc 1 has no node where a machine has but one.
  static void add_only_node(Object& machine) {
    Object node;
    node.type = "NUMANode";
    node.from = machine.from;
    node.nodes.add(0);
    machine.memory.push_back(std::move(node));
  }

  /// Sets from below: an object has the CPUs of what is in it, the nodes beside them and, where they have CPUs, those round it.
  void settle(Object& object, const Bits& around) {
    gather_cpus(object);
    gather_nodes(object, around);
  }

  void gather_cpus(Object& object) {
    if (object.type == "PU") {
      object.cpus.add(object.number);
      return;
    }
    for (Object& inner : object.inner) gather_cpus(inner);
    std::vector<Object> kept;
    for (Object& inner : object.inner) {
      if (inner.cpus.empty()) {  // CPUs that were taken away leave their sockets behind; what hangs there hangs here
        std::move(inner.memory.begin(), inner.memory.end(), std::back_inserter(object.memory));
        std::move(inner.devices.begin(), inner.devices.end(), std::back_inserter(object.devices));
        continue;
      }
      object.cpus.add(inner.cpus);
      kept.push_back(std::move(inner));
    }
    std::stable_sort(kept.begin(), kept.end(), [](const Object& a, const Object& b) { return a.cpus.before(b.cpus); });  // as hwloc has them
    object.inner = std::move(kept);
    for (Object& node : object.memory) {
      node.cpus.add(node.states_cpus ? node.stated : object.cpus);
      node.cpus.keep(object.cpus);
    }
  }

  void gather_nodes(Object& object, const Bits& around) {
    Bits local;
    local.add(around);
    for (const Object& node : object.memory) {
      if (!node.cpus.empty()) local.add(node.nodes);
    }
    object.nodes.add(local);
    for (const Object& node : object.memory) object.nodes.add(node.nodes);
    for (Object& inner : object.inner) {
      gather_nodes(inner, local);
      object.nodes.add(inner.nodes);
    }
  }

  void write(const Object& object, pugi::xml_node to) {
    pugi::xml_node made = start(object, to);
    if (object.type == "PU" || object.type == "NUMANode") made.append_attribute("os_index") = std::to_string(object.number).c_str();
    for (const char* set : {"cpuset", "complete_cpuset", "allowed_cpuset"}) {
      if (object.type == "Machine" || set[0] == 'c') made.append_attribute(set) = object.cpus.text().c_str();
    }
    for (const char* set : {"nodeset", "complete_nodeset", "allowed_nodeset"}) {
      if (object.type == "Machine" || set[0] != 'a') made.append_attribute(set) = object.nodes.text().c_str();
    }
    if (object.type == "NUMANode") {
      const auto memory = parse_integer(object.from.attribute("local_memory").value());
      made.append_attribute("local_memory") = std::to_string(memory && *memory > 0 && *memory < 1LL << 60 ? *memory : 0).c_str();
    }
    infos(object.from, made);
    for (const Object& node : object.memory) write(node, made);
    for (const Object& inner : object.inner) write(inner, made);
    for (const Object& device : object.devices) write_device(device, made, 0);
  }

  pugi::xml_node start(const Object& object, pugi::xml_node& to) {
    pugi::xml_node made = to.append_child("object");
    made.append_attribute("type") = std::string(object.type).c_str();
    made.append_attribute("gp_index") = std::to_string(++written_).c_str();
    return made;
  }

  static void infos(const pugi::xml_node& from, pugi::xml_node& made) {
    int count = 0;
    for (const pugi::xml_node child : from.children("info")) {
      const std::string name = plain(child.attribute("name").value()), value = plain(child.attribute("value").value());
      if (name.empty() || ++count > 200) continue;
      pugi::xml_node info = made.append_child("info");
      info.append_attribute("name") = name.c_str();
      info.append_attribute("value") = value.c_str();
    }
  }

  /// Addresses and classes written anew, as far as they are such.
  void write_device(const Object& device, pugi::xml_node to, unsigned depth) {
    const pugi::xml_node& from = device.from;
    pugi::xml_node made;
    if (device.type == "OSDev") {
      const auto kind = parse_integer(from.attribute("osdev_type").value());
      if (!kind || *kind < 0 || *kind > 5) return;  // later versions' kinds
      made = start(device, to);
      made.append_attribute("name") = plain(from.attribute("name").value()).c_str();
      made.append_attribute("osdev_type") = std::to_string(*kind).c_str();
    } else {
      const bool bridge = device.type == "Bridge", host = bridge && from.attribute("bridge_type").value() == std::string_view("0-1");
      unsigned domain = 0, bus = 0, slot = 0, function = 0, kind = 0, vendor = 0, model = 0, subvendor = 0, submodel = 0, revision = 0, first = 0, last = 0;
      const bool address = std::sscanf(from.attribute("pci_busid").value(), "%4x:%2x:%2x.%1x", &domain, &bus, &slot, &function) == 4 && slot < 32 && function < 8;
      const bool type = std::sscanf(from.attribute("pci_type").value(), "%4x [%4x:%4x] [%4x:%4x] %2x", &kind, &vendor, &model, &subvendor, &submodel, &revision) == 6;
      if (!host && (!address || !type)) refuse_(from, "a " + std::string(device.type) + " has no pci_busid and pci_type that can be read.");
      unsigned below = domain;
      if (bridge && (std::sscanf(from.attribute("bridge_pci").value(), "%4x:[%2x-%2x]", &below, &first, &last) != 3 || last < first)) refuse_(from, "a Bridge has no bridge_pci that can be read.");
      if (!host && bridge && from.attribute("bridge_type").value() != std::string_view("1-1")) refuse_(from, "a Bridge has no bridge_type 0-1 or 1-1.");
      made = start(device, to);
      if (bridge) {
        made.append_attribute("bridge_type") = host ? "0-1" : "1-1";
        made.append_attribute("depth") = std::to_string(depth).c_str();
        made.append_attribute("bridge_pci") = fmt::format("{:04x}:[{:02x}-{:02x}]", below, first, last).c_str();
      }
      if (!host) {
        const double speed = std::strtod(from.attribute("pci_link_speed").value(), nullptr);
        made.append_attribute("pci_busid") = fmt::format("{:04x}:{:02x}:{:02x}.{:01x}", domain, bus, slot, function).c_str();
        made.append_attribute("pci_type") = fmt::format("{:04x} [{:04x}:{:04x}] [{:04x}:{:04x}] {:02x}", kind, vendor, model, subvendor, submodel, revision).c_str();
        made.append_attribute("pci_link_speed") = fmt::format("{:.6f}", speed > 0 && speed < 1e4 ? speed : 0.0).c_str();
      }
    }
    infos(from, made);
    for (const Object& below : device.devices) write_device(below, made, depth + 1);
  }

  const std::function<void(const pugi::xml_node&, const std::string&)>& refuse_;
  std::set<long long> numbers_, nodes_;  // of CPUs and NUMA nodes
  std::size_t objects_ = 0;
  int written_ = 0;
};

}  // namespace

std::string sound_hwloc_document(const pugi::xml_node& topology, const std::function<void(const pugi::xml_node&, const std::string&)>& refuse) { return Document(refuse).of(topology); }

}  // namespace wirewise
