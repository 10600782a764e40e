#include "wirewise/wiring/slurm_topology.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "wirewise/base/text.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostOfRing = 16;  // nodes, says topology.conf(5)

Device network_switch(const std::string& name, int level) {
  Device device;
  device.name = name;
  device.kind = DeviceKind::kSwitch;
  device.level = level;
  return device;
}

std::string shown(const std::vector<std::string>& names) {
  const std::vector<std::string> first(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(names.size(), 5)));
  return join(first, ", ") + (names.size() > 5 ? " and " + std::to_string(names.size() - 5) + " more" : "");
}

class Builder {
 public:
  Builder(const SlurmTopology& topology, std::string_view file, Reading& reading) : topology_(topology), file_(file), reading_(reading), wiring_(reading.wiring) {}

  void build() {
    refuse_twice(topology_.switches, "switch");
    refuse_twice(topology_.blocks, "block");
    refuse_twice(topology_.rings, "ring");
    for (const auto* groups : {&topology_.switches, &topology_.blocks, &topology_.rings}) {
      for (const SlurmGroup& group : *groups) add_hosts(group);
    }
    add_tree();
    add_blocks();
    add_rings();
  }

 private:
  void note(int line, int column, std::string text, bool partial = false) {
    reading_.notes.push_back({line, column, std::move(text)});
    reading_.partial = reading_.partial || partial;
  }

  void refuse_twice(const std::vector<SlurmGroup>& groups, const std::string& what) const {
    std::map<std::string_view, int> line_of;
    for (const SlurmGroup& group : groups) {
      const auto [first, fresh] = line_of.try_emplace(group.name, group.line);
      if (fresh) continue;
      throw unreadable(file_, group.line, group.column, "the " + what + " " + printable(group.name) + " stands there twice; first in line " + std::to_string(first->second) + ".",
                       "Give each a name of its own.");
    }
  }

  void add_hosts(const SlurmGroup& group) {
    for (const std::string& name : group.nodes) {
      if (host_.contains(name)) continue;
      Device host;
      host.name = name;
      host.kind = DeviceKind::kHost;
      host.host = static_cast<int>(host_.size());
      host_[name] = add_device(wiring_, std::move(host));
    }
  }

  /// A name that no host and no other switch has.
  std::string own_name(const std::string& name) {
    std::string own = name;
    while (host_.contains(own) || !switch_names_.insert(own).second) own += " (switch)";
    return own;
  }

  void join(const std::string& host, int to, int line, const char* what) {
    const auto [first, fresh] = joined_.try_emplace({host, what}, to);
    if (!fresh && first->second == to) return;  // named twice in one list
    if (!fresh) note(line, 0, host + " is also in the " + what + " " + wiring_.devices[static_cast<std::size_t>(first->second)].name + "; Slurm warns of it.");
    add_link(wiring_, host_.at(host), to, assumed_network());
  }

  void add_tree() {
    const std::vector<SlurmGroup>& switches = topology_.switches;
    std::map<std::string_view, std::size_t> index;
    for (std::size_t i = 0; i < switches.size(); ++i) index[switches[i].name] = i;
    std::vector<std::string> missing;  // named below a switch, but not described
    std::map<std::string_view, std::size_t> missing_index;
    std::vector<std::vector<std::size_t>> below(switches.size());
    for (std::size_t i = 0; i < switches.size(); ++i) {
      std::set<std::size_t> seen;
      std::vector<std::string> unknown;
      for (const std::string& name : switches[i].switches) {
        auto found = index.find(name);
        if (found == index.end()) {
          const auto [known, fresh] = missing_index.try_emplace(name, switches.size() + missing.size());
          if (fresh) missing.push_back(name);
          unknown.push_back(name);
          if (seen.insert(known->second).second) below[i].push_back(known->second);
          continue;
        }
        if (found->second == i) throw not_a_tree(switches[i]);
        if (seen.insert(found->second).second) below[i].push_back(found->second);
      }
      if (!unknown.empty()) note(switches[i].below_line, switches[i].below_column, "no line describes " + shown(unknown) + ", below " + switches[i].name + "; Slurm would not start.", true);
      if (switches[i].nodes.empty() && switches[i].switches.empty()) note(switches[i].line, switches[i].column, "the switch " + switches[i].name + " has neither nodes nor switches.");
    }
    below.resize(switches.size() + missing.size());
    const std::vector<int> level = levels(below);
    std::vector<int> device(below.size());
    for (std::size_t i = 0; i < below.size(); ++i) {
      const std::string& name = i < switches.size() ? switches[i].name : missing[i - switches.size()];
      device[i] = add_device(wiring_, network_switch(own_name(name), level[i]));
    }
    for (std::size_t i = 0; i < switches.size(); ++i) {
      for (const std::string& host : switches[i].nodes) join(host, device[i], switches[i].line, "switch");
    }
    add_uplinks(below, level, device);
  }

