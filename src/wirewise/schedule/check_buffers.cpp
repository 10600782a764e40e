// Lives of buffers, and the order of their uses. A lane is a chain, so the last use in each lane stands for all before it.

#include "wirewise/base/error.h"
#include "wirewise/schedule/check.h"
#include "wirewise/schedule/order.h"

namespace wirewise {
namespace {

struct BufferState {
  bool live = false;
  bool filled = false;  // something was written in this life
  OpId unread = -1;     // who wrote what nobody has read yet
  OpId allocated = -1;
  LaneClock written = kNothingDone;
  LaneClock used = kNothingDone;
};

class BufferCheck {
 public:
  explicit BufferCheck(const Program& program) : program_(program), states_(program.buffers.size()) {
    for (std::size_t b = 0; b < states_.size(); ++b) states_[b].live = states_[b].filled = program.buffers[b].persistent;
  }

  void run() {
    for (OpId id = 0; id < static_cast<OpId>(program_.ops.size()); ++id) visit(id);
    for (std::size_t b = 0; b < states_.size(); ++b) {
      const auto& state = states_[b];
      if (state.live && !program_.buffers[b].persistent) {
        refuse(program_, state.allocated, "allocates " + program_.buffers[b].name + ", which nothing frees");
      }
    }
  }

 private:
  [[nodiscard]] const BufferInfo& info(BufferId id) const { return program_.buffers[static_cast<std::size_t>(id)]; }
  BufferState& state(BufferId id) { return states_[static_cast<std::size_t>(id)]; }

  void visit(OpId id) {
    const Op& op = program_.ops[static_cast<std::size_t>(id)];
    order_.add(op);
    if (!op.allocates.empty()) require_memory_order(id);
    for (BufferId buffer : op.allocates) allocate(id, buffer);
    for (BufferId buffer : op.reads) read(id, buffer);
    for (BufferId buffer : op.adds) add(id, buffer);
    for (BufferId buffer : op.writes) write(id, buffer);
    // Uses of one op don't race with each other: they are noted once all are checked.
    for (const auto* list : {&op.reads, &op.writes, &op.adds, &op.allocates, &op.frees}) {
      for (BufferId buffer : *list) require_live(id, buffer);
    }
    for (BufferId buffer : op.frees) release(id, buffer);
    note(id, op);
  }

  void require_live(OpId id, BufferId buffer) {
    if (!state(buffer).live) refuse(program_, id, "uses " + info(buffer).name + ", which isn't allocated there");
  }

  /// Every op in `uses` must be done before op `id` starts.
  void require_done(OpId id, BufferId buffer, const LaneClock& uses, const char* does) {
    for (OpId earlier : uses) {
      if (earlier < 0 || order_.before(earlier, id)) continue;
      refuse(program_, id,
             std::string(does) + " " + info(buffer).name + " while " + op_text(program_, earlier) + " may still use it");
    }
  }

  void require_memory_order(OpId id) {
    for (OpId earlier : {last_compute_, last_free_[0], last_free_[1], last_free_[2], last_free_[3], last_free_[4]}) {
      if (earlier < 0 || order_.before(earlier, id)) continue;
      refuse(program_, id,
             "may allocate before " + op_text(program_, earlier) + " is done, so memory could exceed its prediction");
    }
  }

  void allocate(OpId id, BufferId buffer) {
    auto& s = state(buffer);
    if (info(buffer).persistent) refuse(program_, id, "allocates " + info(buffer).name + ", which lives across steps");
    if (s.live)
      refuse(program_, id, "allocates " + info(buffer).name + ", which is live since " + op_text(program_, s.allocated));
    require_done(id, buffer, s.used, "allocates");
    s.live = true;
    s.filled = info(buffer).role == BufferRole::kInput;  // the executor loads a micro-batch as it allocates it
    s.unread = -1;
    s.allocated = id;
  }

  void read(OpId id, BufferId buffer) {
    require_live(id, buffer);
    auto& s = state(buffer);
    if (!s.filled) refuse(program_, id, "reads " + info(buffer).name + ", which nothing has written");
    require_done(id, buffer, s.written, "reads");
    const auto kind = program_.ops[static_cast<std::size_t>(id)].kind;
    const bool reduces = info(buffer).role == BufferRole::kGrad && (kind == OpKind::kAllReduce || kind == OpKind::kReduceScatter);
    if (reduces && s.unread < 0) refuse(program_, id, "reduces " + info(buffer).name + " again");
    s.unread = -1;
  }

  void add(OpId id, BufferId buffer) {
    require_live(id, buffer);
    auto& s = state(buffer);
    if (!s.filled) refuse(program_, id, "adds to " + info(buffer).name + ", which nothing has written");
    require_done(id, buffer, s.used, "adds to");
    if (!info(buffer).persistent) s.unread = id;
  }

  void write(OpId id, BufferId buffer) {
    require_live(id, buffer);
    auto& s = state(buffer);
    require_done(id, buffer, s.used, "writes");
    if (s.unread >= 0 && !own_range(id, buffer, s.unread)) {
      refuse(program_, id,
             "overwrites " + info(buffer).name + " before anything reads what " + op_text(program_, s.unread) + " left there");
    }
    s.filled = true;
    if (!info(buffer).persistent) s.unread = id;
  }

  /// Segments of one unit write the ranges of their own tensors in a group's gradient.
  [[nodiscard]] bool own_range(OpId id, BufferId buffer, OpId earlier) const {
    const Op& a = program_.ops[static_cast<std::size_t>(earlier)];
    const Op& b = program_.ops[static_cast<std::size_t>(id)];
    return info(buffer).role == BufferRole::kGrad && a.unit == b.unit && a.micro_batch == b.micro_batch && a.segment != b.segment;
  }

  void release(OpId id, BufferId buffer) {
    auto& s = state(buffer);
    if (info(buffer).persistent) refuse(program_, id, "frees " + info(buffer).name + ", which lives across steps");
    if (!s.live) refuse(program_, id, "frees " + info(buffer).name + " twice");
    require_done(id, buffer, s.used, "frees");
    if (s.unread >= 0) {
      refuse(program_, id,
             "frees " + info(buffer).name + " before anything reads what " + op_text(program_, s.unread) + " left there");
    }
    s.live = s.filled = false;
  }

  void note(OpId id, const Op& op) {
    const auto lane = lane_index(op);
    for (const auto* list : {&op.reads, &op.writes, &op.adds, &op.allocates, &op.frees}) {
      for (BufferId buffer : *list) state(buffer).used[lane] = id;
    }
    for (const auto* list : {&op.writes, &op.adds, &op.allocates, &op.frees}) {
      for (BufferId buffer : *list) state(buffer).written[lane] = id;
    }
    if (op.lane == Lane::kCompute) last_compute_ = id;
    if (!op.frees.empty()) last_free_[lane] = id;
  }

  const Program& program_;
  std::vector<BufferState> states_;
  HappensBefore order_;
  OpId last_compute_ = -1;
  LaneClock last_free_ = kNothingDone;
};

}  // namespace

void check_buffers(const Program& program) { BufferCheck(program).run(); }

}  // namespace wirewise
