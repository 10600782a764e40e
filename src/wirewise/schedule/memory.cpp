// The memory walk: adds up what is live along a program's order. An op's allocations stand before it, its temporary during it,
// its frees after it; persistent buffers are live from the start.
#include <algorithm>

#include "wirewise/schedule/schedule.h"

namespace wirewise {
namespace {

class Walk {
 public:
  explicit Walk(const Program& program) : program_(program) {
    for (const auto& buffer : program.buffers) {
      if (buffer.persistent) live_[index(buffer.category)] += own_bytes(buffer);
    }
    record(-1);
    report_.live_after.reserve(program.ops.size());
    for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) step(id);
  }

  [[nodiscard]] MemoryReport take() { return std::move(report_); }

 private:
  static std::size_t index(Category category) { return static_cast<std::size_t>(category); }

  Bytes& live_of(BufferId id) { return live_[index(program_.buffers[static_cast<std::size_t>(id)].category)]; }
  [[nodiscard]] Bytes bytes_of(BufferId id) const { return own_bytes(program_.buffers[static_cast<std::size_t>(id)]); }

  [[nodiscard]] Bytes sum() const {
    Bytes total = 0;
    for (Bytes bytes : live_) total += bytes;
    return total;
  }

  void record(OpId id) {
    for (std::size_t c = 0; c < kCategories; ++c) report_.category_peak[c] = std::max(report_.category_peak[c], live_[c]);
    if (const Bytes total = sum(); total > report_.peak || id < 0) {
      report_.peak = total;
      report_.peak_op = id;
      std::copy(std::begin(live_), std::end(live_), std::begin(report_.at_peak));
    }
  }

  void step(OpId id) {
    const Op& op = program_.ops[static_cast<std::size_t>(id)];
    for (BufferId buffer : op.allocates) live_of(buffer) += bytes_of(buffer);
    live_[index(Category::kTemporaries)] += op.temporary;
    record(id);
    live_[index(Category::kTemporaries)] -= op.temporary;
    for (BufferId buffer : op.frees) live_of(buffer) -= bytes_of(buffer);
    report_.live_after.push_back(sum());
  }

  const Program& program_;
  Bytes live_[kCategories] = {};
  MemoryReport report_;
};

}  // namespace

MemoryReport memory_walk(const Program& program) { return Walk(program).take(); }

}  // namespace wirewise
