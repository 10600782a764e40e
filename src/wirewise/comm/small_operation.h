// Small reductions: every rank lays its whole input into a lane of shared memory (or into its call cell), and every rank reduces all it
// needs from there. One meeting, and no waiting afterwards: inputs are copies, so nobody holds anybody's buffer.
//
// A rank whose buffers lie in shared memory may name them instead (Direct). Where all do, each reduces a slice, as of large ones, and the
// copies are saved; where only some do, these make their copies once they know, and tell by `published`.
//
// This is the form that waits as long as it must. What mostly happens instead is quick_call.h: the same exchange within the call itself.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "wirewise/comm/collective.h"
#include "wirewise/comm/reduce_operation.h"

namespace wirewise::comm {

inline constexpr std::size_t kSmallBytes = 16 * 1024;  // the most that a lane holds

/// Whether a reduction is small, by what its fingerprint says: all ranks answer alike. `bytes`: all inputs of one rank.
[[nodiscard]] constexpr bool is_small_reduction(Operation operation, std::size_t bytes, int ranks) noexcept {
  // All ranks read all of everything: with many ranks it pays for less.
  return operation != Operation::kReduce && ranks > 1 && bytes <= kSmallBytes && bytes * static_cast<std::size_t>(ranks) <= 8 * kSmallBytes;
}

/// Bytes of one rank's inputs to a reduction.
[[nodiscard]] std::size_t input_bytes(Operation operation, std::span<const ReducePlanPart> parts, int ranks) noexcept;

class SmallReduction final : public Collective {
 public:
  SmallReduction(std::shared_ptr<Group> group, const Fingerprint& fingerprint, CallOptions options, std::vector<ReducePlanPart> parts);
  bool post() override;
  bool step() override;


 private:
  bool copy_late();
  [[nodiscard]] bool copies_there() const noexcept;
  [[nodiscard]] const std::byte* input_of(int r) const noexcept;
  void reduce_all();

  std::vector<ReducePlanPart> parts_;
  std::size_t bytes_ = 0;
  void* late_copy_ = nullptr;
};

/// The end of a call whose data has moved: waits until no peer uses this rank's buffers any more.
class TrailingCall final : public Collective {
 public:
  TrailingCall(std::shared_ptr<Group> owner, const Fingerprint& print, CallOptions options)
      : Collective(std::move(owner), print, std::move(options)) {
    begin_done();
  }
  bool step() override {
    if (reached(Level::kComplete) || !peers_done()) return false;
    reach(Level::kComplete);
    return true;
  }
};

}  // namespace wirewise::comm
