// The machine as a graph: devices and the links between them, each with bandwidth and latency per direction and where the figure
// comes from. First cut: one host or several alike, with the classes of link that their ranks meet in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wirewise/base/units.h"

namespace wirewise {

enum class DeviceKind : std::uint8_t { kHost, kSocket, kNumaNode, kCpu, kGpu, kNic, kSwitch };
enum class LinkKind : std::uint8_t { kSharedMemory, kPcie, kNvlink, kEthernet, kInfiniband };
enum class Provenance : std::uint8_t { kSpec, kDriver, kMeasured, kAssumed };
[[nodiscard]] std::string_view name_of(LinkKind kind) noexcept;
[[nodiscard]] std::string_view name_of(Provenance provenance) noexcept;

struct Device {
  std::string name;
  DeviceKind kind = DeviceKind::kHost;
  int host = 0;
};

/// A link's cost for a message of s bytes in one direction is alpha + s / beta.
struct Link {
  int from = -1, to = -1;              // device indices
  LinkKind kind = LinkKind::kSharedMemory;
  Seconds alpha = 0;
  BytesPerSecond beta = 0;             // per direction
  Provenance provenance = Provenance::kAssumed;
  std::string source;
};

struct Wiring {
  std::vector<Device> devices;
  std::vector<Link> links;
  std::vector<int> rank_device;        // device of each rank
};

/// This host with `ranks` ranks that meet in its memory.
[[nodiscard]] Wiring one_host(int ranks);

/// What hosts reach each other over until it is measured or told: 10 Gbit/s Ethernet, each way.
[[nodiscard]] Link assumed_network();

/// Ranks on hosts, rank r on host_of[r] (numbered from 0 without gaps): each host as one_host makes it, joined to a switch by a link like
/// `network` each way. One host has no network.
[[nodiscard]] Wiring wire_hosts(const std::vector<int>& host_of, const Link& network = assumed_network());

}  // namespace wirewise
