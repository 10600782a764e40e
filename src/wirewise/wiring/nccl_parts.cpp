// From the elements of a topology file to the parts of a machine: CPUs, which are NUMA nodes, PCIe under them, GPUs and NICs at its ends; then
// what they are called, as the file or NCCL numbers them.
#include <algorithm>
#include <charconv>
#include <map>
#include <pugixml.hpp>
#include <set>

#include "wirewise/base/text.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/nccl_parts.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostParts = 4096;

DeviceKind kind_of_class(std::string_view pci_class) {
  if (pci_class.substr(0, 4) == "0x03" || pci_class.substr(0, 4) == "0x12") return DeviceKind::kGpu;
  if (pci_class.substr(0, 4) == "0x02") return DeviceKind::kNic;
  if (pci_class.substr(0, 6) == "0x0604" || pci_class == "0x080100") return DeviceKind::kPcieSwitch;  // the latter: ConnectX-8's direct path
  return DeviceKind::kHost;  // none of ours
}

/// Vendor, device and those of the subsystem, 16 bits each; 0 where one isn't printed.
std::uint64_t ids_of(pugi::xml_node node) {
  std::uint64_t ids = 0;
  for (const char* name : {"vendor", "device", "subsystem_vendor", "subsystem_device"}) {
    std::string_view text = node.attribute(name).value();
    if (text.starts_with("0x")) text.remove_prefix(2);
    std::uint16_t number = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
    if (fault != std::errc() || end != text.data() + text.size()) return 0;
    ids = ids << 16 | number;
  }
  return ids;
}

class Reader {
 public:
  explicit Reader(NcclDocument& document) : document_(document) {}

  NcclParts read() {
    find_only_hash(document_.root());
    for (const pugi::xml_node node : document_.root().children()) top(node);
    if (!nameless_.empty()) {
      document_.note(first_nameless_, "nothing says whether these are GPUs or NICs, they have neither a class nor <gpu> or <nic> in them: " + join(nameless_, ", ") + ". They were left out.", true);
    }
    if (found_.parts.empty()) document_.refuse({}, "there is no CPU, GPU or NIC in it.", "NCCL writes its topology where NCCL_TOPO_DUMP_FILE says.");
    found_.hosts = static_cast<int>(hosts_.size());
    number_gpus();
    name_nics();
    read_nccl_gpus(document_, nodes_, found_);
    return std::move(found_);
  }

 private:
  int add_part(NcclPart part, pugi::xml_node node) {
    if (found_.parts.size() >= kMostParts) document_.refuse(node, "there are more than " + std::to_string(kMostParts) + " devices, more than machines have.");
    found_.parts.push_back(std::move(part));
    nodes_.push_back(node);
    return static_cast<int>(found_.parts.size()) - 1;
  }

  /// A file of one machine says its hash, a fragment's first lines don't: they are of the same machine.
  void find_only_hash(pugi::xml_node root) {
    std::set<std::string> hashes;
    for (const pugi::xml_node top : root.children()) {
      const std::string_view name = top.name();
      if (name == "cpu") hashes.insert(lower_case(top.attribute("host_hash").value()));
      if (name != "system") continue;
      for (const pugi::xml_node cpu : top.children("cpu")) hashes.insert(lower_case(cpu.attribute("host_hash").value()));
    }
    hashes.erase("");
    if (hashes.size() == 1) only_hash_ = *hashes.begin();
  }

  int host_of(std::string_view hash, pugi::xml_node node) {
    if (hash.empty()) hash = only_hash_;
    const auto found = std::find(hosts_.begin(), hosts_.end(), hash);
    if (found != hosts_.end()) return static_cast<int>(found - hosts_.begin());
    hosts_.emplace_back(hash);
    if (!hash.empty()) document_.fact("host" + std::to_string(hosts_.size() - 1), "host hash", std::string(hash), node);
    return static_cast<int>(hosts_.size()) - 1;
  }

