// all_reduce, reduce and reduce_scatter across hosts.
//
// The result is cut into segments, each with a home: the rank that combines it. Every host reduces a segment from its own ranks (as nodes
// of the canonical tree, float32 for 16-bit floats), one of them sends that to the home, and the home combines the hosts' nodes. For an
// all_reduce the home then sends the finished segment back to each host, whose ranks take it from each other. So each byte crosses
// between two hosts once in each direction. The whole form (of a small all_reduce) sends every host's sum to every host instead: one
// exchange, not two.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "wirewise/comm/partials.h"
#include "wirewise/comm/reduce_operation.h"
#include "wirewise/comm/spanning_operation.h"

namespace wirewise::comm {

class SpanningReduce final : public SpanningOperation {
 public:
  /// kWhole: an all_reduce by one exchange.
  enum class Form : std::uint8_t { kSegments, kWhole };
  SpanningReduce(std::shared_ptr<SpanningGroup> owner, const Fingerprint& print, CallOptions options, std::vector<ReducePlanPart> parts,
                 Form form);

 private:
  struct Segment {
    std::size_t part = 0;
    std::size_t offset = 0;  // elements, in the part's input
    std::size_t length = 0;
    int home = 0;
    int place = 0;  // of its agents
    // Of a segment that this rank is an agent of:
    std::byte* partials = nullptr;         // its host's nodes, one after another
    const std::byte* raw_input = nullptr;  // the input itself, where that is the partial
    // Of a segment whose home is this rank: by host, its nodes
    std::vector<std::byte*> inbox;
    std::size_t combined = 0;
  };
  /// As many segments in a row as the host has ranks, one for each: what one call of the host's group reduces.
  struct Row {
    std::size_t part = 0;
    std::size_t offset = 0;
    std::size_t slice = 0;
    std::size_t total = 0;
    std::size_t first = 0;  // its first segment
  };

  void begin() override;
  void lay_out();
  void add_row(std::size_t part, std::size_t slice, std::size_t total, std::size_t offset, int host, int places);
  void reduce_here();
  void reduce_rows();
  void pull_raw();
  void reduce_raw();
  void exchange();
  void greet_partners();
  /// As an agent of its host: its nodes to the segment's home, and the finished segment from there.
  void send_partials(Segment& segment);
  /// As the segment's home: chunk by chunk, once all hosts' nodes of it are there.
  void combine_arriving(Segment& segment);
  void send_finished(Segment& segment, std::size_t from, std::size_t length);
  /// Hosts get the finished segments back.
  [[nodiscard]] bool returns() const noexcept { return fingerprint.operation == Operation::kAllReduce; }
  void combine(const Segment& segment, std::size_t from, std::size_t length);
  void share();
  void take_over_shared();

  // the small all_reduce
  void reduce_whole();
  void exchange_whole();

  [[nodiscard]] bool is_agent(const Segment& segment) const { return hosts().agent(host(), segment.place) == rank(); }
  [[nodiscard]] std::size_t element(std::size_t part) const { return size_of(parts_[part].kind.in); }
  [[nodiscard]] std::size_t held(std::size_t part) const { return size_of(partial_type(parts_[part].kind.in)); }
  /// Where a finished segment lies on this rank.
  [[nodiscard]] std::byte* finished(const Segment& segment) const;
  [[nodiscard]] const std::byte* partial(const Segment& segment) const {
    return segment.raw_input != nullptr ? segment.raw_input : segment.partials;
  }
  [[nodiscard]] bool scatters() const noexcept { return fingerprint.operation == Operation::kReduceScatter; }

  std::vector<ReducePlanPart> parts_;
  Form form_;
  std::vector<Segment> segments_;
  std::vector<Row> rows_;
  std::vector<std::byte*> finished_;                // by part: what segments are finished into; all_reduce and reduce
  std::vector<std::vector<std::byte*>> raw_;        // by place here: what was pulled
  std::vector<std::vector<TreeNode>> nodes_;        // by host
};

}  // namespace wirewise::comm
