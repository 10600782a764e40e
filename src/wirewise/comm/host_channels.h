// TCP connections between ranks of different hosts that carry no data of operations: one that closes tells that a rank died (or its host
// vanished: keep-alive), and failures travel over them, so that every host reports the first cause.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "wirewise/comm/channels.h"

namespace wirewise::comm {

/// Where a rank listens for its peers, and the word that proves a connection to be a rank's.
struct ChannelAddress {
  std::string address;  // numeric, IPv4 or IPv6
  std::uint16_t port = 0;
  std::string cookie;  // 32 hex digits; never logged
};

class HostChannels final : public Channels {
 public:
  /// Bound to one address, not yet connected.
  struct Listening {
    UniqueFd socket;
    ChannelAddress where;
  };

  /// Binds a free port of `address` (numeric; the interface chosen for the job, never all interfaces).
  [[nodiscard]] static std::unique_ptr<Listening> listen(const std::string& address);
  [[nodiscard]] static ChannelAddress address_of(const Listening& listening);
  /// Connects with the ranks in `peers` (rank and where it listens): to lower ranks actively, from higher ones by accepting. Strangers'
  /// connections are dropped and forgotten. Throws Timeout or PeerLost naming ranks and addresses, or what known.look_after throws.
  [[nodiscard]] static std::shared_ptr<HostChannels> connect(std::unique_ptr<Listening> listening, int rank,
                                                             const std::vector<std::pair<int, ChannelAddress>>& peers,
                                                             std::chrono::steady_clock::time_point deadline,
                                                             const Acquaintance& known = {});
  ~HostChannels() override;

  /// Ranks whose connection has closed or gone silent. Never blocks.
  [[nodiscard]] std::vector<int> dead() override;
  /// Sends a message (up to 64 KiB) to one rank, or to all with kAnyPeer. Never blocks: what a peer doesn't take in is kept for later
  /// calls of any function here. From any thread.
  void tell(int peer, std::string_view message) noexcept override;
  /// Messages that came since the last call, with their senders. Never blocks.
  [[nodiscard]] std::vector<std::pair<int, std::string>> heard() override;

  struct State;  // private to the host_channels* files
  explicit HostChannels(std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;
};

}  // namespace wirewise::comm
