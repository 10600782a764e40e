// Which ranks of a job are to time messages, so that every class of links among them is measured, and the cluster that such ranks make.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "wirewise/wiring/link_fit.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise {

inline constexpr std::string_view kSharedMemoryClass = "shared memory";

/// What a rank knows of its place.
struct RankSpot {
  int host = 0;  // from 0 without gaps
  std::string host_name;
  int numa = -1;         // the NUMA node that it is bound to; -1: not to one
  std::string sockets;   // class of what joins its host's NUMA nodes; empty: not known
  bool network = false;  // its host has one
  std::string port;      // class of its host's network port; empty: its speed isn't stated
  LinkKind port_kind = LinkKind::kEthernet;
  bool rdma = false;
};

/// Ranks `from` and `to` stand for a class.
struct ClassPair {
  std::string name;  // empty: a network whose speed nothing states
  LinkKind kind = LinkKind::kSharedMemory;
  int from = -1, to = -1;
};
/// One pair of each class: ranks of a host that share a NUMA node (shared memory), ranks of a host on two nodes (sockets), ranks of two
/// hosts with ports of one class. The first of each, in the order of ranks, shared memory before sockets before networks.
[[nodiscard]] std::vector<ClassPair> class_pairs(std::span<const RankSpot> spots);

/// The class of a port of `gbit` Gbit/s: the nearest there is; empty where the speed isn't known (not above 0).
[[nodiscard]] std::string port_class(LinkKind kind, double gbit, bool rdma);
/// The slowest class of a kind that can carry `beta`; the fastest where none can.
[[nodiscard]] std::string port_class_by_beta(LinkKind kind, BytesPerSecond beta, bool rdma);

/// Ranks' cores, the memory or NUMA nodes that they meet in, and a switch between hosts that have a network. Host names that several
/// hosts have get numbers ("node", "node-2"). Every port must have a class.
[[nodiscard]] Wiring wire_spots(std::span<const RankSpot> spots);

/// What a description has for ranks to measure.
struct KnownClasses {
  bool cores = false;                // ranks' cores in memory: else what cores get says nothing about its devices
  std::vector<std::string> sockets;  // classes, each once
  std::vector<std::string> ports;    // classes of hosts' network ports, each once
};
[[nodiscard]] KnownClasses known_classes(const Wiring& wiring);
/// The class of a host's network port in a description; empty where there is no such host or port.
[[nodiscard]] std::string port_class_of(const Wiring& wiring, const std::string& host_name);

/// What one link of the class has of a fit of whole messages. Two of them lie between the pair; a pair of sockets has the memory of both
/// ends besides.
[[nodiscard]] Seconds alpha_of_link(const ClassPair& pair, const LinkFit& fit, std::optional<Seconds> shared_memory_alpha);

}  // namespace wirewise
