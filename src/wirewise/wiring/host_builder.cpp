#include "wirewise/wiring/host_builder.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/nccl_words.h"

namespace wirewise {
namespace {

constexpr int kMostNvlinks = 18;  // of one GPU, up to Blackwell
constexpr int kMostNvlinks3 = 12;  // up to Ampere: more are NVLink 4 at least, and only an NVSwitch joins two GPUs by so many

/// Sets of indices that grow together.
class Clusters {
 public:
  explicit Clusters(std::size_t size) : parent_(size) { std::iota(parent_.begin(), parent_.end(), std::size_t{0}); }
  [[nodiscard]] std::size_t find(std::size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  /// The smaller index leads.
  void merge(std::size_t a, std::size_t b) {
    a = find(a);
    b = find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<std::size_t> parent_;
};

class HostBuilder {
 public:
  HostBuilder(Wiring& wiring, HostPairs pairs) : wiring_(wiring), pairs_(std::move(pairs)), size_(pairs_.devices.size()) {}

  int build(const std::string& name) {
    host_index_ = hosts_of(wiring_);
    Device host;
    host.name = name;
    host.kind = DeviceKind::kHost;
    host.host = host_index_;
    host_ = add_device(wiring_, std::move(host));
    for (Device& device : pairs_.devices) {
      device.host = host_index_;
      first_ = first_ == -1 ? static_cast<int>(wiring_.devices.size()) : first_;
      add_device(wiring_, device);
    }
    add_tree();
    add_nvlinks();
    return host_;
  }

 private:
  [[nodiscard]] int index(std::size_t i) const { return first_ + static_cast<int>(i); }

  Clusters within(Connection most) {
    Clusters clusters(size_);
    for (std::size_t i = 0; i < size_; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const auto& near = pairs_.connection(i, j);
        if (near && *near <= most) clusters.merge(i, j);
      }
    }
    return clusters;
  }

  /// Devices near NUMA nodes of one number share a node, but for those that are stated to be further from each other: virtual machines and
  /// sub-NUMA clusters show such.
  void join_by_number(Clusters& nodes) {
    std::map<std::pair<std::size_t, std::size_t>, bool> apart;  // by the leaders of both, found once
    const auto far = [&](std::size_t a, std::size_t b) {
      const auto [known, fresh] = apart.try_emplace(std::minmax(nodes.find(a), nodes.find(b)), false);
      if (!fresh) return known->second;
      for (std::size_t i = 0; i < size_ && !known->second; ++i) {
        for (std::size_t j = 0; j < size_ && !known->second; ++j) {
          known->second = nodes.find(i) == nodes.find(a) && nodes.find(j) == nodes.find(b) && pairs_.connection(i, j) == Connection::kSys;
        }
      }
      return known->second;
    };
    std::map<int, std::vector<std::size_t>> leaders;  // of a number, in the order of devices
    for (std::size_t i = 0; i < size_; ++i) {
      const int numa = pairs_.devices[i].numa;
      if (numa < 0) continue;
      std::vector<std::size_t>& those = leaders[numa];
      const auto near = std::find_if(those.begin(), those.end(), [&](std::size_t other) { return nodes.find(other) == nodes.find(i) || !far(other, i); });
      if (near == those.end()) {
        those.push_back(i);
      } else if (nodes.find(*near) != nodes.find(i)) {
        nodes.merge(*near, i);
        apart.clear();
      }
    }
  }

  int add_node(DeviceKind kind, const std::string& name, int parent, Link link, int numa) {
    Device device;
    device.name = name;
    device.kind = kind;
    device.host = host_index_;
    device.numa = numa;
    const int added = add_device(wiring_, std::move(device));
    add_link(wiring_, parent, added, std::move(link));
    return added;
  }

  void add_tree() {
    Clusters nodes = within(Connection::kNode);
    join_by_number(nodes);
    Clusters bridges = within(Connection::kPhb);
    Clusters trees = within(Connection::kPxb);
    Clusters switches = within(Connection::kPix);
    std::map<std::size_t, int> node_of, bridge_of, tree_of, switch_of;
    std::map<std::size_t, int> switches_in, members_in;  // of a tree, of a switch
    for (std::size_t i = 0; i < size_; ++i) {
      if (switches.find(i) == i) ++switches_in[trees.find(i)];
      ++members_in[switches.find(i)];
    }
    const auto numa_of = [&](std::size_t i) {
      for (std::size_t j = 0; j < size_; ++j) {
        if (nodes.find(j) == nodes.find(i) && pairs_.devices[j].numa >= 0) return pairs_.devices[j].numa;
      }
      return -1;
    };
    // Nodes that the system numbers keep their order.
    std::vector<std::size_t> order(size_);
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto rank_of = [&](std::size_t i) { return numa_of(i) < 0 ? std::numeric_limits<int>::max() : numa_of(i); };
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return rank_of(a) < rank_of(b); });
    int unknown = 0, bridge_count = 0, switch_count = 0;
    std::set<int> numbered;
    for (const std::size_t i : pairs_.loose) add_link(wiring_, host_, index(i), pcie_link(0, 0, Provenance::kAssumed));
    for (std::size_t i : order) {
      if (std::find(pairs_.loose.begin(), pairs_.loose.end(), i) != pairs_.loose.end()) continue;
      const int numa = numa_of(i);
      auto& node = node_of.try_emplace(nodes.find(i), -1).first->second;
      if (node == -1) {
        const std::string name = numa >= 0 && numbered.insert(numa).second ? "numa" + std::to_string(numa) : "numa?" + std::to_string(unknown++);
        node = add_node(DeviceKind::kNumaNode, name, host_, sockets_link("", Provenance::kAssumed), numa);
      }
      if (wiring_.devices[static_cast<std::size_t>(index(i))].numa < 0) wiring_.devices[static_cast<std::size_t>(index(i))].numa = numa;
      auto& bridge = bridge_of.try_emplace(bridges.find(i), -1).first->second;
      if (bridge == -1) {
        Link inside = pcie_link(0, 0, Provenance::kAssumed);
        bridge = add_node(DeviceKind::kHostBridge, "bridge" + std::to_string(bridge_count++), node, std::move(inside), numa);
      }
      int parent = bridge;
      if (switches_in[trees.find(i)] > 1) {
        auto& tree = tree_of.try_emplace(trees.find(i), -1).first->second;
        if (tree == -1) tree = add_node(DeviceKind::kPcieSwitch, "switch" + std::to_string(switch_count++), bridge, pcie_link(0, 0, Provenance::kAssumed), numa);
        parent = tree;
      }
      if (switches_in[trees.find(i)] > 1 || members_in[switches.find(i)] > 1) {
        auto& own = switch_of.try_emplace(switches.find(i), -1).first->second;
        if (own == -1) own = add_node(DeviceKind::kPcieSwitch, "switch" + std::to_string(switch_count++), parent, pcie_link(0, 0, Provenance::kAssumed), numa);
        parent = own;
      }
      add_link(wiring_, parent, index(i), pcie_link(0, 0, Provenance::kAssumed));
    }
  }

