// Hosts whose trees print alike are printed once, with their names before them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "wirewise/base/text.h"
#include "wirewise/wiring/write.h"

namespace wirewise {
namespace {

std::string label(const Device& device) {
  std::string text = printable(device.name);
  if (!device.model.empty()) text += " (" + printable(device.model) + ")";
  if (!device.pci.empty()) text += " " + printable(device.pci);
  if (!device.cpus.empty()) text += ", CPUs " + printable(device.cpus);
  if (!device.placed) text += ", place not known";
  return text;
}

std::string figure(const Link& link) {
  return fmt::format("{:.4g} GB/s a direction, {}: {}", link.beta / 1e9, name_of(link.provenance), printable(link.source));
}

class Tree {
 public:
  explicit Tree(const Wiring& wiring) : wiring_(wiring), out_(links_by_device(wiring)) {}

  std::string of_host(int host) {
    text_.clear();
    seen_.assign(wiring_.devices.size(), false);
    seen_[static_cast<std::size_t>(host)] = true;
    children(host, "");
    other_links(wiring_.devices[static_cast<std::size_t>(host)].host);
    return text_;
  }

 private:
  void children(int device, const std::string& indent) {
    std::vector<int> down;
    for (int index : out_[static_cast<std::size_t>(device)]) {
      const Link& link = wiring_.links[static_cast<std::size_t>(index)];
      const bool tree = link.kind == LinkKind::kPcie || link.kind == LinkKind::kSockets || link.kind == LinkKind::kSharedMemory;
      if (!tree || seen_[static_cast<std::size_t>(link.to)]) continue;
      seen_[static_cast<std::size_t>(link.to)] = true;
      down.push_back(index);
    }
    for (std::size_t i = 0; i < down.size(); ++i) {
      const Link& link = wiring_.links[static_cast<std::size_t>(down[i])];
      const bool last = i + 1 == down.size();
      text_ += indent + (last ? "└─ " : "├─ ") + label(wiring_.devices[static_cast<std::size_t>(link.to)]) + "  [" + figure(link) + "]\n";
      children(link.to, indent + (last ? "   " : "│  "));
    }
  }

  /// NVLinks and the network, a line each pair; links that are alike from one device together.
  void other_links(int host) {
    for (std::size_t from = 0; from < wiring_.devices.size(); ++from) {
      if (wiring_.devices[from].host != host) continue;
      std::map<std::string, std::string> by_figure;
      for (int index : out_[from]) {
        const Link& link = wiring_.links[static_cast<std::size_t>(index)];
        const Device& to = wiring_.devices[static_cast<std::size_t>(link.to)];
        const bool network = link.kind == LinkKind::kEthernet || link.kind == LinkKind::kInfiniband;
        if (!joins_gpus(link.kind) && !network) continue;
        if (to.host == host && link.to < static_cast<int>(from)) continue;
        std::string& names = by_figure[figure(link)];
        names += (names.empty() ? "" : ", ") + printable(to.name);
      }
      for (const auto& [what, names] : by_figure) text_ += printable(wiring_.devices[from].name) + " ── " + names + "  [" + what + "]\n";
    }
  }

  const Wiring& wiring_;
  std::vector<std::vector<int>> out_;
  std::vector<bool> seen_;
  std::string text_;
};

}  // namespace

std::string write_tree(const Wiring& wiring) {
  Tree tree(wiring);
  std::vector<std::pair<std::string, std::vector<std::string>>> bodies;  // in the order of their first host
  for (int host : devices_of(wiring, DeviceKind::kHost)) {
    const std::string body = tree.of_host(host);
    auto same = std::find_if(bodies.begin(), bodies.end(), [&](const auto& other) { return other.first == body; });
    if (same == bodies.end()) same = bodies.insert(bodies.end(), {body, {}});
    same->second.push_back(label(wiring.devices[static_cast<std::size_t>(host)]));
  }
  std::string text;
  for (const auto& [body, names] : bodies) {
    const std::vector<std::string> shown(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(names.size(), 8)));
    text += join(shown, ", ") + (names.size() > 8 ? fmt::format(" and {} more", names.size() - 8) : "") + "\n" + body;
  }
  for (int index : devices_of(wiring, DeviceKind::kSwitch)) {
    const Device& device = wiring.devices[static_cast<std::size_t>(index)];
    if (device.host == -1) text += "switch " + label(device) + fmt::format(", level {}\n", device.level);
  }
  return text;
}

}  // namespace wirewise