  void top(pugi::xml_node node) {
    const std::string_view name = node.name();
    if (name == "system") {
      for (const pugi::xml_node child : node.children()) top(child);
    } else if (name == "cpu") {
      cpu(node);
    } else if (name == "pci" || name == "nic") {
      // A fragment without its CPU: it hangs on a node that isn't known, or on one that we wrote of as far from all others.
      const bool apart = static_cast<bool>(node.attribute("apart"));
      if (nowhere_ == -1 || apart) {
        NcclPart numa;
        numa.kind = DeviceKind::kNumaNode;
        numa.host = host_of("", node);
        numa.name = apart ? "numa?" + std::to_string(unknown_nodes_++) : "numa?";
        numa.placed = apart;
        NcclPart bridge = numa;
        bridge.kind = DeviceKind::kHostBridge;
        bridge.name = apart ? "bridge" + std::to_string(bridges_++) : "bridge?";
        bridge.placed = true;
        bridge.parent = add_part(std::move(numa), node);
        const int under = add_part(std::move(bridge), node);
        if (apart) return name == "pci" ? pci(node, under, false) : nic(node, under, false);
        nowhere_ = under;
        if (!document_.made_up(node)) document_.note(node, "<" + std::string(name) + "> hangs on no CPU: its place isn't known.", true);
      }
      if (name == "pci") pci(node, nowhere_, false);
      else nic(node, nowhere_, false);
    } else {
      document_.unknown(node);
    }
  }

  /// Without what we wrote as assumed (write_nccl_xml()).
  static CpuKind cpu_kind_of(pugi::xml_node node) {
    const std::vector<std::string> assumed = split(node.attribute("assumed").value(), ' ');
    const auto known = [&](std::string_view name) { return std::find(assumed.begin(), assumed.end(), name) == assumed.end(); };
    CpuKind cpu;
    if (known("arch")) cpu.arch = node.attribute("arch").value();
    if (known("vendor")) cpu.vendor = node.attribute("vendor").value();
    if (known("familyid")) cpu.family = attribute_number(node, "familyid", -1, 0, 65535);
    if (known("modelid")) cpu.model = attribute_number(node, "modelid", -1, 0, 65535);
    return cpu;
  }

  void cpu(pugi::xml_node node) {
    const int host = host_of(lower_case(node.attribute("host_hash").value()), node);
    const int numa = attribute_number(node, "numaid", -1, 0, 4095);
    auto known = std::find_if(found_.parts.begin(), found_.parts.end(), [&](const NcclPart& part) { return part.kind == DeviceKind::kNumaNode && part.host == host && part.numa == numa; });
    int place = numa >= 0 && known != found_.parts.end() ? static_cast<int>(known - found_.parts.begin()) : -1;
    if (place != -1) {
      document_.note(node, "NUMA node " + std::to_string(numa) + " stands twice: taken together.");
    } else {
      NcclPart part;
      part.kind = DeviceKind::kNumaNode;
      part.host = host;
      part.numa = numa;
      part.name = numa >= 0 ? "numa" + std::to_string(numa) : "numa?" + std::to_string(unknown_nodes_++);
      part.cpus = cpus_of_mask(node.attribute("affinity").value(), attribute_number(node, "affinity_offset", 0, 0, 65535));
      part.cpu = cpu_kind_of(node);
      part.model = describe(part.cpu);
      place = add_part(std::move(part), node);
    }
    for (const pugi::xml_node child : node.children()) {
      const std::string_view name = child.name();
      if (name == "pci") pci(child, bridge_of(place, child), true);
      else if (name == "nic") nic(child, bridge_of(place, child), true);
      else document_.unknown(child);
    }
  }

  /// What a child of a NUMA node hangs on: its one bridge, or that which we write beside NCCL's own attributes; an empty one is the node itself.
  int bridge_of(int place, pugi::xml_node child) {
    const pugi::xml_attribute stated = child.attribute("bridge");
    const std::string name = stated.value();
    if (stated && name.empty()) return place;
    const auto [found, fresh] = bridge_of_.try_emplace({place, name}, -1);
    if (fresh) {
      NcclPart under;
      under.kind = DeviceKind::kHostBridge;
      under.host = part(place).host;
      under.numa = part(place).numa;
      under.name = "bridge" + std::to_string(bridges_++);
      under.parent = place;
      found->second = add_part(std::move(under), child);
    }
    return found->second;
  }

