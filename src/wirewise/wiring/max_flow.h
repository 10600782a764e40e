// The most that flows through a graph at once (Dinic's algorithm, on capacities in real numbers).
#pragma once

#include <vector>

namespace wirewise {

class MaxFlow {
 public:
  explicit MaxFlow(int nodes) : out_(static_cast<std::size_t>(nodes)) {}
  /// A directed edge. Capacities below 1 are none.
  void add_edge(int from, int to, double capacity);
  /// From `source` to `sink`. Uses the capacities up: one call an object.
  [[nodiscard]] double solve(int source, int sink);

 private:
  struct Edge {
    int to;
    double left;
    std::size_t back;  // of the reverse edge, among those of `to`
  };
  [[nodiscard]] bool level_from(int source, int sink);
  double push(int at, int sink, double most);

  std::vector<std::vector<Edge>> out_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
};

}  // namespace wirewise
