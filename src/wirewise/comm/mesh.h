// How processes of one host find each other: each listens on an abstract Unix socket whose random name its card tells, and every pair of
// ranks joins by one connection, over which they pass their arenas. Afterwards the connections carry nothing: that one closes, or that a
// process ends, tells that a rank is gone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "wirewise/comm/cards.h"
#include "wirewise/comm/context.h"
#include "wirewise/comm/link.h"
#include "wirewise/comm/unique_fd.h"

namespace wirewise::comm {

/// The connections of one rank to its peers on this host.
class Mesh final : public Liveness {
 public:
  struct Peer {
    UniqueFd socket;
    UniqueFd process;  // pidfd; invalid where the kernel gives none
  };
  explicit Mesh(std::vector<Peer> peers) : peers_(std::move(peers)) {}
  [[nodiscard]] std::vector<int> dead() override;

 private:
  std::vector<Peer> peers_;
};

/// The socket of `own` card, listening. Before the card is shown.
[[nodiscard]] UniqueFd listen_for_peers(const Card& own);

/// Joins `members`, the ranks of this host in ascending order (this rank among them), into a link whose ranks are their places in
/// `members`. Throws PeerLost or Timeout naming the rank that did not join, Failed when a peer is another user's.
[[nodiscard]] Link join_host(const Cards& cards, const std::vector<int>& members, UniqueFd listener);

}  // namespace wirewise::comm
