// What all communicators of a process share: its arena, its progress thread, and the peers' arenas as they are mapped here. It lives as
// long as any communicator does. A forked child gets its own.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "wirewise/comm/arena.h"
#include "wirewise/comm/engine.h"

namespace wirewise::comm {

class ProcessContext {
 public:
  /// The context of this process, made on first use. `ranks`: the size of the communicator that is being made.
  [[nodiscard]] static std::shared_ptr<ProcessContext> get(int ranks);

  explicit ProcessContext(int ranks) : arena(ranks), engine(arena.header()) {}

  /// The arena of a peer, mapped once however many communicators share it.
  [[nodiscard]] std::shared_ptr<PeerArena> map_peer(ArenaId id, std::size_t size, const UniqueFd& file);

  /// Memory that peers may still use: freed once `unused` says so, looked at with later calls of this.
  void free_when(std::function<bool()> unused, std::vector<void*> blocks);
  void collect() noexcept;

  Arena arena;
  Engine engine;

 private:
  struct Leftover {
    std::function<bool()> unused;
    std::vector<void*> blocks;
  };
  std::mutex mutex_;
  std::map<ArenaId, std::weak_ptr<PeerArena>> peers_;
  std::vector<Leftover> leftovers_;
};

}  // namespace wirewise::comm
