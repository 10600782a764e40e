// Collectives across hosts that only move bytes: all_gather, broadcast, and the exchanges that pair ranks (all_to_all, gather, scatter).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "wirewise/comm/move_operation.h"
#include "wirewise/comm/spanning_operation.h"

namespace wirewise::comm {

/// Nothing to move: all have entered once every rail has spoken for its host.
class SpanningBarrier final : public SpanningOperation {
 public:
  SpanningBarrier(std::shared_ptr<SpanningGroup> owner, const Fingerprint& print, CallOptions options)
      : SpanningOperation(std::move(owner), print, std::move(options)) {}

 private:
  void begin() override;
};

struct GatherPart {
  const std::byte* shard = nullptr;
  std::byte* full = nullptr;
  std::size_t bytes = 0;  // of one shard
};

/// Each shard goes once to every other host, to the agent of its place, and from there to the host's other ranks.
class SpanningGather : public SpanningOperation {
 public:
  SpanningGather(std::shared_ptr<SpanningGroup> owner, const Fingerprint& print, CallOptions options, std::vector<GatherPart> parts)
      : SpanningOperation(std::move(owner), print, std::move(options)), parts_(std::move(parts)) {}

 protected:
  void begin() override;
  /// Between hosts, and what ranks of this host have from the start.
  virtual void exchange();
  /// Ranks of this host take blocks from each other: their own shards, or what they received.
  void share(bool received);
  /// Puts this rank's shard into its place.
  static void place_own(const GatherPart& part, int rank);
  std::vector<GatherPart> parts_;
};

/// The root's host takes the buffer from the root; then it travels in slices, one a place (a small one as a whole): from the root's host to
/// every other, or from host to host in a chain. Each host's ranks take the slices from each other.
class SpanningBroadcast final : public SpanningOperation {
 public:
  enum class Way : std::uint8_t { kDirect, kChain };
  SpanningBroadcast(std::shared_ptr<SpanningGroup> owner, const Fingerprint& print, CallOptions options, std::byte* data, std::size_t bytes,
                    Way way)
      : SpanningOperation(std::move(owner), print, std::move(options)), data_(data), bytes_(bytes), way_(way) {}

 private:
  struct Slice {
    std::size_t at = 0;
    std::size_t bytes = 0;
  };
  void begin() override;
  [[nodiscard]] Slice slice(int place) const noexcept;
  void take_from_root();
  void travel();
  void share();
  [[nodiscard]] int root_host() const noexcept { return hosts().host_of(fingerprint.root); }
  std::byte* data_;
  std::size_t bytes_;
  Way way_;
};

/// Every pair of ranks by itself: `to` and `from` by rank; ranks of one host through its memory.
class SpanningExchange final : public SpanningOperation {
 public:
  SpanningExchange(std::shared_ptr<SpanningGroup> owner, const Fingerprint& print, CallOptions options, std::vector<ConstSpan> to,
                   std::vector<Span> from)
      : SpanningOperation(std::move(owner), print, std::move(options)), to_(std::move(to)), from_(std::move(from)) {}

 private:
  void begin() override;
  void exchange_sizes();
  void exchange();
  void exchange_here();
  std::vector<ConstSpan> to_;
  std::vector<Span> from_;
  std::vector<std::uint64_t> sizes_;   // what goes to each rank
  std::vector<std::uint64_t> theirs_;  // what each rank sends here
};

}  // namespace wirewise::comm
