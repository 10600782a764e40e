// Collectives that reduce: all_reduce, reduce, reduce_scatter.
//
// Each rank reduces one slice from all ranks' inputs in the canonical order, and writes the result where it belongs: into its own
// output (reduce_scatter), or into every output that lies in shared memory. Inputs and outputs elsewhere go through staging areas in
// rounds. Small ones go another way: small_operation.h.
#pragma once

#include <optional>
#include <vector>

#include "wirewise/comm/collective.h"
#include "wirewise/comm/reduce.h"

namespace wirewise::comm {

struct ReducePlanPart {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;  // elements of a slice (reduce_scatter), of the whole (all_reduce, reduce)
  ReduceKind kind;
  std::optional<std::size_t> total = {};  // reduce_scatter: elements of the input where the last slices are shorter or empty
};

class ReduceOperation final : public Collective {
 public:
  ReduceOperation(std::shared_ptr<Group> group, const Fingerprint& fingerprint, CallOptions options, std::vector<ReducePlanPart> parts);
  bool step() override;
  [[nodiscard]] bool may_stage() const noexcept override { return size() > 1 && (staged_in_ || shares_results_); }

 private:
  struct Part {
    ReducePlanPart plan;
    std::size_t slice = 0;  // elements of one slice
    std::size_t total = 0;  // elements of the input
  };
  /// A stretch of one part's slices, and where it lies in a round: inputs at `position` of each slice's area, results at twice that.
  struct Piece {
    std::size_t part = 0;
    std::size_t offset = 0;
    std::size_t length = 0;
    std::size_t position = 0;
  };
  struct Cursor {
    std::size_t part = 0;
    std::size_t offset = 0;
  };
  [[nodiscard]] const std::vector<Piece>& next_round(Cursor& cursor);
  /// Elements of slice `s` that a piece covers: the last slices are shorter.
  [[nodiscard]] std::size_t length_in(const Piece& piece, std::size_t slice) const noexcept;
  [[nodiscard]] bool has_output(int r) const noexcept { return fingerprint.root < 0 || fingerprint.root == r; }

  void on_arrival(int peer) override;
  bool publish();
  bool reduce_rounds();
  void reduce_piece(const Piece& piece, std::uint64_t round);
  bool collect();
  [[nodiscard]] bool output_complete() const noexcept;

  std::vector<Part> parts_;
  std::size_t slices_ = 1;
  std::size_t own_slice_ = 0;
  std::size_t area_ = 0;         // bytes of one slice in one round
  bool shares_results_ = false;  // results belong into peers' outputs
  bool chatty_ = false;          // some rank stages: peers hear of every round
  bool result_staged_ = false;   // some peer takes results from this rank's staging area
  bool exposes_ = false;
  bool stream_ = false;  // results don't fit into the caches
  std::uint64_t rounds_ = 0;
  Cursor publish_cursor_;
  Cursor reduce_cursor_;
  Cursor collect_cursor_;
  std::uint64_t published_ = 0;
  std::uint64_t reduced_ = 0;
  std::uint64_t collected_ = 0;
  std::vector<Piece> pieces_;  // next_round's answer
  std::vector<const std::byte*> sources_;
  std::vector<std::byte*> targets_;
  /// Where a peer's buffer lies: mapped here, or in its own address space; neither where it is staged.
  struct Place {
    std::byte* mapped = nullptr;
    std::uint64_t foreign = 0;
  };
  [[nodiscard]] bool reduce_foreign(const Piece& piece, std::size_t count, std::byte* staged);

  std::vector<std::vector<Place>> peer_in_;  // by peer and part
  std::vector<std::vector<Place>> peer_out_;
  std::vector<std::byte> scratch_;  // blocks from and for peers' own memory
};

}  // namespace wirewise::comm
