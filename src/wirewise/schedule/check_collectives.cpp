// Programs of different roles meet in collectives. Those that share a group must enter the same ones, and waiting for each other
// must not close a circle.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "wirewise/base/error.h"
#include "wirewise/schedule/check.h"
#include "wirewise/schedule/order.h"

namespace wirewise {
namespace {

constexpr const char* kRemedy = "This is a defect of the builder or of a pass; please report it with the strategy.";

Error unsound(const std::string& what) { return Error(ErrorKind::kFailed, "the schedule is unsound: " + what + ".", kRemedy); }

void require_ranks(const Schedule& schedule) {
  std::vector<int> programs(static_cast<std::size_t>(std::max(schedule.ranks, 0)), 0);
  for (const auto& program : schedule.programs) {
    for (int rank : program.ranks) {
      if (rank < 0 || rank >= schedule.ranks) {
        throw unsound("role " + program.role + " has rank " + std::to_string(rank) + " of " + std::to_string(schedule.ranks));
      }
      if (++programs[static_cast<std::size_t>(rank)] > 1) throw unsound("rank " + std::to_string(rank) + " runs two programs");
    }
  }
  const auto idle = std::find(programs.begin(), programs.end(), 0);
  if (idle != programs.end()) throw unsound("rank " + std::to_string(idle - programs.begin()) + " runs no program");
}

/// Where collectives meet: one communicator for each.
using Channel = std::pair<Mesh::Dim, Lane>;

std::map<Channel, std::vector<OpId>> sequences(const Program& program) {
  std::map<Channel, std::vector<OpId>> result;
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) {
    const Op& op = program.ops[static_cast<std::size_t>(id)];
    if (is_collective(op.kind)) result[{op.group, op.lane}].push_back(id);
  }
  return result;
}

bool share_group(const Program& a, const Program& b, Mesh::Dim dim, const Mesh& mesh) {
  const std::set<int> others(b.ranks.begin(), b.ranks.end());
  return std::any_of(a.ranks.begin(), a.ranks.end(), [&](int rank) {
    const auto group = mesh.group_of(rank, dim);
    return std::any_of(group.begin(), group.end(), [&](int peer) { return others.contains(peer); });
  });
}

/// All ops of all programs as nodes; collectives that meet are one node.
class Merged {
 public:
  explicit Merged(const Schedule& schedule) : schedule_(schedule) {
    for (const auto& program : schedule.programs) {
      first_.push_back(count_);
      count_ += program.ops.size();
    }
    parent_.resize(count_);
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }

  [[nodiscard]] std::size_t node(std::size_t program, OpId op) const { return first_[program] + static_cast<std::size_t>(op); }
  void unite(std::size_t a, std::size_t b) { parent_[root(a)] = root(b); }

  void require_no_cycle() {
    std::vector<std::set<std::size_t>> next(count_);
    std::vector<std::size_t> waits(count_, 0);
    const auto edge = [&](std::size_t from, std::size_t to) {
      if (next[root(from)].insert(root(to)).second) ++waits[root(to)];
    };
    for (std::size_t p = 0; p < schedule_.programs.size(); ++p) {
      LaneClock last = kNothingDone;
      const auto& ops = schedule_.programs[p].ops;
      for (OpId id = 0; id < static_cast<OpId>(ops.size()); ++id) {
        const Op& op = ops[static_cast<std::size_t>(id)];
        auto& previous = last[lane_index(op)];
        if (previous >= 0) edge(node(p, previous), node(p, id));
        previous = id;
        for (OpId earlier : op.after) edge(node(p, earlier), node(p, id));
      }
    }
    std::vector<std::size_t> ready;
    std::size_t left = 0;
    for (std::size_t n = 0; n < count_; ++n) {
      if (root(n) != n) continue;
      ++left;
      if (waits[n] == 0) ready.push_back(n);
    }
    while (!ready.empty()) {
      const auto n = ready.back();
      ready.pop_back();
      --left;
      for (auto follower : next[n]) {
        if (--waits[follower] == 0) ready.push_back(follower);
      }
    }
    if (left == 0) return;
    for (std::size_t n = 0; n < count_; ++n) {
      if (root(n) == n && waits[n] > 0) throw unsound(text(n) + " can't start: roles wait for each other");
    }
  }

 private:
  std::size_t root(std::size_t n) {
    while (parent_[n] != n) n = parent_[n] = parent_[parent_[n]];
    return n;
  }
  [[nodiscard]] std::string text(std::size_t n) const {
    const auto program = static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), n) - first_.begin()) - 1;
    return op_text(schedule_.programs[program], static_cast<OpId>(n - first_[program]));
  }

  const Schedule& schedule_;
  std::vector<std::size_t> first_;
  std::size_t count_ = 0;
  std::vector<std::size_t> parent_;
};

void require_same(const Program& a, OpId in_a, const Program& b, OpId in_b) {
  const Op& x = a.ops[static_cast<std::size_t>(in_a)];
  const Op& y = b.ops[static_cast<std::size_t>(in_b)];
  if (x.kind != y.kind || x.param_groups != y.param_groups || x.micro_batch != y.micro_batch) {
    throw unsound(op_text(a, in_a) + " meets " + op_text(b, in_b));
  }
  if (x.bytes != y.bytes) {
    throw unsound(op_text(a, in_a) + " has " + std::to_string(x.bytes) + " bytes, but " + op_text(b, in_b) + " has " +
                  std::to_string(y.bytes));
  }
}

}  // namespace

void check_collectives(const Schedule& schedule) {
  require_ranks(schedule);
  if (schedule.programs.size() < 2) return;  // all ranks run one list
  const Mesh mesh(schedule.strategy, schedule.ranks);
  Merged merged(schedule);
  std::vector<std::map<Channel, std::vector<OpId>>> entered;
  for (const auto& program : schedule.programs) entered.push_back(sequences(program));
  for (std::size_t p = 0; p < entered.size(); ++p) {
    for (std::size_t q = p + 1; q < entered.size(); ++q) {
      const Program& a = schedule.programs[p];
      const Program& b = schedule.programs[q];
      std::set<Channel> channels;
      for (const auto* side : {&entered[p], &entered[q]}) {
        for (const auto& [channel, ops] : *side) channels.insert(channel);
      }
      for (const auto& channel : channels) {
        if (!share_group(a, b, channel.first, mesh)) continue;
        const auto& in_a = entered[p][channel];
        const auto& in_b = entered[q][channel];
        for (std::size_t k = 0; k < std::min(in_a.size(), in_b.size()); ++k) {
          require_same(a, in_a[k], b, in_b[k]);
          merged.unite(merged.node(p, in_a[k]), merged.node(q, in_b[k]));
        }
        if (in_a.size() != in_b.size()) {
          const bool more_in_a = in_a.size() > in_b.size();
          const auto k = std::min(in_a.size(), in_b.size());
          throw unsound(more_in_a ? op_text(a, in_a[k]) + " has no counterpart in role " + b.role
                                  : op_text(b, in_b[k]) + " has no counterpart in role " + a.role);
        }
      }
    }
  }
  merged.require_no_cycle();
}

}  // namespace wirewise
