#include "wirewise/comm/host_wires.h"

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/comm/host_channels.h"
#include "wirewise/comm/network_interface.h"
#include "wirewise/comm/ucx_network.h"

namespace wirewise::comm {
namespace {

/// A card: the port, then address and cookie, each with its length before it, then the network's address to the end.
std::string written(const ChannelAddress& where, const std::string& network) {
  std::string text(reinterpret_cast<const char*>(&where.port), sizeof where.port);
  for (const std::string* part : {&where.address, &where.cookie}) {
    text.push_back(static_cast<char>(part->size()));
    text += *part;
  }
  return text + network;
}

std::pair<ChannelAddress, std::string> read(const std::string& card, int rank) {
  ChannelAddress where;
  std::size_t at = sizeof where.port;
  bool whole = card.size() > at;
  if (whole) std::memcpy(&where.port, card.data(), sizeof where.port);
  for (std::string* part : {&where.address, &where.cookie}) {
    const std::size_t length = whole && at < card.size() ? static_cast<unsigned char>(card[at]) : 0;
    whole = whole && at + 1 + length < card.size();
    if (!whole) break;
    *part = card.substr(at + 1, length);
    at += 1 + length;
  }
  if (!whole) {
    throw Error(ErrorKind::kStore, "rendezvous: what rank " + std::to_string(rank) + " says of its network can't be read.",
                "Start all ranks from one build of wirewise, on a store of their own.");
  }
  return {where, card.substr(at)};
}

/// Where the network can't reach a rank, it may be since that died a moment ago: then its channel says so soon.
void refuse_death(Channels& channels, const Acquaintance& known) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kSearchTime{1000};
  for (const auto end = Clock::now() + kSearchTime; Clock::now() < end; std::this_thread::sleep_for(kSearchTime / 200)) {
    const std::vector<int> dead = channels.dead();
    if (dead.empty()) continue;
    throw Error(ErrorKind::kPeerLost, known.name(dead.front()) + " died, or its host can't be reached, while the ranks of several hosts connected.",
                "Look at that rank's own output and the kernel log.");
  }
}

class HostEnd final : public WireEnd {
 public:
  HostEnd() : interface_(network_interface()), network_(make_ucx_end(interface_)), listening_(HostChannels::listen(interface_.address)) {}

  [[nodiscard]] std::string card() const override { return written(HostChannels::address_of(*listening_), network_->address()); }

  Wires connect(int rank, const HostMap& hosts, const std::vector<std::string>& cards, std::chrono::steady_clock::time_point deadline,
                const Acquaintance& known) override {
    std::vector<std::string> addresses(cards.size());
    std::vector<ChannelAddress> channels(cards.size());
    for (int r = 0; r < hosts.ranks(); ++r) {
      if (hosts.host_of(r) == hosts.host_of(rank)) continue;
      const auto i = static_cast<std::size_t>(r);
      std::tie(channels[i], addresses[i]) = read(cards[i], r);
    }
    std::vector<std::pair<int, ChannelAddress>> rails;
    for (const int r : hosts.rails(rank)) rails.emplace_back(r, channels[static_cast<std::size_t>(r)]);
    Wires wires;
    wires.channels = HostChannels::connect(std::move(listening_), rank, rails, deadline, known);
    try {
      wires.network = network_->connect(rank, addresses);
    } catch (const Error&) {
      refuse_death(*wires.channels, known);
      throw;
    }
    return wires;
  }

 private:
  NetworkInterface interface_;
  std::unique_ptr<NetworkEnd> network_;
  std::unique_ptr<HostChannels::Listening> listening_;
};

}  // namespace

std::unique_ptr<WireEnd> make_host_end() { return std::make_unique<HostEnd>(); }

}  // namespace wirewise::comm
