// What a topology file says of its GPUs beside their place: NVLinks, xGMI and NVLink-C2C, where each leads, and what becomes a fact.
//
// A switch of NVLink is many chips, whose planes every pair of GPUs uses side by side: they are one device here.
#include <algorithm>
#include <pugixml.hpp>

#include "wirewise/base/text.h"
#include "wirewise/wiring/nccl_parts.h"

namespace wirewise {
namespace {

constexpr std::string_view kHiddenSwitch = "fffffff:ffff:ff";  // what the driver says of an NVSwitch that a virtual machine doesn't see

class Reader {
 public:
  Reader(NcclDocument& document, const std::vector<pugi::xml_node>& nodes, NcclParts& parts) : document_(document), nodes_(nodes), parts_(parts) {}

  NcclGpuLinks of_host(int host) {
    links_ = {};
    one_way_.clear();
    by_pci_.clear();
    const std::vector<int> gpus = parts_.gpus(host);
    for (int gpu : gpus) {
      if (!part(gpu).pci.empty()) by_pci_[part(gpu).pci] = gpu;
    }
    for (int gpu : gpus) {
      links_of(gpu);
      facts_of(gpu);
    }
    join_directions();
    return std::move(links_);
  }

 private:
  [[nodiscard]] const NcclPart& part(int index) const { return parts_.parts[static_cast<std::size_t>(index)]; }
  [[nodiscard]] pugi::xml_node node_of(int index) const { return nodes_[static_cast<std::size_t>(index)]; }

  void links_of(int gpu) {
    std::vector<std::string> absent;
    for (const pugi::xml_node link : node_of(gpu).child("gpu").children()) {
      const std::string_view kind = link.name();
      if (kind == "c2c") {
        c2c(gpu, link);
        continue;
      }
      if (kind != "nvlink" && kind != "xgmi") {
        document_.unknown(link);
        continue;
      }
      const std::string target = lower_case(link.attribute("target").value()), target_class = lower_case(link.attribute("tclass").value());
      const int count = attribute_number(link, "count", 0, 1, 1000);
      if (count == 0) {
        document_.note(link, "links of " + part(gpu).name + " have no count from 1 to 1000: left out.", true);
        continue;
      }
      if (const auto known = by_pci_.find(target); known != by_pci_.end()) {
        if (known->second == gpu) {
          document_.fact(part(gpu).name, "NVLinks with a hidden end", std::to_string(count), link);
          document_.note(link, std::to_string(count) + " links of " + part(gpu).name + " lead to itself: a virtual machine hides where they go. They were left out.", true);
        } else {
          one_way_[{gpu, known->second}] += count;
        }
      } else if (target_class == "0x068001") {
        links_.to_cpu[gpu] += count;
      } else if (target == kHiddenSwitch || target_class == "0x068000") {
        links_.to_switch[gpu] += count;
      } else {
        document_.fact(part(gpu).name, "NVLinks to " + printable(target), std::to_string(count), link);
        absent.push_back(printable(target));
      }
    }
    if (!absent.empty()) document_.note(node_of(gpu), "links of " + part(gpu).name + " lead to " + join(absent, ", ") + ", of which the file says nothing else.", true);
  }

  /// `bw` is in MB/s a link.
  void c2c(int gpu, pugi::xml_node node) {
    const int count = attribute_number(node, "count", 0, 1, 1000), rate = attribute_number(node, "bw", 0, 1, 100000000);
    if (count == 0 || rate == 0) {
      document_.note(node, "NVLink-C2C of " + part(gpu).name + " has no count or bandwidth: left out.", true);
      return;
    }
    Link link;
    link.kind = LinkKind::kNvlink;
    link.lanes = count;
    link.beta = link.spec = 1e6 * rate * count;
    link.provenance = Provenance::kDriver;
    link.source = "NVLink-C2C";
    links_.c2c.emplace_back(gpu, std::move(link));
  }

  void facts_of(int gpu) {
    const pugi::xml_node inside = node_of(gpu).child("gpu");
    if (inside.attribute("gcn")) {
      for (const auto& [attribute, name] : {std::pair{"sm", "compute units"}, std::pair{"arch", "architecture"}}) {
        if (const std::string_view value = inside.attribute(attribute).value(); !value.empty()) document_.fact(part(gpu).name, name, printable(value), inside);
      }
    }
    if (const std::string_view gdr = inside.attribute("gdr").value(); !gdr.empty()) document_.fact(part(gpu).name, "GPUDirect RDMA", gdr == "1" ? "yes" : "no", inside);
  }

  void join_directions() {
    for (const auto& [pair, count] : one_way_) {
      const auto back = one_way_.find({pair.second, pair.first});
      const int other = back == one_way_.end() ? 0 : back->second;
      if (other != 0 && pair.first > pair.second) continue;
      if (other != count && !(other == 0 && document_.cut())) {
        document_.note(node_of(pair.first), part(pair.first).name + " has " + std::to_string(count) + " links to " + part(pair.second).name + ", which has " + std::to_string(other) + " back; the larger number holds.");
      }
      links_.between[pair] = std::max(count, other);
    }
  }

  NcclDocument& document_;
  const std::vector<pugi::xml_node>& nodes_;
  const NcclParts& parts_;
  std::map<std::string, int> by_pci_;              // GPUs of the host
  std::map<std::pair<int, int>, int> one_way_;     // from a GPU to another
  NcclGpuLinks links_;
};

}  // namespace

void read_nccl_gpus(NcclDocument& document, const std::vector<pugi::xml_node>& nodes, NcclParts& parts) {
  Reader reader(document, nodes, parts);
  for (int host = 0; host < parts.hosts; ++host) parts.gpu_links.push_back(reader.of_host(host));
}

}  // namespace wirewise
