// Bytes between ranks that share no memory: what a communicator that spans hosts needs of a wire. UCX is one network (ucx_network.h); a
// network between threads of one process stands in for it in tests.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace wirewise::comm {

inline constexpr int kAnyPeer = -1;
inline constexpr std::uint64_t kMostTag = (std::uint64_t{1} << 40) - 1;

/// A send or receive in flight. Letting go of one that isn't done cancels it, and returns only once the network no longer touches its
/// memory.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// True once the memory is the caller's again. Throws PeerLost (naming the peer's rank alone; the caller adds the rest) or Failed.
  [[nodiscard]] virtual bool done() = 0;
  /// Of a receive that is done: who sent, and how many bytes came.
  [[nodiscard]] virtual int source() const noexcept = 0;
  [[nodiscard]] virtual std::size_t bytes() const noexcept = 0;
};

/// The wires of one rank of one communicator. Ranks are the communicator's. Safe to call from several threads.
class Network {
 public:
  virtual ~Network() = default;

  /// Messages of one pair with equal tags arrive in order. `tag` is at most kMostTag. `data` stays as it is until the transfer is done.
  [[nodiscard]] virtual std::unique_ptr<Transfer> send(int peer, std::uint64_t tag, const void* data, std::size_t bytes) = 0;
  /// `peer` may be kAnyPeer. A message of fewer bytes is received and tells so; a longer one fails the transfer, naming both sizes.
  [[nodiscard]] virtual std::unique_ptr<Transfer> recv(int peer, std::uint64_t tag, void* data, std::size_t bytes) = 0;

  /// The sender of a message of this tag that has come and that no receive has taken; kAnyPeer: none.
  [[nodiscard]] virtual int probe(std::uint64_t tag) = 0;

  /// Advances what is in flight. True when anything moved.
  virtual bool progress() = 0;
  /// Sleeps until something may have moved, wake() was called, or the time is over.
  virtual void sleep(std::chrono::nanoseconds most) = 0;
  /// Wakes a sleeper, from any thread.
  virtual void wake() noexcept = 0;

  /// What it runs over, for people: "tcp over eth0", "rc_mlx5 over mlx5_0:1".
  [[nodiscard]] virtual std::string describe() const = 0;
};

/// Makes the network of one rank in two steps: each side shows its address, then is told all of its peers'.
class NetworkEnd {
 public:
  virtual ~NetworkEnd() = default;
  /// Binary. Peers connect by it.
  [[nodiscard]] virtual std::string address() const = 0;
  /// `addresses`: by rank; empty for ranks that this one never talks to (those on its own host).
  [[nodiscard]] virtual std::unique_ptr<Network> connect(int rank, const std::vector<std::string>& addresses) = 0;
};

/// Ends of one communicator: called once for the communicator and again for each split of it.
using MakeNetworkEnd = std::function<std::unique_ptr<NetworkEnd>()>;

}  // namespace wirewise::comm
