// Names and texts come from files: pugixml escapes them.
#include <algorithm>
#include <cmath>
#include <map>
#include <pugixml.hpp>
#include <sstream>

#include "wirewise/base/text.h"
#include "wirewise/wiring/nccl_words.h"
#include "wirewise/wiring/write.h"

namespace wirewise {
namespace {

class Writer {
 public:
  explicit Writer(const Reading& reading) : reading_(reading), wiring_(reading.wiring), out_(links_by_device(wiring_)), seen_(wiring_.devices.size(), false) {}

  std::string write() {
    const std::vector<int> hosts = devices_of(wiring_, DeviceKind::kHost);
    if (hosts.empty()) throw bad_input("there is no host to write.");
    if (hosts.size() > 1) {
      for (int host : hosts) {
        if (fact(device(host).name, "host hash").empty()) {
          throw bad_input("NCCL's topology file describes one host, and this is " + std::to_string(hosts.size()) + ".", "Write each host by itself.");
        }
      }
    }
    number();
    system_ = document_.append_child("system");
    // RCCL's files have a version of their own.
    const std::vector<int> gpus = devices_of(wiring_, DeviceKind::kGpu);
    system_.append_attribute("version") = std::any_of(gpus.begin(), gpus.end(), [&](int gpu) { return xgmi(gpu); }) ? 2 : 1;
    for (int host : hosts) {
      host_ = host;
      seen_[static_cast<std::size_t>(host)] = true;
      below_host(host);
    }
    for (DeviceKind kind : {DeviceKind::kGpu, DeviceKind::kNic}) {
      for (int index : devices_of(wiring_, kind)) {
        if (!seen_[static_cast<std::size_t>(index)]) refuse(index, "hangs on no NUMA node");
      }
    }
    std::ostringstream text;
    document_.save(text, "  ", pugi::format_default | pugi::format_no_declaration);
    // NCCL's own parser takes "/" after a blank for an attribute; a quote within a value is escaped, so this is a tag's end.
    std::string out = text.str();
    for (std::size_t at = out.find("\" />\n"); at != std::string::npos; at = out.find("\" />\n", at)) out.erase(at + 1, 1);
    return out;
  }

 private:
  [[nodiscard]] const Device& device(int index) const { return wiring_.devices[static_cast<std::size_t>(index)]; }

  [[noreturn]] void refuse(int index, const std::string& why) const {
    throw bad_input(printable(device(index).name) + " of " + printable(device(host_).name) + " " + why + ", and NCCL finds devices by their PCI address and place.",
                    "Give a description that has them: this machine's own, or what NCCL_TOPO_DUMP_FILE writes.");
  }

  [[nodiscard]] std::string fact(const std::string& subject, std::string_view name) const {
    const auto found = std::find_if(reading_.facts.begin(), reading_.facts.end(), [&](const Fact& one) { return one.subject == subject && one.name == name; });
    return found == reading_.facts.end() ? std::string() : found->value;
  }

  /// GPUs keep the number in their name where all have one.
  void number() {
    const auto gpus = devices_by_host(wiring_, DeviceKind::kGpu), all_nics = devices_by_host(wiring_, DeviceKind::kNic);
    for (std::size_t host = 0; host < gpus.size(); ++host) {
      int next = 0, nics = 0;
      for (int gpu : gpus[host]) {
        const auto named = device(gpu).name.substr(0, 3) == "GPU" ? parse_integer(std::string_view(device(gpu).name).substr(3)) : std::nullopt;
        number_[gpu] = named && *named >= 0 && *named < 4096 ? static_cast<int>(*named) : next;
        next = std::max(next, number_[gpu]) + 1;
      }
      for (int nic : all_nics[host]) number_[nic] = nics++;
    }
  }

  struct Down {
    int device;
    const Link* link;
  };
  std::vector<Down> below(int index) {
    std::vector<Down> down;
    for (int at : out_[static_cast<std::size_t>(index)]) {
      const Link& link = wiring_.links[static_cast<std::size_t>(at)];
      const bool tree = link.kind == LinkKind::kPcie || link.kind == LinkKind::kSockets || link.kind == LinkKind::kSharedMemory;
      if (!tree || seen_[static_cast<std::size_t>(link.to)]) continue;
      seen_[static_cast<std::size_t>(link.to)] = true;
      down.push_back({link.to, &link});
    }
    return down;
  }

