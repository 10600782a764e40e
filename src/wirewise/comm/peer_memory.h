// The memory of peers' processes that is not shared: read and written by process_vm_readv and process_vm_writev, where the kernel allows that
// between all ranks of a communicator (one user; no ptrace restriction such as Yama's, no seccomp filter). Each rank tries it on each peer
// before the first use, on a number that only the right process holds there: pids may belong to another namespace.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "wirewise/comm/control.h"
#include "wirewise/comm/link.h"

namespace wirewise::comm {

/// A word that names a place in a peer's own address space has this bit; kEverything has it too.
inline constexpr std::uint64_t kPrivatePlace = std::uint64_t{1} << 63;
[[nodiscard]] inline std::uint64_t private_place(const void* data) noexcept { return reinterpret_cast<std::uintptr_t>(data) | kPrivatePlace; }
[[nodiscard]] inline bool is_private_place(std::uint64_t place) noexcept { return place != kEverything && (place & kPrivatePlace) != 0; }

class PeerMemory {
 public:
  /// `link` outlives this. Ranks that are threads of one process stage instead: sanitizers then see what is read.
  PeerMemory(const Link& link, const Control& control);

  /// True once all ranks are known to reach each other. Never blocks.
  [[nodiscard]] bool open();
  /// From and to `place` (private_place) of rank `r`. Throws PeerLost or Failed; `call()` tells in which call.
  template <typename Call>
  void read(int r, std::uint64_t place, void* to, std::size_t bytes, Call&& call) const {
    if (!copy(false, r, place, to, bytes)) fail(r, "read", call());
  }
  template <typename Call>
  void write(int r, std::uint64_t place, const void* from, std::size_t bytes, Call&& call) const {
    if (!copy(true, r, place, const_cast<void*>(from), bytes)) fail(r, "write", call());
  }

 private:
  enum State : std::uint32_t { kUnknown, kReaches, kFails };
  struct Probe {
    std::uint64_t nonce = 0;
    std::uint64_t sink = 0;  // peers write here
  };
  [[nodiscard]] bool try_peers();
  [[nodiscard]] bool copy(bool out, int r, std::uint64_t place, void* here, std::size_t bytes) const noexcept;
  [[noreturn]] void fail(int r, const char* what, const std::string& call) const;

  Control control_;
  int rank_;
  const std::vector<RankIdentity>& identities_;  // the link's: their names change where it serves hosts (Group::serve)
  Probe probe_;
  std::atomic<bool> open_{false};
};

}  // namespace wirewise::comm
