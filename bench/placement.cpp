// How long placement takes, and what it gives: 16,384 GPUs under 64 leaves, pp=8, dp=256, tp=8. Prints one line.
#include <chrono>
#include <cstdio>
#include <vector>

#include "tests/wiring/placement_wirings.h"

int main() {
  using namespace wirewise;
  const auto cluster = placement_test::leaf_spine(std::vector<int>(64, 32), 800);
  const RankTraffic traffic = placement_test::mesh_traffic(8, 256, 8, 100e6, 1e9, 10e9);
  const auto start = std::chrono::steady_clock::now();
  const Placement placed = place(cluster.wiring, traffic);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%d ranks placed in %.2f s: %.4f s a step as modelled, linear order %.4f, random %.4f\n", traffic.ranks, seconds, placed.time.seconds, placed.linear.seconds,
              placed.random.seconds);
}
