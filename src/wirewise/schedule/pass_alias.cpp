// ZeRO-3 on one host: the whole group lies in memory once, in every rank's address space, and each rank's shard is its part of it.
#include <algorithm>

#include "wirewise/schedule/order.h"
#include "wirewise/schedule/passes.h"

namespace wirewise {
namespace {

Op barrier() {
  Op op;
  op.kind = OpKind::kBarrier;
  op.lane = Lane::kCompute;
  return op;
}

}  // namespace

Program alias(Program program) {
  std::vector<BufferId> full_of_group;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    BufferInfo& buffer = program.buffers[b];
    if (buffer.role != BufferRole::kFullParam) continue;
    buffer.persistent = buffer.aliased = true;
    const auto group = static_cast<std::size_t>(buffer.param_group);
    full_of_group.resize(std::max(full_of_group.size(), group + 1), -1);
    full_of_group[group] = static_cast<BufferId>(b);
  }
  const auto is_full = [&](BufferId id) { return program.buffers[static_cast<std::size_t>(id)].aliased; };
  const auto gathers_or_frees = [&](const Op& op) {
    const auto& ids = op.kind == OpKind::kGather ? op.writes : op.frees;
    return (op.kind == OpKind::kGather || op.kind == OpKind::kFree) && !ids.empty() && std::all_of(ids.begin(), ids.end(), is_full);
  };
  std::erase_if(program.ops, gathers_or_frees);

  const auto is_step = [](const Op& op) { return op.kind == OpKind::kStep; };
  for (Op& op : program.ops) {
    if (!is_step(op)) continue;
    for (int group : op.param_groups) op.writes.push_back(full_of_group[static_cast<std::size_t>(group)]);
  }
  // Behind the last first, so that the place of the first holds. Steps stand in a row but for the frees between them.
  const auto last = std::find_if(program.ops.rbegin(), program.ops.rend(), is_step);
  if (last != program.ops.rend()) {
    program.ops.insert(last.base(), barrier());
    program.ops.insert(std::find_if(program.ops.begin(), program.ops.end(), is_step), barrier());
  }
  derive_after(program);
  return program;
}

}  // namespace wirewise
