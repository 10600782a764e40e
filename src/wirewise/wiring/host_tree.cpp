#include "wirewise/wiring/host_tree.h"

namespace wirewise {

HostTree host_tree(const Wiring& wiring, int host) {
  HostTree tree;
  tree.host = host;
  tree.below.resize(wiring.devices.size());
  tree.reached.assign(wiring.devices.size(), false);
  tree.reached[static_cast<std::size_t>(host)] = true;
  const auto out = links_by_device(wiring);
  std::vector<int> next{host}, depth{0};  // nearest first, as relations between devices have it
  for (std::size_t i = 0; i < next.size(); ++i) {
    const int from = next[i];
    tree.depth = depth[i];
    for (int index : out[static_cast<std::size_t>(from)]) {
      const Link& link = wiring.links[static_cast<std::size_t>(index)];
      const bool downwards = link.kind == LinkKind::kPcie || link.kind == LinkKind::kSockets || link.kind == LinkKind::kSharedMemory;
      const auto to = static_cast<std::size_t>(link.to);
      if (!downwards || tree.reached[to] || wiring.devices[to].host != wiring.devices[static_cast<std::size_t>(host)].host) continue;
      tree.reached[to] = true;
      tree.below[static_cast<std::size_t>(from)].push_back({link.to, &link});
      next.push_back(link.to);
      depth.push_back(depth[i] + 1);
    }
  }
  return tree;
}

}  // namespace wirewise
