// A wiring as placement sees it: trees of pipes, so that the way between two devices is found by climbing and not by searching.
//
// A pipe leads from a node to its parent and carries as much in each direction. There are three kinds of tree: a host's PCIe, with the host
// as root; GPUs round the NVSwitches that join them (NVLink islands, also over several hosts); and the network, whose leaves are the ports
// of hosts and whose inner nodes are switches with all that is joined to them below, their uplinks added up (equal-cost paths). NVLinks
// that join two GPUs directly belong to that pair alone.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "wirewise/wiring/wiring.h"

namespace wirewise {

struct Pipe {
  int up = -1;                  // the parent's node; -1: a root
  BytesPerSecond capacity = 0;  // each way; of a root: 0
  int link = -1;                // of the graph: the slowest of those it is made of
};

/// A way from a device into the network: its nearest port.
struct Port {
  int node = -1;          // of the network's tree
  int depth = -1;         // in the host's tree, of where the ways from the device and from the NIC meet: the deeper, the nearer; -1: nowhere
  std::vector<int> pcie;  // pipes between the device and the port's NIC
};

/// A device that a rank may be put on.
struct Slot {
  int device = -1;
  int host = -1;
  int unit = -1;     // its NVLink island, else its host: those of one unit need no network
  int nvlink = -1;   // its node in an island's tree; -1: in none
  int place = -1;    // among the slots of its host, for direct NVLinks
  std::vector<Port> ports;
};

class PlacementModel {
 public:
  /// Throws bad input for devices that stand there twice, or are in no host.
  PlacementModel(const Wiring& wiring, std::span<const int> devices);

  [[nodiscard]] const Wiring& wiring() const noexcept { return *wiring_; }
  [[nodiscard]] const std::vector<Slot>& slots() const noexcept { return slots_; }
  [[nodiscard]] const std::vector<Pipe>& pipes() const noexcept { return pipes_; }
  [[nodiscard]] int units() const noexcept { return units_; }
  [[nodiscard]] int hosts() const noexcept { return hosts_; }
  /// Whether the GPUs of a unit reach each other through NVSwitches.
  [[nodiscard]] bool is_island(int unit) const noexcept { return unit >= hosts_; }

  /// The direct NVLinks between two slots of one host: a link of the graph, or -1.
  [[nodiscard]] int direct(int a, int b) const;
  [[nodiscard]] bool has_direct(int host) const { return class_of_host_[static_cast<std::size_t>(host)] != -1; }
  /// What a ring over direct NVLinks of these slots of one host gets, all disjoint rings together; 0: they make no ring.
  [[nodiscard]] BytesPerSecond ring_rate(std::span<const int> slots) const;

  /// The nodes of a slot's network ports at a height: 0 the ports' switches. Slots whose ports hang on the same switches have equal ones.
  [[nodiscard]] std::vector<int> switches_of(int slot, int height) const;
  [[nodiscard]] int network_height() const noexcept { return height_; }
  [[nodiscard]] std::string name_of_pipe(int pipe) const;

 private:
  void add_host_trees();
  void add_islands();
  void add_network();
  void add_ports();
  void add_meshes();
  int add_pipe(Pipe pipe);

  const Wiring* wiring_;
  std::vector<std::vector<int>> out_;
  std::vector<Slot> slots_;
  std::vector<int> slot_of_;  // of each device; -1: not to be used
  std::vector<Pipe> pipes_;   // the first ones: of the devices, in their hosts' trees
  std::vector<int> depth_;    // of devices in their hosts' trees
  std::vector<int> port_of_link_;  // network node of each link that leaves a host; -1
  int units_ = 0, hosts_ = 0, height_ = 0;
  struct Lanes {  // direct NVLinks of a host's slots, in their order
    std::vector<std::vector<int>> lanes;
    std::vector<std::vector<double>> lane;  // a lane's rate
    mutable std::map<std::uint64_t, double> rates;
  };
  std::vector<Lanes> classes_;     // hosts that are alike share one
  std::vector<int> class_of_host_;  // -1: no direct NVLinks
  std::map<std::pair<int, int>, int> direct_;
};

}  // namespace wirewise
