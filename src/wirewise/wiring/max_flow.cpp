#include "wirewise/wiring/max_flow.h"

#include <algorithm>
#include <limits>

namespace wirewise {
namespace {

constexpr double kNothing = 1.0;  // capacities are bytes a second: less than one is rounding

}  // namespace

void MaxFlow::add_edge(int from, int to, double capacity) {
  auto& out = out_[static_cast<std::size_t>(from)];
  auto& back = out_[static_cast<std::size_t>(to)];
  out.push_back({to, capacity, back.size()});
  back.push_back({from, 0, out.size() - 1});
}

double MaxFlow::solve(int source, int sink) {
  double sum = 0;
  while (level_from(source, sink)) {
    next_.assign(out_.size(), 0);
    while (const double pushed = push(source, sink, std::numeric_limits<double>::infinity())) sum += pushed;
  }
  return sum;
}

bool MaxFlow::level_from(int source, int sink) {
  level_.assign(out_.size(), -1);
  level_[static_cast<std::size_t>(source)] = 0;
  std::vector<int> reached{source};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    for (const Edge& edge : out_[static_cast<std::size_t>(reached[i])]) {
      int& level = level_[static_cast<std::size_t>(edge.to)];
      if (edge.left < kNothing || level != -1) continue;
      level = level_[static_cast<std::size_t>(reached[i])] + 1;
      reached.push_back(edge.to);
    }
  }
  return level_[static_cast<std::size_t>(sink)] != -1;
}

double MaxFlow::push(int at, int sink, double most) {
  if (at == sink) return most;
  auto& edges = out_[static_cast<std::size_t>(at)];
  for (std::size_t& i = next_[static_cast<std::size_t>(at)]; i < edges.size(); ++i) {
    Edge& edge = edges[i];
    if (edge.left < kNothing || level_[static_cast<std::size_t>(edge.to)] != level_[static_cast<std::size_t>(at)] + 1) continue;
    const double pushed = push(edge.to, sink, std::min(most, edge.left));
    if (pushed <= 0) continue;
    edge.left -= pushed;
    out_[static_cast<std::size_t>(edge.to)][edge.back].left += pushed;
    return pushed;
  }
  return 0;
}

}  // namespace wirewise
