#include "wirewise/comm/context.h"

#include <unistd.h>

namespace wirewise::comm {

std::shared_ptr<ProcessContext> ProcessContext::get(int ranks) {
  // One progress thread and one mapping a process is the point, so this is process-wide; it owns nothing by itself.
  static std::mutex mutex;
  static std::weak_ptr<ProcessContext> shared;
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  if (owner == ::getpid()) {
    if (auto context = shared.lock()) return context;
  }
  auto context = std::make_shared<ProcessContext>(ranks);
  shared = context;
  owner = ::getpid();
  return context;
}

std::shared_ptr<PeerArena> ProcessContext::map_peer(ArenaId id, std::size_t size, const UniqueFd& file) {
  const std::lock_guard lock(mutex_);
  std::erase_if(peers_, [](const auto& entry) { return entry.second.expired(); });
  auto& known = peers_[id];
  auto mapped = known.lock();
  if (!mapped) {
    mapped = std::make_shared<PeerArena>(file, size);
    known = mapped;
  }
  return mapped;
}

void ProcessContext::free_when(std::function<bool()> unused, std::vector<void*> blocks) {
  {
    const std::lock_guard lock(mutex_);
    leftovers_.push_back({std::move(unused), std::move(blocks)});
  }
  collect();
}

void ProcessContext::collect() noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(leftovers_, [this](const Leftover& leftover) {
    if (!leftover.unused()) return false;
    for (void* const block : leftover.blocks) arena.free(block);
    return true;
  });
}

}  // namespace wirewise::comm
