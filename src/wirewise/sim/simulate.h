// The second executor: prices the very schedule that runs. Costs come from FLOPs and bytes with a machine's rates, or from a short
// measurement of the ops themselves; the rules of lanes and dependencies are the runtime's.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "wirewise/schedule/schedule.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise {

/// What a rank's device does in a second. Provenance goes into reports.
struct DeviceRates {
  double flops_per_second = 100e9;     // matrix multiplication in the compute dtype
  BytesPerSecond memory = 10e9;        // streaming read plus write
  Provenance provenance = Provenance::kAssumed;
};

/// Seconds of an op that was measured rather than derived. Compute ops are keyed by (kind, unit kind, segment index); others by kind, with a
/// line alpha + bytes / beta through the measured points.
struct MeasuredCosts {
  std::map<std::tuple<OpKind, UnitKind, int>, Seconds> compute;
  struct Line { Seconds alpha = 0; Seconds per_byte = 0; };
  std::map<OpKind, Line> by_bytes;     // gather, reduce_scatter, all_reduce: Op::bytes; step: bytes of the float32 gradient stepped
};

struct PricedOp {
  OpId op = -1;
  Seconds start = 0, end = 0;
  Seconds exposed = 0;                 // collectives: time that no compute hides
};

struct SimReport {
  Seconds step = 0;
  Seconds exposed_communication = 0;
  std::map<OpKind, Seconds> by_kind;   // busy seconds
  std::vector<PricedOp> ops;           // in program order
  double mfu = 0;                      // model FLOPs / (step * flops_per_second)
};

struct SimOptions {
  bool lanes_share_core = true;        // CPU ranks: all lanes take turns on the rank's core
};

[[nodiscard]] SimReport simulate(const Schedule& schedule, const Model& model, const Wiring& wiring, const DeviceRates& rates,
                                 const MeasuredCosts& measured, const SimOptions& options = {});

/// A Chrome trace (chrome://tracing, Perfetto) of a simulated step.
[[nodiscard]] std::string chrome_trace(const SimReport& report, const Schedule& schedule, const Model& model);

}  // namespace wirewise
