// A host's tree as <cpu>, <pci>, <gpu> and <nic>. Names and texts come from files: pugixml escapes them.
//
// The format knows neither host bridges nor names of PCI devices. Where a NUMA node has several bridges, what hangs on each carries its name in
// an attribute `bridge`, which read_nccl_xml() takes and NCCL leaves alone; an empty one stands on the node itself. NCCL reads no <cpu> without
// an architecture, nor one of x86_64 without vendor, family and model: what isn't known of them is written as assumed, and an attribute
// `assumed`, of the same sort as `bridge`, names which those are.
#include <algorithm>
#include <cmath>
#include <map>
#include <pugixml.hpp>
#include <set>
#include <sstream>

#include "wirewise/base/text.h"
#include "wirewise/wiring/host_tree.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/nccl_gpu_element.h"
#include "wirewise/wiring/nccl_words.h"
#include "wirewise/wiring/pci_addresses.h"
#include "wirewise/wiring/write.h"

namespace wirewise {
namespace {

constexpr int kMostDepth = 64;
const CpuKind kOtherVendors{"x86_64", "GenuineIntel", 6, 85};  // family and model of those but AMD's

/// The CPU of the link class that is assumed between sockets.
CpuKind assumed_cpu() { return *cpu_of_sockets("AMD xGMI, Zen 2"); }

std::string joined(const std::set<std::string>& parts, std::string_view separator) { return join(std::vector<std::string>(parts.begin(), parts.end()), separator); }

class Writer {
 public:
  explicit Writer(const Reading& reading) : reading_(reading), wiring_(reading.wiring), out_(links_by_device(wiring_)) {}

  NcclXml write(std::string_view only) {
    const std::vector<int> hosts = chosen(only);
    system_ = document_.append_child("system");
    // RCCL's files have a version of their own.
    const std::vector<int> gpus = devices_of(wiring_, DeviceKind::kGpu);
    system_.append_attribute("version") = std::any_of(gpus.begin(), gpus.end(), [&](int gpu) { return is_amd_gpu(wiring_, out_, gpu); }) ? 2 : 1;
    for (int host : hosts) write_host(host);
    std::ostringstream text;
    document_.save(text, "  ", pugi::format_default | pugi::format_no_declaration);
    // NCCL's own parser takes "/" after a blank for an attribute; a quote within a value is escaped, so this is a tag's end.
    written_.text = text.str();
    for (std::size_t at = written_.text.find("\" />\n"); at != std::string::npos; at = written_.text.find("\" />\n", at)) written_.text.erase(at + 1, 1);
    return std::move(written_);
  }

 private:
  using Down = HostTree::Down;

  [[nodiscard]] const Device& device(int index) const { return wiring_.devices[static_cast<std::size_t>(index)]; }

  [[nodiscard]] std::string fact(const std::string& subject, std::string_view name) const { return value_of_fact(reading_, subject, name); }

  [[nodiscard]] std::vector<int> chosen(std::string_view only) const {
    const std::vector<int> hosts = devices_of(wiring_, DeviceKind::kHost);
    if (hosts.empty()) throw bad_input("there is no host to write.");
    if (!only.empty()) {
      for (int host : hosts) {
        if (device(host).name == only) return {host};
      }
      throw bad_input("there is no host " + printable(only) + ".", hosts.size() == 1 ? "There is " + printable(device(hosts[0]).name) + "." : "wirewise topo shows their names.");
    }
    if (hosts.size() > 1) {
      for (int host : hosts) {
        if (fact(device(host).name, "host hash").empty()) {
          throw bad_input("NCCL's topology file describes one host, and this is " + std::to_string(hosts.size()) + ".", "Choose one: --host " + printable(device(hosts[0]).name) + ".");
        }
      }
    }
    return hosts;
  }

  void write_host(int host) {
    tree_ = host_tree(wiring_, host);
    if (tree_.depth > kMostDepth) throw bad_input("the devices of " + printable(device(host).name) + " hang more than " + std::to_string(kMostDepth) + " deep.");
    for (std::size_t i = 0; i < wiring_.devices.size(); ++i) {
      const Device& one = wiring_.devices[i];
      if (one.host != device(host).host || tree_.reached[i] || (one.kind != DeviceKind::kGpu && one.kind != DeviceKind::kNic)) continue;
      throw bad_input(printable(one.name) + " of " + printable(device(host).name) + " hangs on nothing.", "Mend the description: PCIe joins every GPU and NIC to its host.");
    }
    addresses_ = pci_addresses(wiring_, tree_);
    number(host);
    loose_.clear();
    numbered_.clear();
    host_ = host;
    below_host(host);
    for (const auto& [down, apart] : loose_) {
      part(down, system_, true);
      if (apart) system_.last_child().append_attribute("apart") = 1;
    }
    if (!system_.first_child()) throw bad_input(printable(device(host).name) + " has neither NUMA nodes nor GPUs nor NICs: there is nothing to write.");
    notes();
  }

