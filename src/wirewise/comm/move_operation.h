// Collectives that only move bytes: all_gather, broadcast, gather, scatter, all_to_all, and barrier, which moves none.
//
// Data is pulled: a rank copies from a peer's buffer as soon as that peer has called, without its help, when the buffer lies in shared
// memory, or where the kernel lets it read the peer's. Otherwise the peer feeds it through its staging area, a round at a time, two rounds ahead of the slowest reader.
#pragma once

#include <functional>
#include <vector>

#include "wirewise/comm/collective.h"
#include "wirewise/comm/fan.h"

namespace wirewise::comm {

/// What one rank gives and takes. Bytes of source and target agree pair by pair, since fingerprints (and all_to_all's counts) do.
struct MovePlan {
  std::vector<ConstSpan> exposed;     // the buffers that peers read from
  std::vector<std::uint64_t> counts;  // all_to_all: what goes to each rank
  bool fans = false;                  // fans_out() says so: `filled` is where peers may write what this rank takes, with all parts equal
  Span filled;
  bool shared = true;                 // every reader takes the same bytes: outgoing has one stream, else one a rank
  std::vector<std::vector<ConstSpan>> outgoing;
  std::vector<std::vector<Span>> incoming;  // by source
  /// The parts of `source`'s exposed buffers (their addresses here) that this rank takes. Throws Mismatch where counts differ.
  std::function<std::vector<ConstSpan>(int source, std::span<const std::byte* const> buffers, std::span<const std::uint64_t> counts)> view;
};

/// Walks a list of spans.
template <typename SpanType>
class SpanWalker {
 public:
  SpanWalker() = default;
  explicit SpanWalker(std::vector<SpanType> spans) : spans_(std::move(spans)) {
    for (const SpanType& span : spans_) left_ += span.bytes;
  }
  [[nodiscard]] std::size_t left() const noexcept { return left_; }
  /// The rest of the span that is next; there is one while left() > 0.
  [[nodiscard]] SpanType head() noexcept {
    while (spans_[index_].bytes == offset_) {
      ++index_;
      offset_ = 0;
    }
    return {spans_[index_].data + offset_, spans_[index_].bytes - offset_};
  }
  void skip(std::size_t bytes) noexcept {
    offset_ += bytes;
    left_ -= bytes;
  }

 private:
  std::vector<SpanType> spans_;
  std::size_t index_ = 0;
  std::size_t offset_ = 0;
  std::size_t left_ = 0;
};

class MoveOperation final : public Collective {
 public:
  /// `copied`: the call is announced already, and peers read a copy of what this rank gives.
  MoveOperation(std::shared_ptr<Group> group, const Fingerprint& fingerprint, CallOptions options, MovePlan plan, bool copied = false);
  bool step() override;
  [[nodiscard]] bool may_stage() const noexcept override { return staged_in_; }

 private:
  struct Source {
    bool open = false;  // where its bytes lie is known
    bool staged = false;
    bool foreign = false;  // they lie in its own address space
    SpanWalker<ConstSpan> from;
    SpanWalker<Span> to;
    std::uint64_t rounds = 0;  // taken from its staging area
  };
  void on_arrival(int peer) override;
  void open_source(int peer);
  bool publish();
  bool consume();
  void open_fan();
  bool fan_out();
  std::size_t pull(int peer, Source& source, std::size_t most);
  bool consume_staged(int peer, Source& source);

  MovePlan plan_;
  std::size_t chunk_ = 0;  // bytes of one round for one reader
  std::vector<SpanWalker<ConstSpan>> outgoing_;
  std::uint64_t rounds_ = 0;  // that this rank stages
  std::uint64_t published_ = 0;
  std::uint64_t consumed_ = 0;
  std::vector<Source> sources_;
  bool stream_ = false;   // what moves doesn't fit into the caches
  bool named_ = false;    // peers may fill this rank's output
  bool fan_open_ = false;
  bool fan_over_ = true;  // no chunk is left to claim
  Fan fan_;
  bool exposes_ = false;  // peers read this rank's own buffers
};

}  // namespace wirewise::comm
