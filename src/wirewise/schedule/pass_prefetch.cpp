#include <algorithm>
#include <utility>

#include "wirewise/schedule/passes.h"

namespace wirewise {
namespace {

/// Index of the first visit behind op `index`; the number of visits when none is.
std::size_t visit_behind(const std::vector<Visit>& visits, std::size_t index) {
  const auto place = std::partition_point(visits.begin(), visits.end(), [&](const Visit& visit) { return visit.first < index; });
  return static_cast<std::size_t>(place - visits.begin());
}

bool drops(std::vector<BufferId>& ids, BufferId id) {
  const auto place = std::find(ids.begin(), ids.end(), id);
  if (place == ids.end()) return false;
  ids.erase(place);
  return true;
}

/// Takes one group out of a gather or a free.
void take_out(Op& op, BufferId full, const Program& program) {
  const auto& info = program.buffers[static_cast<std::size_t>(full)];
  if (op.kind == OpKind::kGather) {
    const auto at = std::find(op.param_groups.begin(), op.param_groups.end(), info.param_group) - op.param_groups.begin();
    op.reads.erase(op.reads.begin() + at);  // the shard of that group
    op.bytes -= info.bytes;
  }
  drops(op.writes, full);
  drops(op.allocates, full);
  drops(op.frees, full);
  op.param_groups.erase(std::find(op.param_groups.begin(), op.param_groups.end(), info.param_group));
}

}  // namespace

Program prefetch(Program program, int depth) {
  if (depth <= 0) return program;
  const auto visits = visits_of(program);
  constexpr auto kNever = static_cast<std::size_t>(-1);
  std::vector<std::size_t> freed_at(program.buffers.size(), kNever);  // by buffer: the op that freed it last
  Reordering reordering(std::move(program));

  const auto count = reordering.program().ops.size();
  for (std::size_t i = 0; i < count; ++i) {
    Op& op = reordering.op(i);
    for (BufferId id : op.frees) freed_at[static_cast<std::size_t>(id)] = i;
    // The gather of a step's result in place allocates nothing and has no unit to run ahead of.
    if (op.kind != OpKind::kGather || op.allocates.empty()) continue;
    const auto own = visit_behind(visits, i);
    const auto target = own - std::min(own, static_cast<std::size_t>(depth));
    for (BufferId full : std::vector<BufferId>(op.allocates)) {
      const auto freed = freed_at[static_cast<std::size_t>(full)];
      if (freed == kNever || target > visit_behind(visits, freed)) continue;
      Op& free = reordering.op(freed);
      take_out(free, full, reordering.program());
      if (free.frees.empty()) reordering.drop(freed);
      take_out(op, full, reordering.program());
    }
    if (op.allocates.empty()) {
      reordering.drop(i);
    } else {
      reordering.move_before(i, visits[target].first);
    }
  }
  return reordering.finish();
}

}  // namespace wirewise