  /// GPUs keep the number in their name where it is the only one.
  void number(int host) {
    std::map<int, int> taken;
    std::vector<int> others;
    for (int gpu : devices_of(wiring_, DeviceKind::kGpu, device(host).host)) {
      const auto named = device(gpu).name.starts_with("GPU") ? parse_integer(std::string_view(device(gpu).name).substr(3)) : std::nullopt;
      if (named && *named >= 0 && *named < 4096 && taken.try_emplace(static_cast<int>(*named), gpu).second) number_[gpu] = static_cast<int>(*named);
      else others.push_back(gpu);
    }
    int next = 0, nics = 0;
    for (int gpu : others) {
      while (taken.contains(next)) ++next;
      taken[number_[gpu] = next] = gpu;
    }
    if (!others.empty()) written_.notes.push_back("NCCL knows GPUs by number: " + printable(device(others[0]).name) + " is " + std::to_string(number_[others[0]]) + ".");
    for (int nic : devices_of(wiring_, DeviceKind::kNic, device(host).host)) number_[nic] = nics++;
  }

  void below_host(int index) {
    for (const Down& down : tree_.of(index)) {
      switch (device(down.device).kind) {
        case DeviceKind::kSocket: below_host(down.device); break;
        case DeviceKind::kNumaNode: cpu(down); break;
        case DeviceKind::kHostBridge:
        case DeviceKind::kPcieSwitch:
        case DeviceKind::kGpu:
        case DeviceKind::kNic: nodeless(down); break;
        default: break;  // ranks' cores
      }
    }
  }

  /// What hangs on the host itself is on a NUMA node of its own that isn't known.
  void nodeless(const Down& down) {
    if (device(down.device).kind != DeviceKind::kHostBridge && !device(down.device).placed) {
      loose_.emplace_back(down, false);
      return;
    }
    pugi::xml_node node = cpu_element(-1);
    if (device(down.device).kind == DeviceKind::kHostBridge) parts(down.device, node);
    else part(down, node);
    if (node.first_child()) kind_of_cpu(node, {});
    else system_.remove_child(node);
  }

  pugi::xml_node cpu_element(int numa) {
    pugi::xml_node node = system_.append_child("cpu");
    if (const std::string hash = fact(device(host_).name, "host hash"); !hash.empty()) node.append_attribute("host_hash") = hash.c_str();
    node.append_attribute("numaid") = numa < 0 || numbered_.insert(numa).second ? numa : -1;  // NCCL takes two of one number for one
    return node;
  }

  /// What NCCL wants to know of a CPU; what isn't known of it is that of the CPU whose sockets are assumed elsewhere too.
  void kind_of_cpu(pugi::xml_node node, CpuKind kind) {
    const CpuKind usual = assumed_cpu();
    std::string assumed;
    const auto take = [&](auto& own, const auto& other, bool missing, const char* name) {
      if (!missing) return;
      own = other;
      assumed += (assumed.empty() ? "" : " ") + std::string(name);
    };
    take(kind.arch, usual.arch, kind.arch.empty(), "arch");
    if (kind.arch == "x86_64") {
      take(kind.vendor, usual.vendor, kind.vendor.empty(), "vendor");
      const CpuKind same = kind.vendor == usual.vendor ? usual : kOtherVendors;
      take(kind.family, same.family, kind.family < 0, "familyid");
      take(kind.model, same.model, kind.model < 0, "modelid");
    }
    node.append_attribute("arch") = kind.arch.c_str();
    if (!kind.vendor.empty()) node.append_attribute("vendor") = kind.vendor.c_str();
    if (kind.family >= 0) node.append_attribute("familyid") = kind.family;
    if (kind.model >= 0) node.append_attribute("modelid") = kind.model;
    if (assumed.empty()) return;
    node.append_attribute("assumed") = assumed.c_str();
    assumed_cpu_ = describe(kind);
    std::replace(assumed.begin(), assumed.end(), ' ', ',');
    assumed_of_.insert(assumed);
  }

  /// "0-23" of the devices on a NUMA node of which nothing else says the CPUs; where they differ, all of them.
  std::string cpus_below(int numa) {
    std::set<std::string> stated;
    std::vector<int> reached{numa};
    for (std::size_t i = 0; i < reached.size(); ++i) {
      for (const Down& down : tree_.of(reached[i])) {
        if (!mask_of_cpus(device(down.device).cpus).empty()) stated.insert(device(down.device).cpus);
        reached.push_back(down.device);
      }
    }
    if (stated.size() > 1) {
      written_.notes.push_back("devices of NUMA node " + std::to_string(device(numa).numa) + " state different CPUs: " + joined(stated, "; ") +
                               ". The format has them by node: it gets all of them.");
    }
    return joined(stated, ",");
  }

