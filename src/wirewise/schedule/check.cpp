// The proofs over a built schedule, and how their errors name an op.
#include "wirewise/schedule/check.h"

#include "wirewise/base/error.h"

namespace wirewise {

std::string op_text(const Program& program, OpId id) {
  const Op& op = program.ops[static_cast<std::size_t>(id)];
  std::string text = "op " + std::to_string(id) + " (" + std::string(name_of(op.kind));
  if (op.unit >= 0) text += ", unit " + std::to_string(op.unit);
  if (op.segment >= 0) text += " segment " + std::to_string(op.segment);
  if (!op.param_groups.empty()) {
    text += op.param_groups.size() == 1 ? ", group" : ", groups";
    for (int group : op.param_groups) text += " " + std::to_string(group);
  }
  if (op.micro_batch >= 0) text += ", micro-batch " + std::to_string(op.micro_batch);
  return text + ") of role " + program.role;
}

void refuse(const Program& program, OpId id, const std::string& what) {
  throw Error(ErrorKind::kFailed, "the schedule is unsound: " + op_text(program, id) + " " + what + ".",
              "This is a defect of the builder or of a pass; please report it with the strategy.");
}

void check_references(const Program& program) {
  const auto buffers = static_cast<BufferId>(program.buffers.size());
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) {
    const Op& op = program.ops[static_cast<std::size_t>(id)];
    for (OpId earlier : op.after) {
      if (earlier < 0 || earlier >= id) refuse(program, id, "follows op " + std::to_string(earlier) + ", which is no earlier op");
    }
    for (const auto* list : {&op.reads, &op.writes, &op.adds, &op.allocates, &op.frees}) {
      for (BufferId buffer : *list) {
        if (buffer < 0 || buffer >= buffers)
          refuse(program, id, "names buffer " + std::to_string(buffer) + ", which doesn't exist");
      }
    }
  }
}

void check(const Schedule& schedule) {
  for (const auto& program : schedule.programs) {
    check_references(program);
    check_buffers(program);
    check_step(program, schedule);
    check_sizes(program, schedule);
  }
  check_collectives(schedule);
  check_aliases(schedule);
}

}  // namespace wirewise
