// Which algorithm carries a collective between hosts: a table by operation and size, computed for the communicator's hosts and ranks from
// a model of the network that was measured when it was made. All ranks compute it from the same figures, so they choose alike. Whatever is
// chosen, sums follow the canonical tree: the bits don't depend on it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/base/units.h"
#include "wirewise/comm/control.h"
#include "wirewise/comm/host_map.h"

namespace wirewise::comm {

enum class Algorithm : std::uint8_t {
  kWhole,          // all_reduce: every rank exchanges its host's whole sum with every other host, once
  kWholeDoubling,  // all_reduce: the same with one host at a time, at distances 1, 2, 4 …
  kDirect,         // each piece goes straight to where it belongs
  kDoubling,       // sums: halves exchanged at distances 1, 2, 4 …; an all_reduce gathers them the same way back
  kRing,           // all_gather: each host passes on what it received
  kChain,          // broadcast: from host to host, in chunks
};
[[nodiscard]] std::string_view name_of(Algorithm algorithm) noexcept;

/// What decides which algorithms are possible, and what they cost.
struct HostLayout {
  int hosts = 1;
  int ranks_per_host = 1;     // of the largest host
  bool equal = true;          // all hosts hold equally many ranks
  bool regular = true;        // HostMap::regular()
  [[nodiscard]] static HostLayout of(const HostMap& hosts);
};

/// The operations that have a choice.
[[nodiscard]] std::span<const Operation> operations_with_choice() noexcept;
/// The algorithms of an operation, whatever the layout; empty where there is no choice. Of equally fast ones (within 1 %) the first is taken.
[[nodiscard]] std::span<const Algorithm> algorithms_of(Operation operation) noexcept;
/// Empty when the algorithm can run; else what it needs.
[[nodiscard]] std::string why_unfit(Algorithm algorithm, const HostLayout& layout);

/// The figures of the model. Bytes are those that leave a host, by all its ranks together.
struct CostModel {
  static constexpr int kMostRounds = 24;
  Seconds latency = 30e-6;       // of a message between hosts, from the sender's call to the receiver's next step
  Seconds per_message = 2e-6;    // of each further message that a rank sends at once
  Seconds per_byte = 1e-9;       // when each host sends to one other
  Seconds per_byte_many = 1e-9;  // when each host sends to all others at once
  /// When all exchange with the host at distance 2^k: between racks behind a thin uplink some distances cost more than others. 0: as per_byte.
  std::array<Seconds, kMostRounds> per_byte_at{};
  Seconds local = 5e-6;          // a call on the host's own ranks
  Seconds local_per_byte = 0.2e-9;  // a byte of a vector that they reduce or gather
  Seconds combine_per_byte = 0.2e-9;  // of adding what another host sent, on one rank

  [[nodiscard]] Seconds per_byte_of_round(int k) const noexcept;
  /// The model of a communicator of some of the hosts, by their numbers in this one's. Two hosts whose numbers differ in several bits are taken
  /// to be as far apart as the farthest of those distances.
  [[nodiscard]] CostModel of_part(std::span<const int> hosts) const;
  /// The worse of each figure.
  void take_worse(const CostModel& other) noexcept;
  /// For people.
  [[nodiscard]] std::string describe() const;
};

struct CollectiveShape {
  Operation operation = Operation::kAllReduce;
  Bytes bytes = 0;      // the larger of a rank's input and output
  double widened = 1;   // partial sums on the wire are that many times as wide: 2 for 16-bit floats
};

/// How long the collective takes. With H hosts of p ranks, S the bytes, W = S · widened, and the model's figures written a (latency), o
/// (per_message), b (per_byte), c (per_byte_many), d(i) (per_byte_of_round), k (combine_per_byte), L(x) = local + x · local_per_byte (0 where
/// p = 1), and over the log2 H rounds D = Σ d(i) / 2^(i+1), what halves cost, of which M is the largest; each message of data has another before it
/// by which ranks compare their calls:
///
///   all_reduce      whole            a + 2(H-1)o + (H-1)W(p·c + k) + L(W)            (irregular layouts: L(p·S))
///                   whole_doubling   log2 H · (a + 2o + W·k) + Σ W·p·d(i) + L(W)
///                   direct           2a + 3(H-1)o + (H-1)/H·((W + S)c + W·k/p) + L(W) + L(S)
///                   doubling         log2 H · (2a + 3o) + (W + S)(D + 1.2(D - M)) + (H-1)/H·W·k/p + L(W) + L(S)
///   reduce_scatter  direct           a + 2(H-1)o + (H-1)/H·W(c + k/p) + L(W)
///                   doubling         log2 H · (a + 2o) + W·D + (H-1)/H·W·k/p + L(W)
///   all_gather      direct           a + 2(H-1)o + (H-1)/H·S·c + L(S)
///                   ring             (H-1)(a + o) + o + (H-1)/H·S·b + L(S)
///   broadcast       direct           a + 2(H-1)o + (H-1)S·c + 2L(S)
///                   chain            (H-1)(a + 2o + x·b) + (S - x)b + 2L(S)          with x = min(S, p · kChunkBytes)
[[nodiscard]] Seconds predicted_time(const CostModel& model, const HostLayout& layout, Algorithm algorithm, const CollectiveShape& shape);

/// One wish of WIREWISE_ALGO.
struct AlgorithmWish {
  Operation operation = Operation::kAllReduce;
  Algorithm algorithm = Algorithm::kDirect;
  Bytes from = 0;
  Bytes to = ~Bytes{0};  // inclusive
};

/// Reads "all_reduce=doubling,all_gather=ring@1M-": operation=algorithm[@from-to], separated by commas; either end of a range may be left
/// out, and the first wish that fits a call counts. Throws bad input naming the choices.
[[nodiscard]] std::vector<AlgorithmWish> parse_algorithms(std::string_view text);

/// What a table follows from, besides the layout: that of the communicator that another one is split from.
struct ChoiceBasis {
  CostModel model;
  std::vector<AlgorithmWish> wishes;
};

class AlgorithmTable {
 public:
  AlgorithmTable() = default;
  /// Throws bad input naming the choices when a wish doesn't fit the layout.
  AlgorithmTable(const CostModel& model, const HostLayout& layout, std::vector<AlgorithmWish> wishes);

  [[nodiscard]] Algorithm choose(Operation operation, Bytes bytes) const noexcept;
  [[nodiscard]] Seconds predicted(const CollectiveShape& shape) const;
  [[nodiscard]] const CostModel& model() const noexcept { return model_; }
  [[nodiscard]] const std::vector<AlgorithmWish>& wishes() const noexcept { return wishes_; }
  /// "all_reduce: whole from 0 B, direct from 48.0 KiB" a line, the ranges that wishes set among them.
  [[nodiscard]] std::vector<std::string> describe() const;
  /// Of all that decides: equal on all ranks, or they would choose differently.
  [[nodiscard]] std::string hash() const;

 private:
  struct Row {
    Operation operation;
    Bytes from;
    Algorithm algorithm;
  };
  [[nodiscard]] Algorithm fastest(Operation operation, Bytes bytes) const;

  CostModel model_;
  HostLayout layout_;
  std::vector<AlgorithmWish> wishes_;
  std::vector<Row> rows_;  // by operation, then ascending
};

}  // namespace wirewise::comm