  void cpu(const Down& down) {
    const Device& numa = device(down.device);
    pugi::xml_node node = cpu_element(numa.numa);
    apart_ = numa.placed;
    bridges(down.device, node);
    apart_ = false;
    if (numa.numa < 0 && !node.first_child()) {
      system_.remove_child(node);
      return;
    }
    if (const std::string mask = mask_of_cpus(numa.cpus.empty() ? cpus_below(down.device) : numa.cpus); !mask.empty()) node.append_attribute("affinity") = mask.c_str();
    auto kind = cpu_kind(numa.model);
    if (!kind && numa.model.empty() && down.link->provenance != Provenance::kAssumed) {
      kind = cpu_of_sockets(down.link->source);
      if (kind) guessed_cpu_ = describe(*kind) + ", which " + printable(down.link->source) + " joins";
    }
    kind_of_cpu(node, kind.value_or(CpuKind{}));
  }

  /// Bridges of one NUMA node are told apart where they have to be.
  void bridges(int numa, pugi::xml_node node) {
    const std::vector<Down>& all = tree_.of(numa);
    const auto is_bridge = [&](const Down& down) { return device(down.device).kind == DeviceKind::kHostBridge; };
    const auto used = [&](const Down& down) { return !is_bridge(down) || !tree_.of(down.device).empty(); };
    const bool told = std::count_if(all.begin(), all.end(), used) > 1 || std::any_of(all.begin(), all.end(), [&](const Down& down) { return used(down) && !is_bridge(down); });
    for (const Down& down : all) {
      const pugi::xml_node last = node.last_child();
      if (is_bridge(down)) parts(down.device, node);
      else part(down, node);
      if (!told) continue;
      for (pugi::xml_node child = last ? last.next_sibling() : node.first_child(); child; child = child.next_sibling()) {
        child.append_attribute("bridge") = is_bridge(down) ? device(down.device).name.c_str() : "";
      }
    }
  }

  void parts(int index, pugi::xml_node node) {
    for (const Down& down : tree_.of(index)) part(down, node);
  }

  /// `loose`: what has no known place stands outside of all CPUs; an attribute `apart` says of what is known to be far from all that has one.
  void part(const Down& down, pugi::xml_node node, bool loose = false) {
    const Device& child = device(down.device);
    if (!child.placed && !loose && (child.kind == DeviceKind::kGpu || child.kind == DeviceKind::kNic || child.kind == DeviceKind::kPcieSwitch)) {
      loose_.emplace_back(down, apart_);
      return;
    }
    switch (child.kind) {
      case DeviceKind::kPcieSwitch: {
        pugi::xml_node own = pci(node, down, "0x060400");
        for (const Down& next : tree_.of(down.device)) part(next, own, loose);
        break;
      }
      case DeviceKind::kGpu: gpu(down, node); break;
      case DeviceKind::kNic: nic(down, node); break;
      default: parts(down.device, node); break;
    }
  }

  pugi::xml_node pci(pugi::xml_node parent, const Down& down, const char* pci_class) {
    pugi::xml_node node = parent.append_child("pci");
    node.append_attribute("busid") = addresses_.of[static_cast<std::size_t>(down.device)].c_str();
    node.append_attribute("class") = pci_class;
    const bool pcie = down.link->kind == LinkKind::kPcie;
    node.append_attribute("link_speed") = std::string(pcie ? pcie_speed(down.link->generation) : "").c_str();
    node.append_attribute("link_width") = pcie ? down.link->lanes : 0;
    return node;
  }

  void gpu(const Down& down, pugi::xml_node parent) {
    pugi::xml_node node = pci(parent, down, is_amd_gpu(wiring_, out_, down.device) ? "0x038000" : "0x030200");
    const std::string left_out = write_gpu_element(reading_, out_, addresses_, down, number_[down.device], node);
    if (!left_out.empty()) written_.notes.push_back(left_out);
  }

  /// The link of a NIC to the network; null where there is none.
  [[nodiscard]] const Link* network_of(int nic) const {
    for (int index : out_[static_cast<std::size_t>(nic)]) {
      const Link& link = wiring_.links[static_cast<std::size_t>(index)];
      if (link.kind == LinkKind::kEthernet || link.kind == LinkKind::kInfiniband) return &link;
    }
    return nullptr;
  }
  [[nodiscard]] bool infiniband(int nic) const {
    const std::string controller = fact(printable(device(nic).name), "controller");
    const Link* link = network_of(nic);
    if (controller.empty() && link == nullptr) return device(nic).model.starts_with("InfiniBand");
    return controller == "InfiniBand" || (controller.empty() && link->kind == LinkKind::kInfiniband);
  }

