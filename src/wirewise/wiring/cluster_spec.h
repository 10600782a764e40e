// What a cluster.toml says, before it becomes a graph.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "wirewise/wiring/host_template.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise {

struct ClusterHost {
  std::string name, rack;
  std::shared_ptr<const HostTemplate> kind;
  const LinkClass* port = nullptr;  // of its NICs, where it differs from the network's
  bool out = false;                 // taken out: its place stays empty
};

/// A level of network switches; level 0 joins hosts, level n the switches of level n-1.
struct ClusterLevel {
  std::string name;               // the prefix of its switches' names
  int below = 0;                  // hosts, or groups of the level below, in each group; 0: all
  bool by_rack = false;           // level 0: a group is a rack
  int switches = 1;               // of each group
  double oversubscription = 1;    // bandwidth towards hosts over bandwidth upwards
  int uplinks = 0;                // ports upwards of each switch; 0: by oversubscription
  const LinkClass* uplink = nullptr;
};

struct ClusterNetwork {
  const LinkClass* port = nullptr;  // null: what the hosts' NICs are
  int nics = 0;                     // of each host; 0: all
  bool rails = false;               // NIC i of every host on leaf i of its group
  std::vector<ClusterLevel> levels;
};

struct ClusterSpec {
  std::vector<ClusterHost> hosts;
  ClusterNetwork network;
};

/// The graph. Throws bad input when levels leave parts that nothing joins.
[[nodiscard]] Wiring build_cluster(const ClusterSpec& spec);

/// `kind` without some GPUs and NICs, by their numbers.
[[nodiscard]] HostTemplate without(const HostTemplate& kind, const std::vector<int>& gpus, const std::vector<int>& nics);

}  // namespace wirewise
