// What makes a list of ops a training step, and what makes a collective's size right.
#include <map>
#include <set>
#include <tuple>

#include "wirewise/base/error.h"
#include "wirewise/schedule/check.h"
#include "wirewise/schedule/order.h"

namespace wirewise {
namespace {

const Op& at(const Program& program, OpId id) { return program.ops[static_cast<std::size_t>(id)]; }

/// Each (unit, segment, micro-batch) with the op that computed it.
using Work = std::map<std::tuple<int, int, int>, OpId>;

void once(const Program& program, Work& work, OpId id) {
  const Op& op = at(program, id);
  const auto [place, fresh] = work.emplace(std::tuple(op.unit, op.segment, op.micro_batch), id);
  if (!fresh) refuse(program, id, "does again what " + op_text(program, place->second) + " did");
}

/// Token count and report, each once, around everything that divides by it or is summed up in it.
struct Frame {
  OpId token_count = -1, report = -1;
};

void require_frame(const Program& program, const Frame& frame, OpId first_backward) {
  if (frame.token_count < 0 || frame.token_count > first_backward) {
    refuse(program, first_backward, "runs before the step's tokens are counted");
  }
  HappensBefore order;
  LaneClock last = kNothingDone;
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) {
    order.add(at(program, id));
    if (id != frame.report) last[lane_index(at(program, id))] = id;
  }
  if (!order.before(frame.token_count, first_backward))
    refuse(program, first_backward, "may run before the step's tokens are counted");
  const auto end = static_cast<OpId>(program.ops.size()) - 1;
  if (frame.report < 0) refuse(program, end, "ends a step that reports no loss");
  for (OpId id : last) {
    if (id >= 0 && !order.before(id, frame.report))
      refuse(program, frame.report, "may end the step before " + op_text(program, id));
  }
}

void require_work(const Program& program, const Schedule& schedule, const Work& forward, const Work& backward) {
  for (const auto& [key, id] : forward) {
    if (!backward.contains(key)) refuse(program, id, "has no backward");
  }
  for (const auto& [key, id] : backward) {
    if (!forward.contains(key)) refuse(program, id, "has no forward");
  }
  std::map<std::pair<int, int>, std::set<int>> micro_batches;
  for (const auto& [key, id] : forward) micro_batches[{std::get<0>(key), std::get<1>(key)}].insert(std::get<2>(key));
  for (const auto& [segment, seen] : micro_batches) {
    if (static_cast<int>(seen.size()) == schedule.micro_batches) continue;
    throw Error(ErrorKind::kFailed,
                "the schedule is unsound: unit " + std::to_string(segment.first) + " segment " + std::to_string(segment.second) +
                    " sees " + std::to_string(seen.size()) + " micro-batches of " + std::to_string(schedule.micro_batches) + ".",
                "This is a defect of the builder; please report it with the strategy.");
  }
}

/// ZeRO-1 and 2: a rank steps its slice of parameters that it holds whole, so the step must be followed by their gather.
void require_whole_parameters(const Program& program, const Schedule& schedule) {
  const auto& strategy = schedule.strategy;
  if (strategy.dp_shard < 2 || (strategy.zero != 1 && strategy.zero != 2)) return;
  std::map<BufferId, OpId> stepped;
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) {
    const Op& op = at(program, id);
    for (BufferId buffer : op.writes) {
      if (program.buffers[static_cast<std::size_t>(buffer)].role != BufferRole::kParam) continue;
      if (op.kind == OpKind::kStep) stepped.emplace(buffer, id);
      if (op.kind == OpKind::kGather) stepped.erase(buffer);
    }
  }
  if (!stepped.empty()) {
    const auto& [buffer, id] = *stepped.begin();
    refuse(program, id, "leaves " + program.buffers[static_cast<std::size_t>(buffer)].name + " new in this rank's slice only");
  }
}

std::uint64_t elements(const Program& program, const std::vector<BufferId>& ids, Bytes* bytes = nullptr) {
  std::uint64_t count = 0;
  for (BufferId id : ids) {
    const auto& info = program.buffers[static_cast<std::size_t>(id)];
    count += info.bytes / size_of(info.dtype);
    if (bytes != nullptr) *bytes += info.bytes;
  }
  return count;
}

void require_sizes(const Program& program, OpId id, std::uint64_t shards) {
  const Op& op = at(program, id);
  Bytes whole = 0;
  std::uint64_t count = 0, parts = 0, ratio = shards;
  if (op.kind == OpKind::kGather) {
    count = elements(program, op.writes, &whole);
    parts = elements(program, op.reads);
    if (op.reads == op.writes) ratio = 1;  // in place
  } else {
    count = elements(program, op.reads, &whole);
    parts = elements(program, op.writes) + elements(program, op.adds);
    if (op.kind == OpKind::kAllReduce) ratio = 1;
  }
  if (op.bytes != whole) {
    refuse(program, id, "moves " + std::to_string(op.bytes) + " bytes, but its buffers hold " + std::to_string(whole));
  }
  if (count != parts * ratio) {
    refuse(program, id,
           "has " + std::to_string(count) + " elements in all and " + std::to_string(parts) + " a rank over " +
               std::to_string(shards) + " ranks");
  }
}

}  // namespace

void check_step(const Program& program, const Schedule& schedule) {
  Work forward, backward;
  Frame frame;
  OpId first_backward = -1;
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) {
    switch (at(program, id).kind) {
      case OpKind::kForward:
        once(program, forward, id);
        break;
      case OpKind::kBackward:
        once(program, backward, id);
        if (first_backward < 0) first_backward = id;
        break;
      case OpKind::kTokenCount:
        if (frame.token_count >= 0) refuse(program, id, "counts the step's tokens again");
        frame.token_count = id;
        break;
      case OpKind::kReport:
        if (frame.report >= 0) refuse(program, id, "reports the step again");
        frame.report = id;
        break;
      default:
        break;
    }
  }
  if (first_backward < 0) return;  // a forward pass
  require_frame(program, frame, first_backward);
  require_work(program, schedule, forward, backward);
  require_whole_parameters(program, schedule);
}

void check_sizes(const Program& program, const Schedule& schedule) {
  const auto shards = static_cast<std::uint64_t>(schedule.strategy.dp_shard);
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) {
    const Op& op = at(program, id);
    if (!is_collective(op.kind) || op.kind == OpKind::kBarrier) continue;
    if (op.bytes == 0) refuse(program, id, "is a collective of no bytes");
    const bool moves_groups = op.kind == OpKind::kGather || op.kind == OpKind::kReduceScatter || op.kind == OpKind::kAllReduce;
    if (moves_groups) require_sizes(program, id, shards);
  }
}

}  // namespace wirewise
