// Hosts whose ranks meet in their memory: a star each, the ranks' cores linked to the host's memory and back; several hosts are a star round
// a switch.
#include <algorithm>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise {
namespace {

// What a collective through shared memory reaches on an ordinary server, until it is measured.
constexpr Seconds kAlpha = 20e-6;
constexpr BytesPerSecond kBeta = 8e9;

/// What a TCP connection over 10 Gbit/s Ethernet takes for a message, and reaches.
constexpr Seconds kNetworkAlpha = 50e-6;
constexpr BytesPerSecond kNetworkBeta = 1.25e9;

}  // namespace

Wiring one_host(int ranks) {
  if (ranks < 1) throw bad_input("a host can't hold " + std::to_string(ranks) + " ranks.", "Start 1 rank or more.");
  return wire_hosts(std::vector<int>(static_cast<std::size_t>(ranks), 0));
}

Link assumed_network() {
  return {-1, -1, LinkKind::kEthernet, kNetworkAlpha, kNetworkBeta, Provenance::kAssumed, "assumed: 10 Gbit/s Ethernet"};
}

Wiring wire_hosts(const std::vector<int>& host_of, const Link& network) {
  const int hosts = host_of.empty() ? 0 : *std::max_element(host_of.begin(), host_of.end()) + 1;
  for (int host = 0; host < std::max(hosts, 1); ++host) {
    if (std::find(host_of.begin(), host_of.end(), host) != host_of.end()) continue;
    throw bad_input("host " + std::to_string(host) + " of " + std::to_string(hosts) + " holds no rank.", "Number hosts from 0 without gaps.");
  }
  Wiring wiring;
  for (int host = 0; host < hosts; ++host) wiring.devices.push_back({"host" + std::to_string(host), DeviceKind::kHost, host});
  const auto join = [&](int a, int b, Link link) {
    link.from = a;
    link.to = b;
    wiring.links.push_back(link);
    std::swap(link.from, link.to);
    wiring.links.push_back(link);
  };
  const Link memory{-1, -1, LinkKind::kSharedMemory, kAlpha, kBeta, Provenance::kAssumed, "assumed: collectives through shared memory"};
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    const int device = static_cast<int>(wiring.devices.size());
    wiring.devices.push_back({"cpu" + std::to_string(rank), DeviceKind::kCpu, host_of[rank]});
    wiring.rank_device.push_back(device);
    join(device, host_of[rank], memory);
  }
  if (hosts == 1) return wiring;
  const int middle = static_cast<int>(wiring.devices.size());
  wiring.devices.push_back({"network", DeviceKind::kSwitch, -1});
  for (int host = 0; host < hosts; ++host) join(host, middle, network);
  return wiring;
}

}  // namespace wirewise
