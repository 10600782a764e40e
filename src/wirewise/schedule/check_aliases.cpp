// Buffers that all ranks of a group write parts of and read whole. Lanes and `after` order one rank's ops; between ranks only barriers do.
// They cut a step into phases, alike on all ranks: what may run in one phase on one rank may run beside all that may run in it on another.
// So no op that writes an aliased buffer may share a phase with one that reads it. A step's last phase goes on in the next step's first,
// and forward passes may run in between: nothing is written in either.
#include <algorithm>
#include <string>
#include <vector>

#include "wirewise/schedule/check.h"
#include "wirewise/schedule/order.h"

namespace wirewise {
namespace {

/// An op that uses an aliased buffer, and the phases in which it may run.
struct Use {
  const Program* program = nullptr;
  OpId op = -1;
  BufferId buffer = -1;
  bool writes = false;
  std::size_t first = 0, last = 0;
};

/// A barrier in the compute lane is done before the op behind it starts.
bool is_meeting(const Op& op) { return op.kind == OpKind::kBarrier && op.lane == Lane::kCompute && op.group == Mesh::Dim::kDpShard; }

std::vector<Use> uses_of(const Program& program, std::size_t& meetings) {
  HappensBefore order;
  std::vector<OpId> barriers;
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) {
    const Op& op = program.ops[static_cast<std::size_t>(id)];
    order.add(op);
    if (is_meeting(op)) barriers.push_back(id);
  }
  meetings = barriers.size();
  std::vector<Use> uses;
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) {
    const Op& op = program.ops[static_cast<std::size_t>(id)];
    const auto note = [&](BufferId buffer, bool writes) {
      if (!program.buffers[static_cast<std::size_t>(buffer)].aliased) return;
      Use use{&program, id, buffer, writes, 0, barriers.size()};
      for (std::size_t k = 0; k < barriers.size(); ++k) {
        if (barriers[k] < id && order.before(barriers[k], id)) use.first = k + 1;
        if (barriers[k] > id && order.before(id, barriers[k])) use.last = std::min(use.last, k);
      }
      uses.push_back(use);
    };
    for (BufferId buffer : op.reads) note(buffer, false);
    for (const auto* list : {&op.writes, &op.adds, &op.allocates, &op.frees}) {
      for (BufferId buffer : *list) note(buffer, true);
    }
  }
  return uses;
}

const BufferInfo& info(const Use& use) { return use.program->buffers[static_cast<std::size_t>(use.buffer)]; }

[[noreturn]] void refuse_write(const Use& write, const std::string& what) {
  refuse(*write.program, write.op, "writes the shared " + info(write).name + " " + what);
}

}  // namespace

void check_aliases(const Schedule& schedule) {
  std::vector<Use> reads, writes;
  for (const auto& program : schedule.programs) {
    std::size_t meetings = 0;
    for (const Use& use : uses_of(program, meetings)) {
      if (!use.writes) {
        reads.push_back(use);
        continue;
      }
      if (use.first == 0) refuse_write(use, "before a barrier says that no peer reads it any more");
      if (use.last == meetings) refuse_write(use, "with no barrier behind it, so a peer may read it in the next step before it is written");
      writes.push_back(use);
    }
  }
  for (const Use& write : writes) {
    for (const Use& read : reads) {
      const bool same = info(write).param_group == info(read).param_group;
      if (!same || write.last < read.first || read.last < write.first) continue;
      refuse_write(write, "while " + op_text(*read.program, read.op) + " of a peer may read it: no barrier stands between them");
    }
  }
}

}  // namespace wirewise
