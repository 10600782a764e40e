// NCCL's and RCCL's topology files (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE): CPUs, which are NUMA nodes, with PCIe under them, GPUs and NICs at its
// ends, and NVLinks or xGMI between GPUs. The clouds' templates say of each PCI function only its class, fragments begin or end in the middle.
//
// A switch of NVLink is many chips, whose planes every pair of GPUs uses side by side: they are one device here. The host bridges of a NUMA
// node aren't told apart by the format: a node has one.
#include <algorithm>
#include <map>
#include <pugixml.hpp>
#include <set>

#include "wirewise/base/text.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/nccl_graph.h"
#include "wirewise/wiring/nccl_words.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/xml_scan.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostParts = 4096;
constexpr std::string_view kHiddenSwitch = "fffffff:ffff:ff";  // what the driver says of an NVSwitch that a virtual machine doesn't see

/// A device to be, and what it hangs on.
struct Part {
  DeviceKind kind = DeviceKind::kPcieSwitch;
  int host = 0;     // index among `hosts_`
  int parent = -1;  // index among the parts; -1: the host
  pugi::xml_node node;
  std::string name, pci, model, cpus;
  int numa = -1, number = -1;  // the number that the file gives it
  int generation = 0, lanes = 0;
  bool placed = true;
  CpuKind cpu;
  int device = -1;
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

/// A number of an attribute from `least` to `most`; `otherwise` where there is none such.
int number_of(pugi::xml_node node, const char* name, int otherwise, int least, int most) {
  const auto number = parse_integer(node.attribute(name).value());
  return number && *number >= least && *number <= most ? static_cast<int>(*number) : otherwise;
}

DeviceKind kind_of_class(std::string_view pci_class) {
  if (pci_class.substr(0, 4) == "0x03" || pci_class.substr(0, 4) == "0x12") return DeviceKind::kGpu;
  if (pci_class.substr(0, 4) == "0x02") return DeviceKind::kNic;
  if (pci_class.substr(0, 6) == "0x0604" || pci_class == "0x080100") return DeviceKind::kPcieSwitch;  // the latter: ConnectX-8's direct path
  return DeviceKind::kHost;  // none of ours
}

class TopologyReader {
 public:
  TopologyReader(std::string_view text, std::string_view file) : file_(file), places_(text), mended_(mend_xml(text, file)) {
    reading_.format = Format::kNcclXml;
    reading_.notes = mended_.notes;
    reading_.partial = mended_.partial;
  }

  Reading read() {
    pugi::xml_document document;
    const pugi::xml_parse_result result = document.load_buffer(mended_.text.data(), mended_.text.size(), pugi::parse_default, pugi::encoding_utf8);
    if (!result) refuse(static_cast<std::size_t>(std::max<std::ptrdiff_t>(result.offset, 0)), lower_first(result.description()));
    if (document.child("graphs")) {
      read_nccl_graphs(mended_.text, reading_, [&](std::ptrdiff_t offset) { return line_at(offset); });
      return std::move(reading_);
    }
    for (const pugi::xml_node node : document.children()) top(node);
    if (!nameless_.empty()) {
      note(first_nameless_, "nothing says whether these are GPUs or NICs, they have neither a class nor <gpu> or <nic> in them: " + join(nameless_, ", ") + ". They were left out.", true);
    }
    if (parts_.empty()) refuse_at({}, "there is no CPU, GPU or NIC in it.", "NCCL writes its topology where NCCL_TOPO_DUMP_FILE says.");
    number_gpus();
    name_nics();
    build();
    return std::move(reading_);
  }