  void add_nvlinks() {
    std::vector<int> sum(size_, 0), most(size_, 0), peers(size_, 0);
    for (std::size_t i = 0; i < size_; ++i) {
      for (std::size_t j = 0; j < size_; ++j) {
        const int links = i == j ? 0 : pairs_.links(i, j);
        sum[i] += links;
        most[i] = std::max(most[i], links);
        peers[i] += links > 0 ? 1 : 0;
      }
    }
    const bool many = std::any_of(most.begin(), most.end(), [](int links) { return links > kMostNvlinks3; });
    const bool through_switch = many || std::any_of(sum.begin(), sum.end(), [](int links) { return links > kMostNvlinks; });
    const auto bundle = [&](std::size_t i, int links) {
      const int capability = compute_capability_of(pairs_.devices[i].model);
      if (nvlink_generation(capability) > 0) return nvlinks_of(capability, links);
      return nvlink_link(many ? 4 : 0, links, Provenance::kAssumed);
    };
    if (!through_switch) {
      for (std::size_t i = 0; i < size_; ++i) {
        for (std::size_t j = i + 1; j < size_; ++j) {
          if (pairs_.links(i, j) > 0) add_link(wiring_, index(i), index(j), bundle(i, pairs_.links(i, j)));
        }
      }
      return;
    }
    Device nvswitch;
    nvswitch.name = "nvswitch0";
    nvswitch.kind = DeviceKind::kNvSwitch;
    nvswitch.host = host_index_;
    for (std::size_t i = 0; i < size_ && !nvswitch.nvls; ++i) nvswitch.nvls = most[i] > 0 && bundle(i, most[i]).generation >= 4;
    const int middle = add_device(wiring_, std::move(nvswitch));
    for (std::size_t i = 0; i < size_; ++i) {
      if (most[i] > 0) add_link(wiring_, index(i), middle, bundle(i, most[i]));
    }
  }

  Wiring& wiring_;
  HostPairs pairs_;
  std::size_t size_;
  int host_index_ = 0, host_ = -1, first_ = -1;
};

}  // namespace

int add_host(Wiring& wiring, const std::string& name, HostPairs pairs) { return HostBuilder(wiring, std::move(pairs)).build(name); }

}  // namespace wirewise
