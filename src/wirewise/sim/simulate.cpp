// Runs a schedule's lanes with its ops' costs, and sums up what came out.
#include "wirewise/sim/simulate.h"

#include <algorithm>

#include "wirewise/base/error.h"
#include "wirewise/sim/costs.h"
#include "wirewise/sim/timeline.h"

namespace wirewise {
namespace {

/// Disjoint stretches of time, ascending.
class Stretches {
 public:
  explicit Stretches(std::vector<Span> spans) {
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start < b.start; });
    for (const auto& span : spans) {
      if (span.end <= span.start) continue;
      if (!merged_.empty() && span.start <= merged_.back().end) {
        merged_.back().end = std::max(merged_.back().end, span.end);
      } else {
        merged_.push_back(span);
      }
    }
  }
  [[nodiscard]] const std::vector<Span>& all() const { return merged_; }

  /// Seconds of `span` outside all stretches.
  [[nodiscard]] Seconds outside(const Span& span) const {
    Seconds left = span.end - span.start;
    auto it = std::partition_point(merged_.begin(), merged_.end(), [&](const Span& s) { return s.end <= span.start; });
    for (; it != merged_.end() && it->start < span.end; ++it)
      left -= std::min(it->end, span.end) - std::max(it->start, span.start);
    return std::max(left, 0.0);
  }

 private:
  std::vector<Span> merged_;
};

/// Model FLOPs of the tokens that the step's ranks work through, for one rank. A schedule without backward counts the forward
/// alone.
Flops model_flops_of_rank(const Schedule& schedule, const Model& model) {
  bool backward = false;
  for (const auto& program : schedule.programs) {
    backward = backward ||
               std::any_of(program.ops.begin(), program.ops.end(), [](const Op& op) { return op.kind == OpKind::kBackward; });
  }
  Flops a_token = 0;
  if (backward) {
    a_token = flops_per_token(model);
  } else {
    for (const auto& unit : model.units) {
      for (const auto& segment : unit.segments) a_token += segment.cost.forward;
    }
    a_token /= static_cast<double>(model.batch.micro_batch) * static_cast<double>(model.batch.sequence);
  }
  const Mesh mesh(schedule.strategy, schedule.ranks);
  const double tokens = static_cast<double>(schedule.micro_batches) * static_cast<double>(model.batch.micro_batch) *
                        static_cast<double>(model.batch.sequence) * mesh.data_ranks() / mesh.ranks();
  return a_token * tokens;
}

/// Adds one program's ops to the report; its sums replace those of programs that end sooner.
void add_program(SimReport& report, const Program& program, int index, const std::vector<Span>& spans) {
  std::vector<Span> compute, communication;
  for (std::size_t id = 0; id < spans.size(); ++id) {
    (is_communication(program.ops[id].kind) ? communication : compute).push_back(spans[id]);
  }
  const Stretches hidden(std::move(compute)), talking(std::move(communication));
  Seconds end = 0, exposed = 0;
  std::map<OpKind, Seconds> by_kind;
  for (std::size_t id = 0; id < spans.size(); ++id) {
    const auto& span = spans[id];
    const OpKind kind = program.ops[id].kind;
    end = std::max(end, span.end);
    by_kind[kind] += span.end - span.start;
    report.ops.push_back({index, static_cast<OpId>(id), span.start, span.end, is_communication(kind) ? hidden.outside(span) : 0});
  }
  for (const auto& span : talking.all()) exposed += hidden.outside(span);
  if (index > 0 && end <= report.step) return;
  report.step = end;
  report.exposed_communication = exposed;
  report.by_kind = std::move(by_kind);
}

}  // namespace

SimReport simulate(const Schedule& schedule, const Model& model, const Wiring& wiring, const DeviceRates& rates,
                   const MeasuredCosts& measured, const SimOptions& options) {
  for (const auto& program : schedule.programs) {
    if (program.ranks.empty()) throw Error(ErrorKind::kFailed, "role " + program.role + " has no ranks.", "Check the schedule.");
  }
  const Costs costs(schedule, model, wiring, rates, measured);
  const auto spans =
      run_lanes(schedule, options.lanes_share_core, [&](const Program& program, const Op& op) { return costs.of(program, op); });
  SimReport report;
  for (std::size_t p = 0; p < schedule.programs.size(); ++p) {
    add_program(report, schedule.programs[p], static_cast<int>(p), spans[p]);
  }
  if (report.step > 0) report.mfu = model_flops_of_rank(schedule, model) / (report.step * rates.flops_per_second);
  return report;
}

}  // namespace wirewise