  void below_host(int index) {
    for (const Down& down : below(index)) {
      switch (device(down.device).kind) {
        case DeviceKind::kSocket: below_host(down.device); break;
        case DeviceKind::kNumaNode: cpu(down.device); break;
        case DeviceKind::kGpu:
        case DeviceKind::kNic: refuse(down.device, "hangs on no NUMA node");
        default: break;  // ranks' cores
      }
    }
  }

  void cpu(int index) {
    const Device& numa = device(index);
    pugi::xml_node node = system_.append_child("cpu");
    if (const std::string hash = fact(device(host_).name, "host hash"); !hash.empty()) node.append_attribute("host_hash") = hash.c_str();
    node.append_attribute("numaid") = numa.numa;
    if (const std::string mask = mask_of_cpus(numa.cpus); !mask.empty()) node.append_attribute("affinity") = mask.c_str();
    if (const auto kind = cpu_kind(numa.model)) {
      node.append_attribute("arch") = kind->arch.c_str();
      node.append_attribute("vendor") = kind->vendor.c_str();
      if (kind->family >= 0) node.append_attribute("familyid") = kind->family;
      if (kind->model >= 0) node.append_attribute("modelid") = kind->model;
    }
    children(index, node);
  }

  void children(int index, pugi::xml_node node) {
    for (const Down& down : below(index)) {
      const Device& child = device(down.device);
      if ((child.kind == DeviceKind::kGpu || child.kind == DeviceKind::kNic) && !child.placed) refuse(down.device, "has no known place");
      if (child.kind == DeviceKind::kGpu && child.pci.empty()) refuse(down.device, "has no known PCI address");
      switch (child.kind) {
        case DeviceKind::kHostBridge: children(down.device, node); break;
        case DeviceKind::kPcieSwitch: children(down.device, pci(node, child, *down.link, "0x060400")); break;
        case DeviceKind::kGpu: gpu(down.device, pci(node, child, *down.link, xgmi(down.device) ? "0x038000" : "0x030200")); break;
        case DeviceKind::kNic:
          if (child.pci.empty() && device(index).kind != DeviceKind::kHostBridge && device(index).kind != DeviceKind::kNumaNode) refuse(down.device, "has no known PCI address");
          nic(down.device, child.pci.empty() ? node : pci(node, child, *down.link, infiniband(down.device) ? "0x020700" : "0x020000"));
          break;
        default: break;
      }
    }
  }

  pugi::xml_node pci(pugi::xml_node parent, const Device& of, const Link& link, const char* pci_class) {
    pugi::xml_node node = parent.append_child("pci");
    std::string address = of.pci;
    if (address.empty()) {  // a switch whose address isn't known: one that no machine has
      char text[24];
      std::snprintf(text, sizeof text, "ffff:%02x:%02x.0", 0xff - switches_ / 32, switches_ % 32);
      ++switches_;
      address = text;
    }
    node.append_attribute("busid") = address.c_str();
    node.append_attribute("class") = pci_class;
    node.append_attribute("link_speed") = std::string(pcie_speed(link.generation)).c_str();
    node.append_attribute("link_width") = link.lanes;
    return node;
  }

  [[nodiscard]] bool xgmi(int gpu) const {
    const auto& links = out_[static_cast<std::size_t>(gpu)];
    return device(gpu).model.find("gfx") != std::string::npos ||
           std::any_of(links.begin(), links.end(), [&](int index) { return wiring_.links[static_cast<std::size_t>(index)].kind == LinkKind::kXgmi; });
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
    return controller == "InfiniBand" || (controller.empty() && link != nullptr && link->kind == LinkKind::kInfiniband);
  }

  [[nodiscard]] static std::string word_from(const std::string& text, std::string_view start) {
    const std::size_t at = text.find(start);
    if (at == std::string::npos) return {};
    const std::string word = text.substr(at, text.find(' ', at) - at);
    return word.size() > start.size() ? word : std::string();
  }

