// The slots of a model as one tree of nearness: core, spine and leaf switches, racks, NVLink islands, hosts, and within a host NVLink quads or
// NUMA nodes and PCIe switches. Levels that divide nothing are left out.
#pragma once

#include <vector>

#include "wirewise/wiring/placement_model.h"

namespace wirewise {

struct PlacementTree {
  struct Node {
    int parent = -1;
    std::vector<int> children;
    int slot = -1;   // of a leaf
    int host = -1;   // of the node that holds all slots of a host
    int slots = 0;   // at and below it
  };
  std::vector<Node> nodes;  // the first is the root; children come after their parents, GPUs of one rail at the same place in every host
};

[[nodiscard]] PlacementTree placement_tree(const PlacementModel& model);

}  // namespace wirewise