  void pci(pugi::xml_node node, int parent, bool placed) {
    NcclPart part;
    part.host = found_.parts[static_cast<std::size_t>(parent)].host;
    part.parent = parent;
    part.placed = placed;
    part.numa = found_.parts[static_cast<std::size_t>(parent)].numa;
    part.pci = lower_case(node.attribute("busid").value());
    part.generation = pcie_generation(node.attribute("link_speed").value());
    part.lanes = attribute_number(node, "link_width", 0, 1, 64);
    part.ids = ids_of(node);
    const pugi::xml_node gpu = node.child("gpu");
    const std::string_view stated = node.attribute("class").value();
    const bool within = static_cast<bool>(node.child("pci"));
    part.kind = gpu ? DeviceKind::kGpu : node.child("nic") ? DeviceKind::kNic : within || document_.made_up(node) ? DeviceKind::kPcieSwitch : kind_of_class(lower_case(stated));
    if (part.pci.empty() && !document_.made_up(node)) document_.refuse(node, "a PCI device has no busid.", "NCCL finds devices by it: busid=\"0000:3b:00.0\".");
    if (!part.pci.empty()) {
      const auto [other, first] = by_pci_.try_emplace({part.host, part.pci}, static_cast<int>(found_.parts.size()));
      if (!first) document_.refuse(node, printable(part.pci) + " stands twice; the first is line " + std::to_string(document_.line_of(node_of(other->second))) + ".");
    }
    if (part.kind == DeviceKind::kHost) {
      by_pci_.erase({part.host, part.pci});
      document_.fact(printable(part.pci), "place", "numa " + (part.numa >= 0 ? std::to_string(part.numa) : "?") + (stated.empty() ? "" : ", class " + printable(stated)), node);
      if (stated.empty()) {
        if (nameless_.empty()) first_nameless_ = node;
        nameless_.push_back(printable(part.pci));
      }
      return;
    }
    part.inside_chip = part.kind == DeviceKind::kPcieSwitch && found_.parts[static_cast<std::size_t>(parent)].kind == DeviceKind::kPcieSwitch &&
                       one_pcie_chip(found_.parts[static_cast<std::size_t>(parent)].ids, part.ids);
    if (part.kind == DeviceKind::kGpu) {
      part.told = static_cast<bool>(gpu);
      part.number = attribute_number(gpu, "dev", -1, 0, 1 << 20);
      part.gfx = gfx_name(gpu.attribute("gcn").value());
      part.compute_capability = attribute_number(gpu, "sm", 0, 1, 999);
      if (!part.gfx.empty()) part.model = "AMD " + part.gfx;
      else if (part.compute_capability > 0) part.model = "NVIDIA sm_" + std::to_string(part.compute_capability);
    }
    const int index = add_part(part, node);
    for (const pugi::xml_node child : node.children()) {
      const std::string_view name = child.name();
      if (name == "pci") {
        const bool end = part.kind != DeviceKind::kPcieSwitch;
        if (end) document_.note(child, "it stands within a GPU or NIC: taken as beside it.");
        pci(child, end ? parent : index, placed);
      } else if (name == "gpu" && child != gpu) {
        document_.note(child, "a second <gpu> in one PCI device: the first holds.");
      } else if (name == "pcilink") {
        document_.fact(printable(part.pci), "PCIe link beside the tree", printable(child.attribute("target").value()), child);
        document_.note(child, "a PCIe link beside the tree isn't in the graph.");
      } else if (name == "nic" && part.kind != DeviceKind::kNic) {
        document_.note(child, "a <nic> in a GPU was left out.");
      } else if (name != "gpu" && name != "nic") {
        document_.unknown(child);
      }
    }
  }

  /// A NIC that the system knows by no PCI address, straight under the CPU.
  void nic(pugi::xml_node node, int parent, bool placed) {
    NcclPart part;
    part.kind = DeviceKind::kNic;
    part.host = found_.parts[static_cast<std::size_t>(parent)].host;
    part.parent = parent;
    part.numa = found_.parts[static_cast<std::size_t>(parent)].numa;
    part.placed = placed;
    add_part(std::move(part), node);
  }

  NcclPart& part(int index) { return found_.parts[static_cast<std::size_t>(index)]; }
  [[nodiscard]] pugi::xml_node node_of(int index) const { return nodes_[static_cast<std::size_t>(index)]; }