 private:
  static std::string lower_first(std::string text) {
    if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] - 'A' + 'a');
    return text + ".";
  }

  /// Of the '<' before a name, in the file.
  [[nodiscard]] std::size_t in_file(std::ptrdiff_t name) const {
    const auto at = static_cast<std::size_t>(std::max<std::ptrdiff_t>(name, 1)) - 1;
    return at >= mended_.lead ? at - mended_.lead : 0;
  }
  [[nodiscard]] std::size_t offset_of(pugi::xml_node node) const { return in_file(node.offset_debug()); }
  [[nodiscard]] int line_at(std::ptrdiff_t name) const { return places_.line(in_file(name)); }
  [[nodiscard]] int line_of(pugi::xml_node node) const { return places_.line(offset_of(node)); }
  /// Whether it was put there to open what a fragment closes.
  [[nodiscard]] bool made_up(pugi::xml_node node) const { return node.offset_debug() >= 0 && static_cast<std::size_t>(node.offset_debug()) < mended_.lead; }

  [[noreturn]] void refuse(std::size_t offset, const std::string& what) const {
    const std::size_t at = offset >= mended_.lead ? offset - mended_.lead : 0;
    throw unreadable(file_, places_.line(at), places_.column(at), what);
  }
  [[noreturn]] void refuse_at(pugi::xml_node node, const std::string& what, const std::string& remedy = {}) const {
    throw unreadable(file_, node ? line_of(node) : 0, node ? places_.column(offset_of(node)) : 0, what, remedy);
  }
  void note(pugi::xml_node node, std::string text, bool partial = false) {
    reading_.notes.push_back({node ? line_of(node) : 0, node ? places_.column(offset_of(node)) : 0, std::move(text)});
    reading_.partial = reading_.partial || partial;
  }
  void fact(const std::string& subject, std::string name, std::string value, pugi::xml_node node) {
    reading_.facts.push_back({subject, std::move(name), std::move(value), line_of(node)});
  }

  int add_part(Part part) {
    if (parts_.size() >= kMostParts) refuse_at(part.node, "there are more than " + std::to_string(kMostParts) + " devices, more than machines have.");
    parts_.push_back(std::move(part));
    return static_cast<int>(parts_.size()) - 1;
  }

  int host_of(std::string_view hash, pugi::xml_node node) {
    const auto found = std::find(hosts_.begin(), hosts_.end(), hash);
    if (found != hosts_.end()) return static_cast<int>(found - hosts_.begin());
    hosts_.emplace_back(hash);
    if (!hash.empty()) fact("host" + std::to_string(hosts_.size() - 1), "host hash", std::string(hash), node);
    return static_cast<int>(hosts_.size()) - 1;
  }

  void unknown(pugi::xml_node node) { note(node, "<" + printable(node.name()) + "> isn't known here; it was left out."); }

  void top(pugi::xml_node node) {
    const std::string_view name = node.name();
    if (name == "system") {
      for (const pugi::xml_node child : node.children()) top(child);
    } else if (name == "cpu") {
      cpu(node);
    } else if (name == "pci" || name == "nic") {
      // A fragment without its CPU: it hangs on a node that isn't known.
      if (nowhere_ == -1) {
        Part numa;
        numa.kind = DeviceKind::kNumaNode;
        numa.host = host_of("", node);
        numa.name = "numa?";
        numa.node = node;
        Part bridge = numa;
        bridge.kind = DeviceKind::kHostBridge;
        bridge.name = "bridge?";
        bridge.parent = add_part(std::move(numa));
        nowhere_ = add_part(std::move(bridge));
        if (!made_up(node)) note(node, "<" + std::string(name) + "> hangs on no CPU: its place isn't known.", true);
      }
      if (name == "pci") pci(node, nowhere_, false);
      else nic(node, nowhere_, false);
    } else {
      unknown(node);
    }
  }

  void cpu(pugi::xml_node node) {
    const int host = host_of(lower(node.attribute("host_hash").value()), node);
    const int numa = number_of(node, "numaid", -1, 0, 4095);
    auto known = std::find_if(parts_.begin(), parts_.end(), [&](const Part& part) { return part.kind == DeviceKind::kHostBridge && part.host == host && part.numa == numa; });
    int bridge = numa >= 0 && known != parts_.end() ? static_cast<int>(known - parts_.begin()) : -1;
    if (bridge != -1) {
      note(node, "NUMA node " + std::to_string(numa) + " stands twice: taken together.");
    } else {
      Part part;
      part.kind = DeviceKind::kNumaNode;
      part.host = host;
      part.node = node;
      part.numa = numa;
      part.name = numa >= 0 ? "numa" + std::to_string(numa) : "numa?" + std::to_string(unknown_nodes_++);
      part.cpus = cpus_of_mask(node.attribute("affinity").value(), number_of(node, "affinity_offset", 0, 0, 65535));
      part.cpu = {node.attribute("arch").value(), node.attribute("vendor").value(), number_of(node, "familyid", -1, 0, 65535), number_of(node, "modelid", -1, 0, 65535)};
      part.model = describe(part.cpu);
      Part under = part;
      under.kind = DeviceKind::kHostBridge;
      under.name = "bridge" + std::to_string(bridges_++);
      under.cpus.clear();
      under.model.clear();
      under.parent = add_part(std::move(part));
      bridge = add_part(std::move(under));
    }
    for (const pugi::xml_node child : node.children()) {
      const std::string_view name = child.name();
      if (name == "pci") pci(child, bridge, true);
      else if (name == "nic") nic(child, bridge, true);
      else unknown(child);
    }
  }

  void pci(pugi::xml_node node, int parent, bool placed) {
    Part part;
    part.node = node;
    part.host = parts_[static_cast<std::size_t>(parent)].host;
    part.parent = parent;
    part.placed = placed;
    part.numa = parts_[static_cast<std::size_t>(parent)].numa;
    part.pci = lower(node.attribute("busid").value());
    part.generation = pcie_generation(node.attribute("link_speed").value());
    part.lanes = number_of(node, "link_width", 0, 1, 64);
    const pugi::xml_node gpu = node.child("gpu");
    const std::string_view stated = node.attribute("class").value();
    const bool within = static_cast<bool>(node.child("pci"));
    part.kind = gpu ? DeviceKind::kGpu : node.child("nic") ? DeviceKind::kNic : within || made_up(node) ? DeviceKind::kPcieSwitch : kind_of_class(lower(stated));
    if (part.pci.empty() && !made_up(node)) refuse_at(node, "a PCI device has no busid.", "NCCL finds devices by it: busid=\"0000:3b:00.0\".");
    if (!part.pci.empty()) {
      const auto [other, first] = by_pci_.try_emplace({part.host, part.pci}, static_cast<int>(parts_.size()));
      if (!first) refuse_at(node, printable(part.pci) + " stands twice; the first is line " + std::to_string(line_of(parts_[static_cast<std::size_t>(other->second)].node)) + ".");
    }
    if (part.kind == DeviceKind::kHost) {
      by_pci_.erase({part.host, part.pci});
      fact(printable(part.pci), "place", "numa " + (part.numa >= 0 ? std::to_string(part.numa) : "?") + (stated.empty() ? "" : ", class " + printable(stated)), node);
      if (stated.empty()) {
        if (nameless_.empty()) first_nameless_ = node;
        nameless_.push_back(printable(part.pci));
      }
      return;
    }
    if (part.kind == DeviceKind::kGpu) {
      part.number = number_of(gpu, "dev", -1, 0, 1 << 20);
      if (*gpu.attribute("gcn").value() != 0) part.model = "AMD " + gfx_name(gpu.attribute("gcn").value());
      else if (const int sm = number_of(gpu, "sm", 0, 1, 999); sm > 0) part.model = "NVIDIA sm_" + std::to_string(sm);
    }
    const int index = add_part(part);
    for (const pugi::xml_node child : node.children()) {
      const std::string_view name = child.name();
      if (name == "pci") {
        const bool end = part.kind != DeviceKind::kPcieSwitch;
        if (end) note(child, "it stands within a GPU or NIC: taken as beside it.");
        pci(child, end ? parent : index, placed);
      } else if (name == "gpu" && child != gpu) {
        note(child, "a second <gpu> in one PCI device: the first holds.");
      } else if (name == "pcilink") {
        fact(printable(part.pci), "PCIe link beside the tree", printable(child.attribute("target").value()), child);
        note(child, "a PCIe link beside the tree isn't in the graph.");
      } else if (name == "nic" && part.kind != DeviceKind::kNic) {
        note(child, "a <nic> in a GPU was left out.");
      } else if (name != "gpu" && name != "nic") {
        unknown(child);
      }
    }
  }

  /// A NIC that the system knows by no PCI address, straight under the CPU.
  void nic(pugi::xml_node node, int parent, bool placed) {
    Part part;
    part.kind = DeviceKind::kNic;
    part.node = node;
    part.host = parts_[static_cast<std::size_t>(parent)].host;
    part.parent = parent;
    part.numa = parts_[static_cast<std::size_t>(parent)].numa;
    part.placed = placed;
    add_part(std::move(part));
  }

  std::vector<int> parts_of(DeviceKind kind, int host) const {
    std::vector<int> found;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].kind == kind && parts_[i].host == host) found.push_back(static_cast<int>(i));
    }
    return found;
  }
  Part& part(int index) { return parts_[static_cast<std::size_t>(index)]; }

  void number_gpus() {
    for (int host = 0; host < static_cast<int>(hosts_.size()); ++host) {
      std::vector<int> gpus = parts_of(DeviceKind::kGpu, host);
      std::set<int> taken;
      std::vector<int> without;
      for (int gpu : gpus) {
        if (part(gpu).number >= 0 && !taken.insert(part(gpu).number).second) {
          note(part(gpu).node, "two GPUs are number " + std::to_string(part(gpu).number) + "; this one gets another.");
          part(gpu).number = -1;
        }
        if (part(gpu).number == -1) without.push_back(gpu);
      }
      std::sort(without.begin(), without.end(), [&](int a, int b) { return part(a).pci < part(b).pci; });
      if (without.size() > 1) note({}, "the file doesn't number its GPUs: they are numbered by bus id, as nvidia-smi does.");
      int next = 0;
      for (int gpu : without) {
        while (taken.count(next) > 0) ++next;
        taken.insert(part(gpu).number = next);
      }
      for (int gpu : gpus) part(gpu).name = "GPU" + std::to_string(part(gpu).number);
    }
  }

  void name_nics() {
    for (int host = 0; host < static_cast<int>(hosts_.size()); ++host) {
      std::vector<int> nics = parts_of(DeviceKind::kNic, host);
      for (int nic : nics) {
        const pugi::xml_node inside = std::string_view(part(nic).node.name()) == "nic" ? part(nic).node : part(nic).node.child("nic");
        part(nic).number = number_of(inside.child("net"), "dev", 1 << 21, 0, 1 << 20);
      }
      std::stable_sort(nics.begin(), nics.end(), [&](int a, int b) { return std::pair(part(a).number, part(a).pci) < std::pair(part(b).number, part(b).pci); });
      std::set<std::string> taken;
      for (const Part& other : parts_) {
        if (other.host == host) taken.insert(other.name);
      }
      int next = 0;
      for (int nic : nics) {
        const pugi::xml_node inside = std::string_view(part(nic).node.name()) == "nic" ? part(nic).node : part(nic).node.child("nic");
        std::string name = inside.child("net").attribute("name").value();
        const bool ours = name.substr(0, 6) == "switch" || name.substr(0, 4) == "host" || name.substr(0, 8) == "nvswitch";
        if (name.empty() || ours || !taken.insert(name).second) {
          do name = "NIC" + std::to_string(next++);
          while (!taken.insert(name).second);
        }
        part(nic).name = name;
        order_.push_back(nic);
        nic_facts(part(nic), inside);
      }
    }
  }

  void nic_facts(const Part& part, pugi::xml_node inside) {
    const std::string name = printable(part.name);
    const std::string pci_class = lower(part.node.attribute("class").value());
    if (pci_class == "0x020700") fact(name, "controller", "InfiniBand", part.node);
    if (pci_class == "0x020000") fact(name, "controller", "Ethernet", part.node);
    int ports = 0;
    for (const pugi::xml_node net : inside.children()) {
      if (std::string_view(net.name()) != "net") continue;
      const std::string subject = ports == 0 ? name : name + " " + printable(net.attribute("name").value());
      const auto speed = parse_integer(net.attribute("speed").value());
      if (speed && *speed > 0 && *speed < 100000000) fact(subject, "speed", std::to_string(*speed) + " Mbit/s", net);
      for (const char* of : {"port", "guid"}) {
        if (const std::string_view value = net.attribute(of).value(); !value.empty()) fact(subject, of, printable(value), net);
      }
      if (const std::string_view gdr = net.attribute("gdr").value(); !gdr.empty()) fact(subject, "GPUDirect RDMA", gdr == "1" ? "yes" : "no", net);
      ++ports;
    }
  }

  void build() {
    Wiring& wiring = reading_.wiring;
    for (int host = 0; host < static_cast<int>(hosts_.size()); ++host) {
      Device device;
      device.name = "host" + std::to_string(host);
      device.host = host;
      const int top = add_device(wiring, std::move(device));
      std::vector<int> gpus = parts_of(DeviceKind::kGpu, host);
      std::sort(gpus.begin(), gpus.end(), [&](int a, int b) { return part(a).number < part(b).number; });
      for (int gpu : gpus) add(gpu);
      for (int nic : order_) {
        if (part(nic).host == host) add(nic);
      }
      int switches = 0;
      for (std::size_t i = 0; i < parts_.size(); ++i) {
        if (parts_[i].host != host || parts_[i].device != -1) continue;
        if (parts_[i].kind == DeviceKind::kPcieSwitch) parts_[i].name = "switch" + std::to_string(switches++);
        if (parts_[i].kind == DeviceKind::kHostBridge && children(static_cast<int>(i)) == 0) continue;
        add(static_cast<int>(i));
      }
      for (std::size_t i = 0; i < parts_.size(); ++i) {
        if (parts_[i].host == host && parts_[i].device != -1) hang(static_cast<int>(i), top);
      }
      gpu_links(gpus, host);
    }
  }

  [[nodiscard]] int children(int parent) const {
    return static_cast<int>(std::count_if(parts_.begin(), parts_.end(), [&](const Part& part) { return part.parent == parent; }));
  }

  void add(int index) {
    Part& from = part(index);
    Device device;
    device.name = from.name;
    device.kind = from.kind;
    device.host = from.host;
    device.numa = from.numa;
    device.placed = from.placed;
    device.pci = from.pci;
    device.model = from.model;
    device.cpus = from.cpus;
    from.device = add_device(reading_.wiring, std::move(device));
  }

  [[nodiscard]] static Link pcie_of(const Part& part) { return pcie_link(part.generation, part.lanes, Provenance::kDriver); }

  void hang(int index, int top) {
    const Part& from = part(index);
    if (from.kind == DeviceKind::kNumaNode) {
      const std::string_view sockets = sockets_class(from.cpu);
      add_link(reading_.wiring, top, from.device, sockets_link(sockets, sockets.empty() ? Provenance::kAssumed : Provenance::kSpec));
      return;
    }
    Link link = pcie_of(from);
    if (from.kind == DeviceKind::kHostBridge) {
      link = {};
      link.kind = LinkKind::kPcie;
      for (const Part& other : parts_) {
        if (other.parent != index) continue;
        const Link below = pcie_of(other);
        link.beta += below.beta;
        link.spec += below.spec;
      }
      link.source = "as wide as its ports together";
    }
    add_link(reading_.wiring, part(from.parent).device, from.device, std::move(link));
  }

  void gpu_links(const std::vector<int>& gpus, int host) {
    std::map<int, int> to_switch;                    // GPU: NVLinks
    std::map<std::pair<int, int>, int> one_way;      // from a GPU to another
    std::map<int, int> to_cpu;
    for (int gpu : gpus) {
      std::vector<std::string> absent;
      for (const pugi::xml_node link : part(gpu).node.child("gpu").children()) {
        const std::string_view kind = link.name();
        if (kind == "c2c") {
          c2c(gpu, link);
          continue;
        }
        if (kind != "nvlink" && kind != "xgmi") {
          unknown(link);
          continue;
        }
        const std::string target = lower(link.attribute("target").value()), target_class = lower(link.attribute("tclass").value());
        const int count = number_of(link, "count", 0, 1, 1000);
        if (count == 0) {
          note(link, "links of " + part(gpu).name + " have no count from 1 to 1000: left out.", true);
          continue;
        }
        const auto known = by_pci_.find({host, target});
        if (known != by_pci_.end() && part(known->second).kind == DeviceKind::kGpu) {
          if (known->second == gpu) {
            fact(part(gpu).name, "NVLinks with a hidden end", std::to_string(count), link);
            note(link, std::to_string(count) + " links of " + part(gpu).name + " lead to itself: a virtual machine hides where they go. They were left out.", true);
          } else {
            one_way[{gpu, known->second}] += count;
          }
        } else if (target_class == "0x068001") {
          to_cpu[gpu] += count;
        } else if (target == kHiddenSwitch || target_class == "0x068000") {
          to_switch[gpu] += count;
        } else {
          fact(part(gpu).name, "NVLinks to " + printable(target), std::to_string(count), link);
          absent.push_back(printable(target));
        }
      }
      if (!absent.empty()) note(part(gpu).node, "links of " + part(gpu).name + " lead to " + join(absent, ", ") + ", of which the file says nothing else.", true);
      const pugi::xml_node inside = part(gpu).node.child("gpu");
      if (inside.attribute("gcn")) {
        for (const auto& [attribute, name] : {std::pair{"sm", "compute units"}, std::pair{"arch", "architecture"}}) {
          if (const std::string_view value = inside.attribute(attribute).value(); !value.empty()) fact(part(gpu).name, name, printable(value), inside);
        }
      }
      if (const std::string_view gdr = inside.attribute("gdr").value(); !gdr.empty()) fact(part(gpu).name, "GPUDirect RDMA", gdr == "1" ? "yes" : "no", inside);
    }
    for (const auto& [pair, count] : one_way) {
      const auto back = one_way.find({pair.second, pair.first});
      const int other = back == one_way.end() ? 0 : back->second;
      if (other != 0 && pair.first > pair.second) continue;
      if (other != count && !(other == 0 && mended_.cut)) {
        note(part(pair.first).node, part(pair.first).name + " has " + std::to_string(count) + " links to " + part(pair.second).name + ", which has " + std::to_string(other) + " back; the larger number holds.");
      }
      const bool reversed = part(pair.first).device > part(pair.second).device;
      const int a = reversed ? pair.second : pair.first, b = reversed ? pair.first : pair.second;
      add_link(reading_.wiring, part(a).device, part(b).device, links_of(part(pair.first), std::max(count, other)));
    }
    for (const auto& [gpu, count] : to_cpu) {
      int at = gpu;
      while (part(at).kind != DeviceKind::kNumaNode) at = part(at).parent;
      add_link(reading_.wiring, part(at).device, part(gpu).device, links_of(part(gpu), count));
    }
    if (to_switch.empty()) return;
    Device nvswitch;
    nvswitch.name = "nvswitch0";
    nvswitch.kind = DeviceKind::kNvSwitch;
    nvswitch.host = host;
    nvswitch.nvls = std::all_of(to_switch.begin(), to_switch.end(), [&](const auto& link) { return links_of(part(link.first), 1).generation >= 4; });
    const int middle = add_device(reading_.wiring, std::move(nvswitch));
    for (int gpu : gpus) {
      if (to_switch.count(gpu) > 0) add_link(reading_.wiring, part(gpu).device, middle, links_of(part(gpu), to_switch[gpu]));
    }
  }


  [[nodiscard]] static Link links_of(const Part& gpu, int count) {
    const pugi::xml_node inside = gpu.node.child("gpu");
    if (const std::string_view gcn = inside.attribute("gcn").value(); !gcn.empty()) return xgmi_of(gfx_name(gcn), count);
    return nvlinks_of(number_of(inside, "sm", 0, 1, 999), count);
  }

  /// NVLink-C2C to the CPU beside it; `bw` in MB/s a link.
  void c2c(int gpu, pugi::xml_node node) {
    const int count = number_of(node, "count", 0, 1, 1000), rate = number_of(node, "bw", 0, 1, 100000000);
    if (count == 0 || rate == 0) {
      note(node, "NVLink-C2C of " + part(gpu).name + " has no count or bandwidth: left out.", true);
      return;
    }
    int at = gpu;
    while (part(at).kind != DeviceKind::kNumaNode) at = part(at).parent;
    Link link;
    link.kind = LinkKind::kNvlink;
    link.lanes = count;
    link.beta = link.spec = 1e6 * rate * count;
    link.provenance = Provenance::kDriver;
    link.source = "NVLink-C2C";
    add_link(reading_.wiring, part(at).device, part(gpu).device, std::move(link));
  }

  std::string_view file_;
  TextPlaces places_;
  MendedXml mended_;
  Reading reading_;
  std::vector<std::string> hosts_;  // their hashes, in the order of the file
  std::vector<Part> parts_;
  std::map<std::pair<int, std::string>, int> by_pci_;
  std::vector<int> order_;  // NICs, as they are named
  std::vector<std::string> nameless_;
  pugi::xml_node first_nameless_;
  int nowhere_ = -1, bridges_ = 0, unknown_nodes_ = 0;
};

}  // namespace

bool looks_like_nccl_xml(std::string_view text) {
  const std::string_view first = first_element(text);
  constexpr std::string_view kNames[] = {"system", "cpu", "pci", "gpu", "nic", "net", "nvlink", "xgmi", "graphs", "graph"};
  return std::find(std::begin(kNames), std::end(kNames), first) != std::end(kNames);
}

Reading read_nccl_xml(std::string_view text, std::string_view file) { return TopologyReader(text, file).read(); }

}  // namespace wirewise
