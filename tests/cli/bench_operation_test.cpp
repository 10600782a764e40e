// What an operation moves: shapes and counts of a size, bus factors, and the least time that memory allows it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "comm/numbers.h"
#include "wirewise/base/error.h"
#include "wirewise/cli/bench_memory.h"
#include "wirewise/cli/bench_operation.h"

namespace wirewise::bench {
namespace {

TEST(BenchOperation, SizeIsTheWholeBufferAndCountIsTheCallsArgument) {
  struct Row {
    Op op;
    Bytes wanted;
    std::size_t count;
    Bytes size, in, out;
  };
  const std::vector<Row> rows{
      {Op::kAllReduce, 1000, 250, 1000, 1000, 1000}, {Op::kAllGather, 1200, 100, 1200, 400, 1200},     {Op::kReduceScatter, 1200, 100, 1200, 1200, 400},
      {Op::kGather, 1200, 100, 1200, 400, 1200},     {Op::kScatter, 1200, 100, 1200, 1200, 400},       {Op::kAllToAll, 1200, 100, 1200, 1200, 1200},
      {Op::kAllGather, 8, 1, 12, 4, 12},             {Op::kAllGather, 1199, 99, 1188, 396, 1188},      {Op::kAllReduce, 1, 1, 4, 4, 4},
      {Op::kAllGather, 0, 0, 0, 0, 0},               {Op::kBarrier, 1000, 0, 0, 0, 0},
  };
  for (const Row& row : rows) {
    const Shape shape = shape_of(row.op, DType::kFloat32, row.wanted, 3);
    EXPECT_EQ(shape.count, row.count) << name_of(row.op) << ' ' << row.wanted;
    EXPECT_EQ(shape.size, row.size) << name_of(row.op) << ' ' << row.wanted;
    EXPECT_EQ(shape.in, row.in) << name_of(row.op) << ' ' << row.wanted;
    EXPECT_EQ(shape.out, row.out) << name_of(row.op) << ' ' << row.wanted;
  }
}

TEST(BenchOperation, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Op::kAllReduce, 8), 1.75);
  for (const Op op : {Op::kAllGather, Op::kReduceScatter, Op::kAllToAll, Op::kGather, Op::kScatter}) EXPECT_DOUBLE_EQ(bus_factor(op, 8), 0.875);
  for (const Op op : {Op::kBroadcast, Op::kReduce, Op::kSendRecv}) EXPECT_DOUBLE_EQ(bus_factor(op, 8), 1);
}

/// Counts traffic from what each rank must end up with, as the definition of a lower bound: each input byte that leaves its owner's buffer
/// is read at least once, each output byte that isn't there already is written once.
TEST(BenchOperation, LeastTrafficIsInputsReadOnceAndOutputsWrittenOnce) {
  for (const int ranks : {2, 3, 8}) {
    const double n = ranks;
    const Bytes size = 24000;
    const double s = static_cast<double>(size);
    const auto expect = [&](Op op, bool in_place, double read, double written) {
      const Traffic traffic = least_traffic(op, size, ranks, in_place);
      EXPECT_DOUBLE_EQ(traffic.read, read) << name_of(op) << in_place << ranks;
      EXPECT_DOUBLE_EQ(traffic.written, written) << name_of(op) << in_place << ranks;
    };
    for (const bool in_place : {false, true}) {
      expect(Op::kAllReduce, in_place, n * s, n * s);
      expect(Op::kReduceScatter, in_place, n * s, s);
      expect(Op::kReduce, in_place, n * s, s);
    }
    expect(Op::kAllGather, false, s, n * s);
    expect(Op::kAllGather, true, s, (n - 1) * s);
    expect(Op::kBroadcast, true, s, (n - 1) * s);
    expect(Op::kAllToAll, false, n * s, n * s);
    expect(Op::kGather, false, s, s);
    expect(Op::kScatter, true, s - s / n, s - s / n);
  }
}

TEST(BenchMemory, LeastTimePairsReadsWithWrites) {
  const MemoryLimit limit{30e9, 20e9, 10e9};
  EXPECT_DOUBLE_EQ(least_time(limit, {1e9, 1e9}), 0.1);
  EXPECT_DOUBLE_EQ(least_time(limit, {4e9, 1e9}), 0.1 + 0.1);
  EXPECT_DOUBLE_EQ(least_time(limit, {1e9, 5e9}), 0.1 + 0.2);
  EXPECT_EQ(least_time(limit, {}), 0);
}

TEST(BenchOperation, NamesAreReadBackAndUnknownOnesHaveANearest) {
  const auto all = parse_ops("all");
  EXPECT_EQ(all.size(), 10U);
  for (const Op op : all) EXPECT_EQ(parse_ops(name_of(op)), std::vector<Op>{op});
  for (const Reduction redop : testing::kAllReductions) EXPECT_EQ(parse_reduction(name_of(redop)), redop);
  try {
    (void)parse_ops("all_reduce,al_gather");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("Did you mean all_gather?"), std::string::npos) << error.what();
  }
  EXPECT_THROW((void)parse_ops(""), Error);
  EXPECT_THROW((void)parse_reduction("mean"), Error);
}

}  // namespace
}  // namespace wirewise::bench
