// Moves that all cores share: a source's bytes are dealt out in chunks, and whoever claims one reads it once and writes it into every output
// that lies in shared memory. So the root of a broadcast works too, and an all_gather reads each shard once.
//
// A chunk is claimed at the counter in its source's call cell (CallCell::claims). Outputs that aren't
// shared are filled by their owners, as in other moves. Only for moves too large to be quick calls. A rank's output is complete when all ranks have done their part.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "wirewise/comm/control.h"

namespace wirewise::comm {

/// Whether a move is dealt out, by what its fingerprint says: all ranks answer alike. `bytes`: of one source.
[[nodiscard]] bool fans_out(const CallNumbers& print, std::size_t bytes, int ranks) noexcept;

class Fan {
 public:
  Fan() = default;
  /// `bytes` of each source; `stream`: past the caches.
  Fan(std::size_t bytes, bool stream) noexcept;

  /// A source that this rank can read, claimed at `claims`; its bytes go to `place` of every target. In the order of preference.
  void add_source(const std::byte* data, std::size_t place, std::atomic<std::uint64_t>& claims) { sources_.push_back({data, place, &claims}); }
  void add_target(std::byte* data) { targets_.push_back(data); }
  [[nodiscard]] bool has_targets() const noexcept { return !targets_.empty(); }

  /// Copies one chunk; returns its bytes, 0 when none is left to claim.
  std::size_t step() noexcept;

 private:
  struct Source {
    const std::byte* data = nullptr;
    std::size_t place = 0;
    std::atomic<std::uint64_t>* claims = nullptr;
  };
  void copy(const Source& source, std::size_t begin, std::size_t end) const noexcept;

  std::size_t bytes_ = 0;
  bool stream_ = false;
  std::size_t current_ = 0;
  std::vector<Source> sources_;
  std::vector<std::byte*> targets_;
};

}  // namespace wirewise::comm
