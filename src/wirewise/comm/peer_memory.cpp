#include "wirewise/comm/peer_memory.h"

#include <sys/uio.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "wirewise/base/error.h"

namespace wirewise::comm {
namespace {

using Transfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

/// Bytes moved; fewer than asked for only with errno set.
std::size_t move(Transfer transfer, pid_t process, std::uint64_t there, void* here, std::size_t bytes) noexcept {
  std::size_t moved = 0;
  while (moved < bytes) {
    const iovec local{static_cast<std::byte*>(here) + moved, bytes - moved};
    const iovec remote{reinterpret_cast<void*>(there + moved), bytes - moved};
    const ssize_t now = transfer(process, &local, 1, &remote, 1, 0);
    if (now > 0) {
      moved += static_cast<std::size_t>(now);
    } else if (errno != EINTR) {
      break;
    }
  }
  return moved;
}

bool wanted() noexcept {
  const char* const choice = std::getenv("WIREWISE_CMA");
  return choice == nullptr || std::string_view(choice) != "0";
}

}  // namespace

PeerMemory::PeerMemory(const Link& link, const Control& control) : control_(control), rank_(link.rank), identities_(link.identities) {
  bool apart = wanted();
  for (int r = 0; r < link.size; ++r) {
    if (r != rank_ && identities_[static_cast<std::size_t>(r)].pid == identities_[static_cast<std::size_t>(rank_)].pid) apart = false;
  }
  probe_.nonce = random_id().low | 1;
  RankCell& own = control_.rank(rank_);
  own.probe_nonce.store(probe_.nonce, std::memory_order_relaxed);
  if (!apart) own.reaches.store(kFails);
  own.probe.store(reinterpret_cast<std::uintptr_t>(&probe_));
}

bool PeerMemory::try_peers() {
  for (std::size_t i = 0; i < identities_.size(); ++i) {
    const int r = static_cast<int>(i);
    if (r == rank_) continue;
    const RankCell& peer = control_.rank(r);
    const std::uint64_t there = peer.probe.load();
    Probe seen;
    const auto process = static_cast<pid_t>(identities_[i].pid);
    if (move(::process_vm_readv, process, there, &seen, sizeof seen) != sizeof seen || seen.nonce != peer.probe_nonce.load()) return false;
    if (move(::process_vm_writev, process, there + offsetof(Probe, sink), &seen.nonce, sizeof seen.nonce) != sizeof seen.nonce) return false;
  }
  return true;
}

bool PeerMemory::open() {
  if (open_.load(std::memory_order_relaxed)) return true;
  const int ranks = static_cast<int>(identities_.size());
  RankCell& own = control_.rank(rank_);
  if (own.reaches.load() == kUnknown) {
    for (int r = 0; r < ranks; ++r) {
      if (control_.rank(r).probe.load() == 0) return false;
    }
    own.reaches.store(try_peers() ? kReaches : kFails);
  }
  for (int r = 0; r < ranks; ++r) {
    if (control_.rank(r).reaches.load() != kReaches) return false;
  }
  open_.store(true, std::memory_order_relaxed);
  return true;
}

bool PeerMemory::copy(bool out, int r, std::uint64_t place, void* here, std::size_t bytes) const noexcept {
  const auto process = static_cast<pid_t>(identities_[static_cast<std::size_t>(r)].pid);
  return move(out ? ::process_vm_writev : ::process_vm_readv, process, place & ~kPrivatePlace, here, bytes) == bytes;
}

void PeerMemory::fail(int r, const char* what, const std::string& call) const {
  const int error = errno;
  const RankIdentity& identity = identities_[static_cast<std::size_t>(r)];
  const std::string who = "rank " + std::to_string(identity.number) + " (" + identity.host + ", pid " + std::to_string(identity.pid) + ")";
  if (error == ESRCH) {
    throw Error(ErrorKind::kPeerLost, who + " died during " + call + ".",
                "Look at that rank's own output and the kernel log; start again from the last checkpoint.");
  }
  throw Error(ErrorKind::kFailed, std::string("can't ") + what + " the memory of " + who + " during " + call + ": " + std::strerror(error) + ".",
              "Set WIREWISE_CMA=0 to copy through shared memory.");
}

}  // namespace wirewise::comm
