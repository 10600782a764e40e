#include "wirewise/comm/host_wires.h"

#include <cstring>
#include <string>
#include <utility>

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
    wires.network = network_->connect(rank, addresses);
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