  /// In Mbit/s, of a NIC that is described by the network it is for; empty for others.
  [[nodiscard]] static std::string rate_of(const std::string& model) {
    const auto classes = link_classes();
    const auto found = std::find_if(classes.begin(), classes.end(), [&](const LinkClass& of) { return of.name == model && of.rate_gbit > 0; });
    return found == classes.end() ? std::string() : std::to_string(std::llround(found->rate_gbit * 1000));
  }

  /// A network device is written unless the reading is of a file of NCCL's own that leaves it to be found out.
  void nic(const Down& down, pugi::xml_node parent) {
    const int index = down.device;
    const std::string name = printable(device(index).name);
    // NCCL writes NICs of which the system knows no PCI device straight under the CPU.
    const bool virtual_nic = device(index).pci.empty() && reading_.format == Format::kNcclXml && std::string_view(parent.name()) != "pci";
    pugi::xml_node place = parent;
    if (!virtual_nic) place = pci(parent, down, infiniband(index) ? "0x020700" : "0x020000");
    std::string speed = fact(name, "speed");
    const std::string port = fact(name, "port"), guid = fact(name, "guid"), gdr = fact(name, "GPUDirect RDMA");
    if (const Link* link = network_of(index); link != nullptr && speed.empty() && link->spec > 0) speed = std::to_string(std::llround(link->spec * 8 / 1e6));
    if (speed.empty()) speed = rate_of(device(index).model);
    if (speed.empty() && port.empty() && guid.empty() && gdr.empty() && !device(index).pci.empty() && reading_.format == Format::kNcclXml) return;
    pugi::xml_node net = place.append_child("nic").append_child("net");
    net.append_attribute("name") = device(index).name.c_str();
    net.append_attribute("dev") = number_[index];
    if (!speed.empty()) net.append_attribute("speed") = speed.substr(0, speed.find(' ')).c_str();
    if (!port.empty()) net.append_attribute("port") = port.c_str();
    if (!guid.empty()) net.append_attribute("guid") = guid.c_str();
    if (!gdr.empty()) net.append_attribute("gdr") = gdr == "yes" ? 1 : 0;
  }

  void notes() {
    int gpus = 0, nics = 0, switches = 0;
    for (int index : addresses_.made_up) {
      const DeviceKind kind = device(index).kind;
      ++(kind == DeviceKind::kGpu ? gpus : kind == DeviceKind::kNic ? nics : switches);
    }
    if (gpus + nics > 0) {
      written_.notes.push_back("the PCI addresses of " + std::to_string(gpus) + " GPUs, " + std::to_string(nics) + " NICs and " + std::to_string(switches) +
                               " PCIe switches aren't known: they are made up, in domains f000 and up, where NCCL finds no device of a real machine.");
    }
    if (!guessed_cpu_.empty()) written_.notes.push_back("what the CPUs are isn't told; they are written as " + guessed_cpu_ + ".");
    if (!assumed_of_.empty()) {
      written_.notes.push_back("NCCL reads no CPU without " + joined(assumed_of_, ";") + ", which aren't known: assumed, as of " + assumed_cpu_ +
                               ". Put the machine's own there (lscpu).");
    }
    for (const auto& [down, apart] : loose_) {
      written_.notes.push_back("the place of " + printable(device(down.device).name) + " isn't known: it stands outside of all CPUs, where NCCL leaves it out.");
    }
    const auto cores = devices_of(wiring_, DeviceKind::kCpu, device(host_).host);
    if (!cores.empty()) written_.notes.push_back("ranks' cores have no place in the format and are left out: " + std::to_string(cores.size()) + ".");
  }

  const Reading& reading_;
  const Wiring& wiring_;
  std::vector<std::vector<int>> out_;
  NcclXml written_;
  HostTree tree_;
  PciAddresses addresses_;
  std::map<int, int> number_;
  std::vector<std::pair<Down, bool>> loose_;  // what has no known place, and whether it is known to be far from all that has one
  bool apart_ = false;                        // below a NUMA node that is known to be another than all others
  std::set<int> numbered_;                    // NUMA nodes that are written
  pugi::xml_document document_;
  pugi::xml_node system_;
  int host_ = 0;
  std::string guessed_cpu_, assumed_cpu_;
  std::set<std::string> assumed_of_;  // attributes of CPUs that aren't known
};

}  // namespace

NcclXml write_nccl_xml(const Reading& reading, std::string_view host) { return Writer(reading).write(host); }

}  // namespace wirewise
