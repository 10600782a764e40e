#include <algorithm>
#include <utility>

#include "wirewise/schedule/passes.h"

namespace wirewise {
namespace {

bool frees_role(const Op& op, const Program& program, BufferRole role) {
  return op.kind == OpKind::kFree && !op.frees.empty() && std::all_of(op.frees.begin(), op.frees.end(), [&](BufferId id) {
           return program.buffers[static_cast<std::size_t>(id)].role == role;
         });
}

}  // namespace

Program overlap(Program program) {
  const auto visits = visits_of(program);
  const auto count = program.ops.size();
  const auto is_end = [](const Op& op) { return op.kind == OpKind::kClip || op.kind == OpKind::kStep; };
  const auto end = static_cast<std::size_t>(std::find_if(program.ops.begin(), program.ops.end(), is_end) - program.ops.begin());

  Reordering reordering(std::move(program));
  std::size_t visit = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!frees_role(reordering.op(i), reordering.program(), BufferRole::kGrad)) continue;
    while (visit < visits.size() && visits[visit].first < i) ++visit;
    auto place = end;
    if (visit < visits.size()) {
      place = visits[visit].last + 1;
      // The unit's own free of gathered parameters needn't wait for a reduction.
      while (place < end && frees_role(reordering.op(place), reordering.program(), BufferRole::kFullParam)) ++place;
    }
    reordering.move_before(i, place);
  }
  return reordering.finish();
}

}  // namespace wirewise
