// The machine as a graph: devices and the links between them, each with bandwidth and latency per direction and where the figure comes
// from. Readers (reading.h), this machine (discover.h) and descriptions (cluster_file.h) all give it; paths, placement and the simulator
// use it.
//
// The devices of a host are a tree that PCIe and the sockets' interconnect make: host, NUMA nodes, host bridges (root complexes), PCIe
// switches, and GPUs and NICs as leaves. NVLinks join GPUs besides, directly or through NVSwitches; networks join NICs to switches. A host
// whose inside isn't known is its ranks' cores round the host itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/base/units.h"

namespace wirewise {

enum class DeviceKind : std::uint8_t {
  kHost,        // a machine, and its memory
  kSocket,      // between host and NUMA nodes where a socket has several
  kNumaNode,
  kHostBridge,  // a PCIe root complex
  kPcieSwitch,
  kCpu,         // a rank's core
  kGpu,
  kNvSwitch,
  kNic,
  kSwitch,      // of the network between hosts
};
enum class LinkKind : std::uint8_t { kSharedMemory, kSockets, kPcie, kNvlink, kEthernet, kInfiniband, kXgmi };  // xGMI between AMD's GPUs
enum class Provenance : std::uint8_t { kSpec, kDriver, kMeasured, kAssumed };
[[nodiscard]] std::string_view name_of(DeviceKind kind) noexcept;
[[nodiscard]] std::string_view name_of(LinkKind kind) noexcept;
[[nodiscard]] std::string_view name_of(Provenance provenance) noexcept;
/// NVLink or xGMI: what joins GPUs besides PCIe.
[[nodiscard]] constexpr bool joins_gpus(LinkKind kind) noexcept { return kind == LinkKind::kNvlink || kind == LinkKind::kXgmi; }

struct Device {
  std::string name;  // unique within its host; a host's and a network switch's own name are unique in the graph
  DeviceKind kind = DeviceKind::kHost;
  int host = -1;     // index among the hosts; -1 outside of hosts
  int numa = -1;     // NUMA node as the system numbers it; -1 not known
  int level = 0;     // of a network switch: 0 leaf, 1 spine, 2 core
  bool placed = true;  // false: its place among the PCIe of its host is not known
  std::string pci{};     // "0000:3b:00.0"; empty where there is none or it isn't known
  std::string model{};   // "NVIDIA H100 80GB HBM3"
  std::string cpus{};    // CPUs near it, as Linux lists them: "0-31,64-95"
  std::string rack{};    // of a host or network switch
  Bytes memory = 0;    // of a GPU or NUMA node; 0 not known
  bool nvls = false;   // an NVSwitch that reduces in the switch
};

/// A link's cost for a message of s bytes in one direction is alpha + s / beta. Each direction is a link of its own.
struct Link {
  int from = -1, to = -1;              // device indices
  LinkKind kind = LinkKind::kSharedMemory;
  Seconds alpha = 0;
  BytesPerSecond beta = 0;             // what messages get, per direction
  Provenance provenance = Provenance::kAssumed;
  std::string source{};
  int lanes = 0;                       // PCIe lanes, or NVLinks side by side; 0 not known
  int generation = 0;                  // of PCIe or NVLink; 0 not known
  BytesPerSecond spec = 0;             // what the standard says, per direction; 0 not known
};

struct Wiring {
  std::vector<Device> devices;
  std::vector<Link> links;
  std::vector<int> rank_device;        // device of each rank
};

/// Appends a device and returns its index.
int add_device(Wiring& wiring, Device device);
/// Appends `link` from `a` to `b` and one like it back.
void add_link(Wiring& wiring, int a, int b, Link link);
/// How many hosts there are.
[[nodiscard]] int hosts_of(const Wiring& wiring) noexcept;
/// The device of a host with this name, or -1. `host` -1: a device outside of hosts.
[[nodiscard]] int find_device(const Wiring& wiring, std::string_view name, int host = 0) noexcept;
/// Indices of the devices of a kind, in order; `host` -1: of all hosts.
[[nodiscard]] std::vector<int> devices_of(const Wiring& wiring, DeviceKind kind, int host = -1);
/// The devices of each host, in the graph's order; of one kind where it is given. devices_of() for one host looks at all the graph's devices.
[[nodiscard]] std::vector<std::vector<int>> devices_by_host(const Wiring& wiring, std::optional<DeviceKind> kind = std::nullopt);
/// Each host by itself, its devices and the links between them, in the graph's order, and behind them the NVSwitches outside of hosts that
/// its GPUs hang on; ranks are left out.
[[nodiscard]] std::vector<Wiring> hosts_apart(const Wiring& wiring);
/// The links out of each device.
[[nodiscard]] std::vector<std::vector<int>> links_by_device(const Wiring& wiring);

/// This host with `ranks` ranks that meet in its memory.
[[nodiscard]] Wiring one_host(int ranks);

/// What hosts reach each other over until it is measured or told: 10 Gbit/s Ethernet, each way.
[[nodiscard]] Link assumed_network();

/// Ranks on hosts, rank r on host_of[r] (numbered from 0 without gaps): each host as one_host makes it, joined to a switch by a link like
/// `network` each way. One host has no network.
[[nodiscard]] Wiring wire_hosts(const std::vector<int>& host_of, const Link& network = assumed_network());

}  // namespace wirewise
