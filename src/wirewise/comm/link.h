// What joins one rank to its group: where the peers' memory is mapped, who they are, and whether they live. Made by the rendezvous of
// processes, by the maker of thread ranks, or from another link by split().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "wirewise/comm/context.h"
#include "wirewise/comm/flight_recorder.h"

namespace wirewise::comm {

struct RankIdentity {
  std::string host;
  long pid = 0;
  int number = 0;  // the rank that errors name: of the communicator that the user sees
};

/// Tells which ranks have died. Threads have none: a thread can't die alone.
class Liveness {
 public:
  virtual ~Liveness() = default;
  /// Ranks (of the link that made this) whose process has ended.
  [[nodiscard]] virtual std::vector<int> dead() = 0;
};

struct Link {
  int rank = 0;
  int size = 1;
  std::shared_ptr<ProcessContext> context;
  std::vector<std::byte*> bases;                     // by rank: its arena as mapped here
  std::vector<std::shared_ptr<PeerArena>> mappings;  // keeps them mapped
  std::vector<RankIdentity> identities;              // by rank
  std::shared_ptr<Liveness> liveness;
  std::vector<int> liveness_ranks;  // by rank: its number in `liveness`
  int control_owner = 0;            // the rank whose arena holds the control memory
  std::uint64_t control = 0;        // its offset there
  bool own_core = false;            // every rank of the host can have a core of its own: they may spin
  bool inner = false;               // serves a communicator across hosts: calls are described by their labels alone
  std::shared_ptr<FlightRecorder> flight;  // null: calls are not recorded
  std::vector<int> job_ranks;              // by rank: its number in the job, -1 where unknown; empty: unknown for all

  [[nodiscard]] ArenaHeader& arena_header(int r) const noexcept {
    return *reinterpret_cast<ArenaHeader*>(bases[static_cast<std::size_t>(r)]);
  }
};

/// Ranks of this link that have died, ascending.
[[nodiscard]] std::vector<int> dead_ranks(const Link& link);

/// Tells whether memory of the link isn't used any more: each rank has `left` it, or died. It keeps no memory mapped.
[[nodiscard]] std::function<bool()> once_all_left(const Link& link, std::function<bool(int)> left);

}  // namespace wirewise::comm
