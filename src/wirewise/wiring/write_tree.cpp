// Hosts whose trees print alike are printed once, with their names before them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
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
  const bool less = link.spec > link.beta * 1.0005;  // what messages get, of what the standard says
  const std::string rate = less ? fmt::format("{:.4g} of {:.4g} GB/s a direction", link.beta / 1e9, link.spec / 1e9) : fmt::format("{:.4g} GB/s a direction", link.beta / 1e9);
  const std::string_view from = name_of(link.provenance);
  const std::string source = printable(link.source);
  if (source.empty()) return rate + ", " + std::string(words_of(link.provenance));
  const bool said = source.starts_with(from) && (source.size() == from.size() || source[from.size()] == ':');
  return rate + (said ? ", " : link.provenance == Provenance::kSpec ? ": " : ", " + std::string(from) + ": ") + source;
}

class Tree {
 public:
  explicit Tree(const Wiring& wiring) : wiring_(wiring), out_(links_by_device(wiring)), by_host_(devices_by_host(wiring)), seen_in_(wiring.devices.size(), -1) {}

  std::string of_host(int host) {
    text_.clear();
    host_ = host;
    seen_in_[static_cast<std::size_t>(host)] = host;
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
      if (!tree || seen_in_[static_cast<std::size_t>(link.to)] == host_) continue;
      seen_in_[static_cast<std::size_t>(link.to)] = host_;
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
    for (int from : by_host_[static_cast<std::size_t>(host)]) {
      std::map<std::string, std::string> by_figure;
      for (int index : out_[static_cast<std::size_t>(from)]) {
        const Link& link = wiring_.links[static_cast<std::size_t>(index)];
        const Device& to = wiring_.devices[static_cast<std::size_t>(link.to)];
        const bool network = link.kind == LinkKind::kEthernet || link.kind == LinkKind::kInfiniband;
        if (!joins_gpus(link.kind) && !network) continue;
        if (to.host == host && link.to < from) continue;
        std::string& names = by_figure[figure(link)];
        names += (names.empty() ? "" : ", ") + printable(to.name);
      }
      for (const auto& [what, names] : by_figure) text_ += printable(wiring_.devices[static_cast<std::size_t>(from)].name) + " ── " + names + "  [" + what + "]\n";
    }
  }

  const Wiring& wiring_;
  std::vector<std::vector<int>> out_;
  std::vector<std::vector<int>> by_host_;
  int host_ = -1;             // the one that is being written, and
  std::vector<int> seen_in_;  // of each device: the last one whose tree it stands in
  std::string text_;
};

}  // namespace

std::string write_tree(const Wiring& wiring) {
  Tree tree(wiring);
  std::vector<std::pair<std::string, std::vector<std::string>>> bodies;  // in the order of their first host
  std::unordered_map<std::string, std::size_t> known;
  for (int host : devices_of(wiring, DeviceKind::kHost)) {
    std::string body = tree.of_host(host);
    const auto [same, first] = known.try_emplace(body, bodies.size());
    if (first) bodies.emplace_back(std::move(body), std::vector<std::string>{});
    bodies[same->second].second.push_back(label(wiring.devices[static_cast<std::size_t>(host)]));
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
