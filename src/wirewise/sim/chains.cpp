#include "wirewise/sim/chains.h"

#include <algorithm>
#include <array>
#include <utility>

namespace wirewise {
namespace {

constexpr std::size_t kLanes = static_cast<std::size_t>(Lane::kCopy) + 1;

const Op& op_of(const Program& program, OpId id) { return program.ops.at(static_cast<std::size_t>(id)); }

class CoreOrder {
 public:
  explicit CoreOrder(const Program& program) : program_(program), pending_(program.ops.size(), false) {
    for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) place(id);
    // What nobody waited for is waited for at the end, in the order of issue.
    for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) complete(id);
  }
  [[nodiscard]] Chain take() { return std::move(order_); }

 private:
  void place(OpId id) {
    const Op& op = op_of(program_, id);
    for (OpId earlier : op.after) complete(earlier);
    auto& issued = issued_[static_cast<std::size_t>(op.lane)];
    if (is_collective(op.kind) && op.lane != Lane::kCompute) {
      issued.push_back(id);
      pending_[static_cast<std::size_t>(id)] = true;
      return;
    }
    if (!issued.empty()) complete(issued.back());  // its lane's order holds for what isn't a collective too
    order_.push_back(id);
  }

  /// Lanes are first in, first out: all that was issued in the lane before `id` completes before it.
  void complete(OpId id) {
    if (!pending_.at(static_cast<std::size_t>(id))) return;
    auto& issued = issued_[static_cast<std::size_t>(op_of(program_, id).lane)];
    const auto last = std::find(issued.begin(), issued.end(), id);
    for (auto it = issued.begin(); it != last + 1; ++it) {
      pending_[static_cast<std::size_t>(*it)] = false;
      order_.push_back(*it);
    }
    issued.erase(issued.begin(), last + 1);
  }

  const Program& program_;
  std::vector<bool> pending_;
  std::array<std::vector<OpId>, kLanes> issued_;  // not yet complete, in order
  Chain order_;
};

}  // namespace

std::vector<Chain> chain_a_lane(const Program& program) {
  std::vector<Chain> chains(kLanes);
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) {
    chains[static_cast<std::size_t>(op_of(program, id).lane)].push_back(id);
  }
  return chains;
}

Chain core_order(const Program& program) { return CoreOrder(program).take(); }

}  // namespace wirewise
