// What a communicator across hosts stands on besides shared memory: a network for the bytes, and channels for the news.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "wirewise/comm/channels.h"
#include "wirewise/comm/host_map.h"
#include "wirewise/comm/network.h"

namespace wirewise::comm {

struct Wires {
  std::shared_ptr<Network> network;
  std::shared_ptr<Channels> channels;
};

/// One rank's side before it is connected. Made once for a communicator and again for each split of it.
class WireEnd {
 public:
  virtual ~WireEnd() = default;
  /// What peers need in order to connect; binary.
  [[nodiscard]] virtual std::string card() const = 0;
  /// `cards`: by rank of the communicator. All ranks' ends must live until all have connected.
  [[nodiscard]] virtual Wires connect(int rank, const HostMap& hosts, const std::vector<std::string>& cards,
                                      std::chrono::steady_clock::time_point deadline, const Acquaintance& known) = 0;
};

using MakeWireEnd = std::function<std::unique_ptr<WireEnd>(int ranks)>;

}  // namespace wirewise::comm