  void number_gpus() {
    for (int host = 0; host < found_.hosts; ++host) {
      std::vector<int> gpus = found_.of_kind(DeviceKind::kGpu, host);
      std::set<int> taken;
      std::vector<int> without;
      for (int gpu : gpus) {
        if (part(gpu).number >= 0 && !taken.insert(part(gpu).number).second) {
          document_.note(node_of(gpu), "two GPUs are number " + std::to_string(part(gpu).number) + "; this one gets another.");
          part(gpu).number = -1;
        }
        if (part(gpu).number == -1) without.push_back(gpu);
      }
      std::sort(without.begin(), without.end(), [&](int a, int b) { return part(a).pci < part(b).pci; });
      if (without.size() > 1) document_.note({}, "the file doesn't number its GPUs: they are numbered by bus id, as nvidia-smi does.");
      int next = 0;
      for (int gpu : without) {
        while (taken.count(next) > 0) ++next;
        taken.insert(part(gpu).number = next);
      }
      for (int gpu : gpus) part(gpu).name = "GPU" + std::to_string(part(gpu).number);
    }
  }

  /// A NIC's <nic>, within its <pci> or alone.
  [[nodiscard]] pugi::xml_node nic_element(int index) const {
    const pugi::xml_node node = node_of(index);
    return std::string_view(node.name()) == "nic" ? node : node.child("nic");
  }

  void name_nics() {
    for (int host = 0; host < found_.hosts; ++host) {
      std::vector<int> nics = found_.of_kind(DeviceKind::kNic, host);
      for (int nic : nics) {
        part(nic).number = attribute_number(nic_element(nic).child("net"), "dev", 1 << 21, 0, 1 << 20);
      }
      std::stable_sort(nics.begin(), nics.end(), [&](int a, int b) { return std::pair(part(a).number, part(a).pci) < std::pair(part(b).number, part(b).pci); });
      std::set<std::string> taken;
      for (const NcclPart& other : found_.parts) {
        if (other.host == host) taken.insert(other.name);
      }
      int next = 0;
      for (int nic : nics) {
        const pugi::xml_node inside = nic_element(nic);
        std::string name = inside.child("net").attribute("name").value();
        const bool ours = name.substr(0, 6) == "switch" || name.substr(0, 4) == "host" || name.substr(0, 8) == "nvswitch";
        if (name.empty() || ours || !taken.insert(name).second) {
          do name = "NIC" + std::to_string(next++);
          while (!taken.insert(name).second);
        }
        part(nic).name = name;
        found_.nics.push_back(nic);
        nic_facts(nic);
      }
    }
  }

  void nic_facts(int nic) {
    const pugi::xml_node node = node_of(nic);
    const std::string name = printable(part(nic).name);
    const std::string pci_class = lower_case(node.attribute("class").value());
    if (pci_class == "0x020700") document_.fact(name, "controller", "InfiniBand", node);
    if (pci_class == "0x020000") document_.fact(name, "controller", "Ethernet", node);
    int ports = 0;
    for (const pugi::xml_node net : nic_element(nic).children()) {
      if (std::string_view(net.name()) != "net") continue;
      const std::string subject = ports == 0 ? name : name + " " + printable(net.attribute("name").value());
      const auto speed = parse_integer(net.attribute("speed").value());
      if (speed && *speed > 0 && *speed < 100000000) document_.fact(subject, "speed", std::to_string(*speed) + " Mbit/s", net);
      for (const char* of : {"port", "guid"}) {
        if (const std::string_view value = net.attribute(of).value(); !value.empty()) document_.fact(subject, of, printable(value), net);
      }
      if (const std::string_view gdr = net.attribute("gdr").value(); !gdr.empty()) document_.fact(subject, "GPUDirect RDMA", gdr == "1" ? "yes" : "no", net);
      ++ports;
    }
  }

  NcclDocument& document_;
  NcclParts found_;
  std::vector<pugi::xml_node> nodes_;  // of the parts
  std::string only_hash_;  // of all CPUs that have one; empty: they differ, or none has
  std::vector<std::string> hosts_;     // their hashes, in the order of the file
  std::map<std::pair<int, std::string>, int> by_pci_;
  std::vector<std::string> nameless_;
  pugi::xml_node first_nameless_;
  std::map<std::pair<int, std::string>, int> bridge_of_;  // by NUMA node and name
  int nowhere_ = -1, bridges_ = 0, unknown_nodes_ = 0;
};

}  // namespace

NcclParts read_nccl_parts(NcclDocument& document) { return Reader(document).read(); }

}  // namespace wirewise