  void gpu(int index, pugi::xml_node parent) {
    pugi::xml_node node;
    const auto make = [&] {
      if (node) return;
      node = parent.append_child("gpu");
      node.append_attribute("dev") = number_[index];
      if (const std::string sm = word_from(device(index).model, "sm_"); !sm.empty()) node.append_attribute("sm") = sm.substr(3).c_str();
      for (const auto& [attribute, name] : {std::pair{"sm", "compute units"}, std::pair{"arch", "architecture"}}) {
        if (const std::string value = fact(printable(device(index).name), name); !value.empty()) node.append_attribute(attribute) = value.c_str();
      }
      if (const std::string gfx = word_from(device(index).model, "gfx"); !gfx.empty()) node.append_attribute("gcn") = gfx.c_str();
      node.append_attribute("rank") = number_[index];
      if (const std::string gdr = fact(printable(device(index).name), "GPUDirect RDMA"); !gdr.empty()) node.append_attribute("gdr") = gdr == "yes" ? 1 : 0;
    };
    if (!word_from(device(index).model, "sm_").empty() || !word_from(device(index).model, "gfx").empty()) make();
    for (int at : out_[static_cast<std::size_t>(index)]) {
      const Link& link = wiring_.links[static_cast<std::size_t>(at)];
      if (!joins_gpus(link.kind)) continue;
      make();
      gpu_link(node, link, index);
    }
  }

  void gpu_link(pugi::xml_node node, const Link& link, int from) {
    const Device& to = device(link.to);
    if (!node.attribute("sm") && !node.attribute("gcn")) {
      constexpr int kFirst[] = {0, 60, 70, 80, 90, 100};
      if (link.kind == LinkKind::kNvlink && link.generation >= 1 && link.generation <= 5) node.insert_attribute_after("sm", node.attribute("dev")) = kFirst[link.generation];
    }
    if (to.kind == DeviceKind::kNumaNode && link.source == "NVLink-C2C") {
      pugi::xml_node c2c = node.append_child("c2c");
      c2c.append_attribute("bw") = std::lround(link.beta / 1e6 / std::max(1, link.lanes));
      c2c.append_attribute("count") = std::max(1, link.lanes);
      return;
    }
    std::string target = to.pci;
    const char* target_class = link.kind == LinkKind::kXgmi ? "0x038000" : "0x030200";
    if (to.kind == DeviceKind::kNvSwitch) {
      target = "fffffff:ffff:ff";  // the driver's word for one that can't be seen
      target_class = "0x068000";
    } else if (to.kind == DeviceKind::kNumaNode) {
      target = "ffff:ff:1f.1";
      target_class = "0x068001";
    } else if (target.empty()) {
      refuse(from, "has NVLinks to " + printable(to.name) + " without a PCI address");
    }
    pugi::xml_node child = node.append_child(link.kind == LinkKind::kXgmi ? "xgmi" : "nvlink");
    child.append_attribute("target") = target.c_str();
    child.append_attribute("count") = link.lanes;
    child.append_attribute("tclass") = target_class;
  }

  /// A network device is written where something is known of it; NCCL finds it out otherwise.
  void nic(int index, pugi::xml_node parent) {
    const std::string name = printable(device(index).name);
    std::string speed = fact(name, "speed");
    const std::string port = fact(name, "port"), guid = fact(name, "guid"), gdr = fact(name, "GPUDirect RDMA");
    if (const Link* link = network_of(index); link != nullptr && speed.empty() && link->spec > 0) speed = std::to_string(std::llround(link->spec * 8 / 1e6));
    if (speed.empty() && port.empty() && guid.empty() && gdr.empty() && !device(index).pci.empty()) return;
    pugi::xml_node net = parent.append_child("nic").append_child("net");
    net.append_attribute("name") = device(index).name.c_str();
    net.append_attribute("dev") = number_[index];
    if (!speed.empty()) net.append_attribute("speed") = speed.substr(0, speed.find(' ')).c_str();
    if (!port.empty()) net.append_attribute("port") = port.c_str();
    if (!guid.empty()) net.append_attribute("guid") = guid.c_str();
    if (!gdr.empty()) net.append_attribute("gdr") = gdr == "yes" ? 1 : 0;
  }

  const Reading& reading_;
  const Wiring& wiring_;
  std::vector<std::vector<int>> out_;
  std::vector<bool> seen_;
  std::map<int, int> number_;
  pugi::xml_document document_;
  pugi::xml_node system_;
  int host_ = 0, switches_ = 0;
};

}  // namespace

std::string write_nccl_xml(const Reading& reading) { return Writer(reading).write(); }

}  // namespace wirewise
