// One host whose ranks meet in its memory: a star, each rank's cores linked to the host's memory and back.
#include "wirewise/base/error.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise {
namespace {

// What a collective through shared memory reaches on an ordinary server, until it is measured.
constexpr Seconds kAlpha = 20e-6;
constexpr BytesPerSecond kBeta = 8e9;

}  // namespace

Wiring one_host(int ranks) {
  if (ranks < 1) throw bad_input("a host can't hold " + std::to_string(ranks) + " ranks.", "Start 1 rank or more.");
  Wiring wiring;
  wiring.devices.push_back({"host0", DeviceKind::kHost, 0});
  const auto link = [](int from, int to) {
    return Link{
        from, to, LinkKind::kSharedMemory, kAlpha, kBeta, Provenance::kAssumed, "assumed: collectives through shared memory"};
  };
  for (int rank = 0; rank < ranks; ++rank) {
    const int device = static_cast<int>(wiring.devices.size());
    wiring.devices.push_back({"cpu" + std::to_string(rank), DeviceKind::kCpu, 0});
    wiring.rank_device.push_back(device);
    wiring.links.push_back(link(device, 0));
    wiring.links.push_back(link(0, device));
  }
  return wiring;
}

}  // namespace wirewise
