#include "wirewise/wiring/nccl_gpu_element.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <pugixml.hpp>
#include <utility>

#include "wirewise/base/text.h"
#include "wirewise/wiring/nccl_words.h"

namespace wirewise {
namespace {

constexpr const char* kHiddenSwitch = "fffffff:ffff:ff";  // the driver's word for one that can't be seen

std::string gfx_of(const std::string& model) {
  const std::size_t at = model.find("gfx");
  if (at == std::string::npos) return {};
  const std::string word = model.substr(at, model.find(' ', at) - at);
  return word.size() > 3 ? word : std::string();
}

/// A GPU of the generation of its NVLinks, where its own kind isn't known.
int capability_of(const Link& link) {
  if (link.source.find("GA102") != std::string::npos || link.source.find("bridge") != std::string::npos) return 86;
  constexpr int kFirst[] = {0, 60, 70, 80, 90, 100};
  return link.kind == LinkKind::kNvlink && link.generation >= 1 && link.generation <= 5 ? kFirst[link.generation] : 0;
}

class Element {
 public:
  Element(const Reading& reading, const std::vector<std::vector<int>>& out, const PciAddresses& addresses, const HostTree::Down& gpu)
      : reading_(reading), wiring_(reading.wiring), out_(out[static_cast<std::size_t>(gpu.device)]), addresses_(addresses), gpu_(gpu), amd_(is_amd_gpu(wiring_, out, gpu.device)) {}

  std::string write(int number, pugi::xml_node pci) {
    const Device& device = at(gpu_.device);
    const std::string name = printable(device.name), gfx = gfx_of(device.model);
    int capability = amd_ ? 0 : compute_capability_of(device.model);
    std::vector<const Link*> links;
    for (int index : out_) {
      const Link& link = wiring_.links[static_cast<std::size_t>(index)];
      if (joins_gpus(link.kind)) links.push_back(&link);
      if (capability == 0 && !amd_) capability = capability_of(link);
    }
    const bool c2c = gpu_.link->source.starts_with("NVLink-C2C") || gpu_.link->kind == LinkKind::kSockets;
    const std::string gdr = value_of_fact(reading_, name, "GPUDirect RDMA");
    if (links.empty() && capability == 0 && gfx.empty() && gdr.empty() && !c2c && !device.pci.empty() && reading_.format == Format::kNcclXml) return {};
    node_ = pci.append_child("gpu");
    node_.append_attribute("dev") = number;
    if (capability > 0) node_.append_attribute("sm") = capability;
    if (amd_) {
      for (const auto& [attribute, what] : {std::pair{"sm", "compute units"}, std::pair{"arch", "architecture"}}) {
        if (const std::string value = value_of_fact(reading_, name, what); !value.empty()) node_.append_attribute(attribute) = value.c_str();
      }
    }
    if (!gfx.empty()) node_.append_attribute("gcn") = gfx.c_str();
    node_.append_attribute("rank") = number;
    if (!gdr.empty()) node_.append_attribute("gdr") = gdr == "yes" ? 1 : 0;
    for (const Link* link : links) write_link(*link);
    if (c2c) write_c2c(*gpu_.link);
    return std::move(left_out_);
  }

 private:
  [[nodiscard]] const Device& at(int index) const { return wiring_.devices[static_cast<std::size_t>(index)]; }

  void write_c2c(const Link& link) {
    const int count = std::max(1, link.lanes);
    pugi::xml_node c2c = node_.append_child("c2c");
    c2c.append_attribute("bw") = std::lround(link.beta / 1e6 / count);
    c2c.append_attribute("count") = count;
  }

  void write_link(const Link& link) {
    const Device& to = at(link.to);
    if (to.kind == DeviceKind::kNumaNode && link.source == "NVLink-C2C") {
      write_c2c(link);
      return;
    }
    std::string target;
    const char* target_class = link.kind == LinkKind::kXgmi ? "0x038000" : "0x030200";
    if (to.kind == DeviceKind::kNvSwitch) {
      target = to.pci.empty() ? kHiddenSwitch : to.pci;
      target_class = "0x068000";
    } else if (to.kind == DeviceKind::kNumaNode) {
      target = "ffff:ff:1f.1";
      target_class = "0x068001";
    } else if (to.kind == DeviceKind::kGpu && to.host == at(gpu_.device).host) {
      target = addresses_.of[static_cast<std::size_t>(link.to)];
    } else {
      left_out_ = "links of " + printable(at(gpu_.device).name) + " lead to " + printable(to.name) + ", which the file of one host doesn't hold: left out.";
      return;
    }
    pugi::xml_node child = node_.append_child(link.kind == LinkKind::kXgmi ? "xgmi" : "nvlink");
    child.append_attribute("target") = target.c_str();
    child.append_attribute("count") = std::max(1, link.lanes);
    child.append_attribute("tclass") = target_class;
  }

  const Reading& reading_;
  const Wiring& wiring_;
  const std::vector<int>& out_;
  const PciAddresses& addresses_;
  const HostTree::Down& gpu_;
  bool amd_;
  pugi::xml_node node_;
  std::string left_out_;
};

}  // namespace

std::string value_of_fact(const Reading& reading, const std::string& subject, std::string_view name) {
  const auto found = std::find_if(reading.facts.begin(), reading.facts.end(), [&](const Fact& one) { return one.subject == subject && one.name == name; });
  return found == reading.facts.end() ? std::string() : found->value;
}

bool is_amd_gpu(const Wiring& wiring, const std::vector<std::vector<int>>& out, int gpu) {
  const auto& links = out[static_cast<std::size_t>(gpu)];
  return wiring.devices[static_cast<std::size_t>(gpu)].model.find("gfx") != std::string::npos ||
         std::any_of(links.begin(), links.end(), [&](int index) { return wiring.links[static_cast<std::size_t>(index)].kind == LinkKind::kXgmi; });
}

std::string write_gpu_element(const Reading& reading, const std::vector<std::vector<int>>& out, const PciAddresses& addresses, const HostTree::Down& gpu, int number, pugi::xml_node pci) {
  return Element(reading, out, addresses, gpu).write(number, pci);
}

}  // namespace wirewise
