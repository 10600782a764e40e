// `wirewise bench` across hosts: the bytes that an operation must send, and the link that cases are held against.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "comm/needs_ucx.h"
#include "comm/ranks.h"
#include "wirewise/cli/bench_case.h"
#include "wirewise/cli/bench_link.h"
#include "wirewise/comm/ucx_network.h"

namespace wirewise::bench {
namespace {

using namespace wirewise::testing;
using namespace std::chrono_literals;

TEST(BenchLink, LeastBytesOfTheBusiestHost) {
  constexpr Bytes kSize = 1 << 20;
  const auto least = [](Op op, DType dtype, int hosts) { return least_link_bytes(op, dtype, kSize, 8, hosts) / static_cast<double>(kSize); };
  // Two hosts: of a sum each host's half there, and back; of 16-bit floats the half there is float32.
  EXPECT_EQ(least(Op::kAllReduce, DType::kFloat32, 2), 1);
  EXPECT_EQ(least(Op::kAllReduce, DType::kBFloat16, 2), 1.5);
  EXPECT_EQ(least(Op::kAllReduce, DType::kInt16, 2), 1);
  EXPECT_EQ(least(Op::kAllReduce, DType::kFloat32, 4), 1.5);
  EXPECT_EQ(least(Op::kReduceScatter, DType::kFloat16, 2), 1);
  EXPECT_EQ(least(Op::kReduceScatter, DType::kFloat32, 4), 0.75);
  EXPECT_EQ(least(Op::kAllGather, DType::kBFloat16, 2), 0.5);
  EXPECT_EQ(least(Op::kBroadcast, DType::kBFloat16, 4), 1);
  // Four ranks a host, each with three quarters of its data for other hosts of four.
  EXPECT_EQ(least(Op::kAllToAll, DType::kFloat32, 2), 2);
  EXPECT_EQ(least(Op::kAllToAll, DType::kFloat32, 4), 1.5);
  EXPECT_EQ(least(Op::kSendRecv, DType::kFloat32, 2), 0);
  EXPECT_EQ(least(Op::kAllReduce, DType::kFloat32, 1), 0);
  EXPECT_EQ(least_link_bytes(Op::kAllReduce, DType::kFloat32, kSize, 5, 2), 0);
}

TEST(BenchLink, LeastTimeUsesTheRateOfWhoSends) {
  const LinkLimit limit{2, 2e9, 1e9};
  EXPECT_DOUBLE_EQ(least_time(limit, Op::kBroadcast, DType::kFloat32, 2'000'000, 4), 1e-3);
  EXPECT_DOUBLE_EQ(least_time(limit, Op::kAllReduce, DType::kFloat32, 2'000'000, 4), 2e-3);
  EXPECT_EQ(least_time(LinkLimit{}, Op::kAllReduce, DType::kFloat32, 2'000'000, 4), 0);
}

TEST(BenchLink, IsMeasuredBetweenHostsOfEqualRanks) {
  if (const std::string why = no_ucx_here(); !why.empty()) GTEST_SKIP() << why;
  struct Layout {
    std::string host_of;
    int hosts;
    bool measured;
  };
  for (const Layout& layout : {Layout{"00", 1, false}, Layout{"0011", 2, true}, Layout{"0101", 2, false}, Layout{"001", 2, false}}) {
    const TemporaryFolder folder;
    const int ranks = static_cast<int>(layout.host_of.size());
    expect_all_ok(run_ranks(ranks, [&](int rank) {
      ::setenv("WIREWISE_HOST_ID", layout.host_of.substr(static_cast<std::size_t>(rank), 1).c_str(), 1);
      ::setenv("WIREWISE_NET", "lo", 1);
      const auto communicator = make_communicator(std::make_shared<FileStore>(folder.path() / "store"), rank, ranks, {20s});
      Plan plan;
      plan.iterations = 1;
      plan.link = measure_link(*communicator);
      EXPECT_EQ(plan.link.hosts, layout.hosts) << layout.host_of;
      EXPECT_EQ(plan.link.one_way > 0 && plan.link.all_at_once > 0, layout.measured) << layout.host_of;
      const Result result = run_case(*communicator, {.size = 8000}, plan, MemoryLimit{});
      EXPECT_EQ(result.limit_fraction > 0, layout.measured) << layout.host_of;
      EXPECT_EQ(result.wrong, 0U);
      return std::string();
    }));
  }
}

}  // namespace
}  // namespace wirewise::bench
