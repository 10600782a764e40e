// What passes share: the visits of a program, and reordering its ops.
#include "wirewise/schedule/passes.h"

#include <utility>

#include "wirewise/schedule/order.h"

namespace wirewise {

std::vector<Visit> visits_of(const Program& program) {
  std::vector<Visit> visits;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (op.kind != OpKind::kForward && op.kind != OpKind::kBackward && op.kind != OpKind::kRecompute) continue;
    const bool backward = op.kind != OpKind::kForward;
    const bool goes_on = !visits.empty() && visits.back().unit == op.unit && visits.back().micro_batch == op.micro_batch &&
                         visits.back().backward == backward;
    if (!goes_on) visits.push_back({op.unit, op.micro_batch, backward, i, i});
    visits.back().last = i;
  }
  return visits;
}

Program Reordering::finish() {
  std::vector<Op> ops;
  ops.reserve(program_.ops.size());
  for (std::size_t i = 0; i <= program_.ops.size(); ++i) {
    for (Op& moved : before_[i]) ops.push_back(std::move(moved));
    if (i < program_.ops.size() && keep_[i]) ops.push_back(std::move(program_.ops[i]));
  }
  program_.ops = std::move(ops);
  derive_after(program_);
  return std::move(program_);
}

}  // namespace wirewise
