#include "wirewise/schedule/order.h"

#include <algorithm>

namespace wirewise {
namespace {

/// The last op of each lane that touched a buffer.
struct BufferPast {
  LaneClock written = kNothingDone;
  LaneClock used = kNothingDone;
};

void raise(LaneClock& clock, const LaneClock& other) {
  for (std::size_t lane = 0; lane < kLanes; ++lane) clock[lane] = std::max(clock[lane], other[lane]);
}

}  // namespace

void HappensBefore::add(const Op& op) {
  LaneClock clock = clock_of_next(op.lane);
  for (OpId earlier : op.after) join(clock, earlier);
  last_in_lane_[lane_index(op)] = static_cast<OpId>(clocks_.size());
  clocks_.push_back(clock);
  lanes_.push_back(lane_index(op));
}

LaneClock HappensBefore::clock_of_next(Lane lane) const {
  LaneClock clock = kNothingDone;
  if (const OpId previous = last_in_lane_[static_cast<std::size_t>(lane)]; previous >= 0) join(clock, previous);
  return clock;
}

void HappensBefore::join(LaneClock& clock, OpId op) const {
  raise(clock, clocks_[static_cast<std::size_t>(op)]);
  auto& own = clock[lane_of(op)];
  own = std::max(own, op);
}

void derive_after(Program& program) {
  HappensBefore order;
  std::vector<BufferPast> past(program.buffers.size());
  LaneClock last = kNothingDone;
  const auto past_of = [&](BufferId id) -> BufferPast& { return past[static_cast<std::size_t>(id)]; };

  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) {
    Op& op = program.ops[static_cast<std::size_t>(id)];
    LaneClock wanted = kNothingDone;
    for (BufferId buffer : op.reads) raise(wanted, past_of(buffer).written);
    for (const auto* changed : {&op.writes, &op.adds, &op.allocates, &op.frees}) {
      for (BufferId buffer : *changed) raise(wanted, past_of(buffer).used);
    }
    constexpr auto kComputeLane = static_cast<std::size_t>(Lane::kCompute);
    if (!op.allocates.empty()) wanted[kComputeLane] = last[kComputeLane];
    if (op.kind == OpKind::kReport) wanted = last;

    // Latest first: what a later op already implies needs no edge of its own.
    std::sort(wanted.begin(), wanted.end(), std::greater<>());
    op.after.clear();
    LaneClock done = order.clock_of_next(op.lane);
    for (OpId earlier : wanted) {
      if (earlier < 0 || done[order.lane_of(earlier)] >= earlier) continue;
      op.after.push_back(earlier);
      order.join(done, earlier);
    }
    std::sort(op.after.begin(), op.after.end());
    order.add(op);

    const auto lane = lane_index(op);
    last[lane] = id;
    for (const auto* used : {&op.reads, &op.writes, &op.adds, &op.allocates, &op.frees}) {
      for (BufferId buffer : *used) past_of(buffer).used[lane] = id;
    }
    for (const auto* changed : {&op.writes, &op.adds, &op.allocates, &op.frees}) {
      for (BufferId buffer : *changed) past_of(buffer).written[lane] = id;
    }
  }
}

}  // namespace wirewise
