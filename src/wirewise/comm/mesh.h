// How processes of one host find each other: each listens on an abstract Unix socket whose random name it puts into the store, and every
// pair of ranks joins by one connection, over which they pass their arenas. Afterwards the connections carry nothing: that one closes, or
// that a process ends, tells that a rank is gone.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "wirewise/comm/context.h"
#include "wirewise/comm/link.h"
#include "wirewise/comm/store.h"
#include "wirewise/comm/unique_fd.h"

namespace wirewise::comm {

/// The connections of one rank to its peers.
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

/// Meets the ranks of `store` and returns the link to them. Throws Timeout naming the ranks that did not come, BadInput when a rank is
/// taken, Mismatch when sizes differ, Failed when a peer is another user's or on another host.
[[nodiscard]] Link meet_processes(Store& store, int rank, int size, std::chrono::milliseconds timeout, const std::string& name);

}  // namespace wirewise::comm
