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

/// Seconds of an op that was measured rather than derived. Compute ops are keyed by (kind, unit kind, segment index; -1 for an op over a
/// whole unit); others by kind, with a line alpha + per_byte * Op::bytes through the measured points. A recompute that wasn't measured is
/// the forward of its segments.
struct MeasuredCosts {
  std::map<std::tuple<OpKind, UnitKind, int>, Seconds> compute;
  struct Line { Seconds alpha = 0; Seconds per_byte = 0; };
  std::map<OpKind, Line> by_bytes;
};

struct PricedOp {
  int program = 0;                     // of the schedule
  OpId op = -1;
  Seconds start = 0, end = 0;
  Seconds exposed = 0;                 // collectives: time that no compute hides
};

/// One step as priced. Sums over ops are those of the program that ends last.
struct SimReport {
  Seconds step = 0;
  Seconds exposed_communication = 0;
  std::map<OpKind, Seconds> by_kind;   // busy seconds
  std::vector<PricedOp> ops;           // program by program, in program order
  double mfu = 0;                      // model FLOPs of a rank's tokens / (step * flops_per_second)
};

struct SimOptions {
  bool lanes_share_core = true;        // CPU ranks: all lanes take turns on the rank's core
};

/// Runs each program's lanes by the execution rule of schedule.h.
///
/// lanes_share_core: a program's ops run one after another in its order; a collective outside the compute lane costs nothing where it is
/// issued and takes the core where an op that follows it starts (those before it in its lane first), at the latest at the step's end.
/// Otherwise lanes run side by side. A collective starts when every role in its group has come to it.
///
/// Costs: measured where `measured` has them. Else compute takes the longer of FLOPs and bytes at `rates`; a step streams its optimizer
/// state; a collective over n ranks takes alpha + f * bytes / beta of its group's slowest link, f = (n - 1) / n, doubled for all-reduce. Over
/// several hosts that is the cost inside them, of the ranks of one, and alpha + bytes / beta of the slowest host's network comes to it, for
/// the bytes that traffic.h counts.
///
/// Throws bad input when the wiring lacks a rank or a link, or a rate isn't positive; kFailed, naming the op, when the schedule can't finish.
[[nodiscard]] SimReport simulate(const Schedule& schedule, const Model& model, const Wiring& wiring, const DeviceRates& rates,
                                 const MeasuredCosts& measured, const SimOptions& options = {});

/// A Chrome trace (chrome://tracing, Perfetto) of a simulated step.
[[nodiscard]] std::string chrome_trace(const SimReport& report, const Schedule& schedule, const Model& model);

}  // namespace wirewise
