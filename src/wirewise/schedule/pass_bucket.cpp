#include <algorithm>
#include <utility>

#include "wirewise/schedule/passes.h"

namespace wirewise {
namespace {

bool is_reduction(const Op& op) { return op.lane == Lane::kReduce; }

bool frees_gradients(const Op& op, const Program& program) {
  return op.kind == OpKind::kFree && std::any_of(op.frees.begin(), op.frees.end(), [&](BufferId id) {
           return program.buffers[static_cast<std::size_t>(id)].role == BufferRole::kGrad;
         });
}

template <typename T>
void put_in_front(std::vector<T>& to, const std::vector<T>& front) {
  to.insert(to.begin(), front.begin(), front.end());
}

/// Ops that will join into the last of them.
class Joined {
 public:
  void add(std::size_t index) { ops_.push_back(index); }

  void close(Reordering& reordering) {
    if (ops_.size() > 1) {
      Op& last = reordering.op(ops_.back());
      for (std::size_t i = ops_.size() - 1; i-- > 0;) {
        const Op& op = reordering.op(ops_[i]);
        put_in_front(last.param_groups, op.param_groups);
        put_in_front(last.reads, op.reads);
        put_in_front(last.writes, op.writes);
        put_in_front(last.adds, op.adds);
        put_in_front(last.allocates, op.allocates);
        put_in_front(last.frees, op.frees);
        last.bytes += op.bytes;
        reordering.drop(ops_[i]);
      }
    }
    ops_.clear();
  }

 private:
  std::vector<std::size_t> ops_;
};

}  // namespace

Program bucket(Program program, Bytes bytes) {
  if (bytes == 0) return program;
  Reordering reordering(std::move(program));
  Joined reductions, frees;
  Bytes pending = 0;
  int micro_batch = -1;
  // A run's frees stand behind its last reduction, so a run closes when the op behind its last free is reached.
  const auto close = [&] {
    reductions.close(reordering);
    frees.close(reordering);
    pending = 0;
  };
  const auto count = reordering.program().ops.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Op& op = reordering.op(i);
    if (is_reduction(op)) {
      if (pending >= bytes || op.micro_batch != micro_batch) close();
      micro_batch = op.micro_batch;
      reductions.add(i);
      pending += op.bytes;
    } else if (frees_gradients(op, reordering.program())) {
      frees.add(i);
    }
  }
  close();
  return reordering.finish();
}

}  // namespace wirewise