  Error not_a_tree(const SlurmGroup& group) const {
    return unreadable(file_, group.below_line, group.below_column, "the switch " + printable(group.name) + " is below itself.", "Slurm refuses loops: let each list name only lower switches.");
  }

  /// 0 for leaves, one more than the highest below for the others.
  std::vector<int> levels(const std::vector<std::vector<std::size_t>>& below) const {
    std::vector<int> level(below.size(), -1);
    std::vector<bool> open(below.size(), false);
    for (std::size_t root = 0; root < below.size(); ++root) {
      std::vector<std::pair<std::size_t, std::size_t>> stack;  // switch, its child to look at next
      if (level[root] == -1) stack.emplace_back(root, 0);
      while (!stack.empty()) {
        auto& [at, next] = stack.back();
        open[at] = true;
        if (next == below[at].size()) {
          int highest = -1;
          for (std::size_t child : below[at]) highest = std::max(highest, level[child]);
          level[at] = highest + 1;
          open[at] = false;
          stack.pop_back();
          continue;
        }
        const std::size_t child = below[at][next++];
        if (open[child]) throw not_a_tree(topology_.switches[at]);
        if (level[child] == -1) stack.emplace_back(child, 0);
      }
    }
    return level;
  }

  void add_uplinks(const std::vector<std::vector<std::size_t>>& below, const std::vector<int>& level, const std::vector<int>& device) {
    std::vector<std::size_t> order(below.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return level[a] < level[b]; });
    std::vector<int> parents(below.size(), 0);
    for (const auto& children : below) {
      for (std::size_t child : children) ++parents[child];
    }
    const Link host_link = assumed_network();
    std::vector<double> hosts(below.size(), 0);  // whose links a switch's uplinks carry
    std::vector<std::string> tops;
    for (std::size_t i : order) {
      if (i < topology_.switches.size()) hosts[i] = static_cast<double>(topology_.switches[i].nodes.size());
      for (std::size_t child : below[i]) {
        const double share = std::max(1.0, hosts[child]) / parents[child];
        hosts[i] += share;
        Link link = host_link;
        link.beta *= share;
        link.source = "assumed: uplinks as wide as 10 Gbit/s Ethernet of each host below";
        add_link(wiring_, device[i], device[child], std::move(link));
      }
      if (parents[i] == 0) tops.push_back(wiring_.devices[static_cast<std::size_t>(device[i])].name);
    }
    if (tops.size() > 1 && !one_fabric(tops)) note(0, 0, "nothing joins the switches " + shown(tops) + ": jobs can't span them.");
  }

  /// Whether links lead from the first of these switches to all others.
  bool one_fabric(const std::vector<std::string>& tops) const {
    const auto out = links_by_device(wiring_);
    std::vector<bool> seen(wiring_.devices.size(), false);
    std::vector<int> reached{find_device(wiring_, tops.front(), -1)};
    seen[static_cast<std::size_t>(reached.front())] = true;
    std::set<std::string_view> left(tops.begin() + 1, tops.end());
    for (std::size_t i = 0; i < reached.size(); ++i) {
      for (int index : out[static_cast<std::size_t>(reached[i])]) {
        const int to = wiring_.links[static_cast<std::size_t>(index)].to;
        const Device& device = wiring_.devices[static_cast<std::size_t>(to)];
        if (seen[static_cast<std::size_t>(to)] || device.kind == DeviceKind::kHost) continue;
        seen[static_cast<std::size_t>(to)] = true;
        left.erase(device.name);
        reached.push_back(to);
      }
    }
    return left.empty();
  }

  void add_blocks() {
    const std::vector<SlurmGroup>& blocks = topology_.blocks;
    if (!topology_.block_sizes.empty()) {
      std::string sizes;
      for (int size : topology_.block_sizes) sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
      reading_.facts.push_back({"blocks", "sizes", sizes, topology_.block_sizes_line});
      for (std::size_t i = 1; i < topology_.block_sizes.size(); ++i) {
        const int times = topology_.block_sizes[i] / topology_.block_sizes[i - 1];
        if (times * topology_.block_sizes[i - 1] == topology_.block_sizes[i] && times > 1 && (times & (times - 1)) == 0) continue;
        note(topology_.block_sizes_line, 0, "block size " + std::to_string(topology_.block_sizes[i]) + " is no power of two times " + std::to_string(topology_.block_sizes[i - 1]) + ", as Slurm wants it.");
      }
    }
    if (blocks.empty()) return;
    std::vector<int> device;
    for (const SlurmGroup& block : blocks) {
      Device leaf = network_switch(own_name(block.name), 0);
      leaf.rack = block.name;
      device.push_back(add_device(wiring_, std::move(leaf)));
      if (!topology_.block_sizes.empty() && block.nodes.size() < static_cast<std::size_t>(topology_.block_sizes.front())) {
        note(block.line, block.column, "the block " + block.name + " has " + std::to_string(block.nodes.size()) + " nodes, fewer than the base size of " + std::to_string(topology_.block_sizes.front()) + ".");
      }
      for (const std::string& host : block.nodes) {
        join(host, device.back(), block.line, "block");
        std::string& rack = wiring_.devices[static_cast<std::size_t>(host_.at(host))].rack;
        if (rack.empty()) rack = block.name;
      }
    }
    if (blocks.size() < 2) return;
    const int middle = add_device(wiring_, network_switch(own_name("network"), 1));
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      Link link = assumed_network();
      link.beta *= static_cast<double>(std::max<std::size_t>(1, blocks[i].nodes.size()));
      link.source = "assumed: uplinks as wide as 10 Gbit/s Ethernet of each host below";
      add_link(wiring_, middle, device[i], std::move(link));
    }
    note(0, 0, "the file doesn't say what joins the blocks: a switch, " + wiring_.devices[static_cast<std::size_t>(middle)].name + ", stands for it.");
  }

  void add_rings() {
    for (const SlurmGroup& ring : topology_.rings) {
      const std::vector<std::string>& nodes = ring.nodes;
      if (nodes.size() > kMostOfRing) note(ring.line, ring.column, "the ring " + ring.name + " has " + std::to_string(nodes.size()) + " nodes; Slurm takes up to 16.");
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        const std::size_t next = (i + 1) % nodes.size();
        if (nodes[i] == nodes[next] || (next == 0 && nodes.size() < 3)) continue;
        add_link(wiring_, host_.at(nodes[i]), host_.at(nodes[next]), assumed_network());
      }
    }
    if (topology_.rings.size() > 1) note(0, 0, "the file doesn't say what joins the rings.");
  }

  const SlurmTopology& topology_;
  std::string_view file_;
  Reading& reading_;
  Wiring& wiring_;
  std::map<std::string, int> host_;  // device
  std::set<std::string> switch_names_;
  std::map<std::pair<std::string, std::string_view>, int> joined_;  // host and "switch" or "block": the first that it is in
};

}  // namespace

void add_slurm_topology(const SlurmTopology& topology, std::string_view file, Reading& reading) { Builder(topology, file, reading).build(); }

}  // namespace wirewise
