// all_reduce and reduce_scatter by distance doubling, where hosts are laid out so that a host's sum is a node of the canonical tree and
// their number is a power of two. In round k a host exchanges with the one at distance 2^k what the other will need, and adds: first
// h0+h1 and h2+h3, then (h0+h1)+(h2+h3), which is the order of the tree. So log2 H messages do what H-1 do otherwise.
//
// By halves: each round a host keeps one half of what it still had and gives the other away; at the end it has 1/H of the vector, its
// own slice of a reduce_scatter. An all_reduce then gathers over the same partners in reverse. Of whole vectors (small ones): each round
// the hosts exchange all they have, and every rank ends with the sum.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "wirewise/comm/reduce_operation.h"
#include "wirewise/comm/spanning_operation.h"

namespace wirewise::comm {

class SpanningDoubling final : public SpanningOperation {
 public:
  enum class Form : std::uint8_t { kHalves, kWhole };
  SpanningDoubling(std::shared_ptr<SpanningGroup> owner, const Fingerprint& print, CallOptions options, std::vector<ReducePlanPart> parts,
                   Form form);

 private:
  /// Elements [begin, end) of what this rank deals with.
  struct Region {
    std::size_t begin = 0;
    std::size_t end = 0;
    [[nodiscard]] std::size_t length() const noexcept { return end - begin; }
  };
  struct Round {
    int peer = 0;
    bool peer_first = false;       // its sum is the left one
    Region give;                   // what goes to the peer
    Region keep;                   // what comes from it, and is added
    const std::byte* from = nullptr;  // the sums so far, by element of the whole
    std::byte* into = nullptr;     // where this round's sums go
    std::byte* inbox = nullptr;    // keep.length() elements
    std::size_t sent = 0;          // elements of `give`
    std::size_t combined = 0;      // elements of `keep`
  };
  /// What becomes of one part.
  struct Lane {
    std::size_t part = 0;
    std::size_t offset = 0;  // of its first element in the part's result
    std::size_t length = 0;
    const std::byte* own = nullptr;  // this host's sums
    std::byte* mine = nullptr;       // the same, where they may be overwritten
    std::vector<Round> rounds;
    std::size_t returned = 0;  // rounds, from the last, whose finished halves have been sent back
    std::size_t gathered = 0;  // and have come back
  };

  void begin() override;
  void lay_out();
  void lay_out_slices(Lane& lane);
  void lay_out_rows(Lane& lane);
  void reduce_here();
  void add_rounds(Lane& lane);
  void exchange();
  void receive_round(Lane& lane, std::size_t number);
  void send_ready(Lane& lane, std::size_t number);
  void combine(Lane& lane, std::size_t number, std::size_t from, std::size_t length);
  void finish(Lane& lane);
  void gather_back(Lane& lane);
  void send_back(Lane& lane, std::size_t number);
  void share();
  void take_over_shared();

  [[nodiscard]] std::size_t element(std::size_t part) const { return size_of(parts_[part].kind.in); }
  [[nodiscard]] std::size_t held(std::size_t part) const;
  [[nodiscard]] bool scatters() const noexcept { return fingerprint.operation == Operation::kReduceScatter; }
  /// Where element `at` of the lane's result goes.
  [[nodiscard]] std::byte* result(const Lane& lane, std::size_t at) const;
  /// The first element of the lane's piece `position`, of as many pieces as there are hosts.
  [[nodiscard]] std::size_t cut(const Lane& lane, std::size_t position) const;
  [[nodiscard]] std::size_t slice_of(std::size_t part) const;

  std::vector<ReducePlanPart> parts_;
  Form form_;
  std::vector<Lane> lanes_;
  std::vector<ReducePlanPart> rows_;   // what the host's group reduces
  std::vector<std::byte*> finished_;   // by part: the whole result; all_reduce by halves
};

}  // namespace wirewise::comm
