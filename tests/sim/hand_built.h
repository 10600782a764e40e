// Small schedules written by hand, on a machine with round figures, so that what must come out is plain arithmetic.
#pragma once

#include <utility>
#include <vector>

#include "wirewise/sim/simulate.h"

namespace wirewise {

inline constexpr DeviceRates kRoundRates{1e9, 1e6, Provenance::kAssumed};  // 1 GFLOP/s, 1 MB/s
inline constexpr Seconds kAlpha = 0.5;
inline constexpr BytesPerSecond kBeta = 100;

/// A model of one unit with two segments: 1 and 3 GFLOP forward, 2 and 6 backward, 10 tokens.
inline Model two_segment_model() {
  Model model;
  model.config.family = Family::kCustom;
  model.batch.micro_batch = 2;
  model.batch.sequence = 5;
  UnitShape unit{"unit", UnitKind::kBlock, {}, {}};
  for (double gigaflops : {1.0, 3.0}) {
    SegmentShape segment;
    segment.name = "segment";
    segment.cost.forward = gigaflops * 1e9;
    segment.cost.backward = 2 * gigaflops * 1e9;
    unit.segments.push_back(segment);
  }
  model.units.push_back(unit);
  return model;
}

/// A compute op of so many seconds at kRoundRates.
inline Op compute(Seconds seconds, std::vector<OpId> after = {}) {
  Op op;
  op.kind = OpKind::kForward;
  op.unit = 0;
  op.segment = 0;
  op.flops = seconds * kRoundRates.flops_per_second;
  op.after = std::move(after);
  return op;
}

/// A collective over the data-parallel shard ranks.
inline Op collective(OpKind kind, Lane lane, Bytes bytes, std::vector<OpId> after = {}) {
  Op op;
  op.kind = kind;
  op.lane = lane;
  op.bytes = bytes;
  op.after = std::move(after);
  return op;
}

/// An all-gather of so many seconds among two ranks over kAlpha and kBeta.
inline Op gather(Seconds seconds, std::vector<OpId> after = {}) {
  return collective(OpKind::kGather, Lane::kGather, static_cast<Bytes>((seconds - kAlpha) * kBeta * 2), std::move(after));
}

/// All ranks run one program.
inline Schedule one_role(std::vector<Op> ops, int ranks) {
  Schedule schedule;
  schedule.ranks = ranks;
  schedule.micro_batches = 1;
  schedule.strategy.dp_shard = ranks;
  Program program;
  program.role = "data-parallel";
  for (int rank = 0; rank < ranks; ++rank) program.ranks.push_back(rank);
  program.ops = std::move(ops);
  schedule.programs.push_back(std::move(program));
  return schedule;
}

inline Wiring round_wiring(int ranks) {
  Wiring wiring = one_host(ranks);
  for (auto& link : wiring.links) link.alpha = kAlpha, link.beta = kBeta;
  return wiring;
}

inline constexpr SimOptions kSharedCore{true};
inline constexpr SimOptions kOwnLanes{false};

inline SimReport price(const Schedule& schedule, const SimOptions& options, const MeasuredCosts& measured = {}) {
  return simulate(schedule, two_segment_model(), round_wiring(schedule.ranks), kRoundRates, measured, options);
}

}  // namespace wirewise
