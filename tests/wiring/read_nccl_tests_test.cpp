// Tables of nccl-tests and its kin, old and new, whole and torn.
#include "wirewise/wiring/read_nccl_tests.h"

#include <gtest/gtest.h>

#include "wiring/reader_fuzz.h"

namespace wirewise {
namespace {

NcclTestsTable table_of(const std::string& name) { return read_nccl_tests_table(field::text("nccltests/" + name).value(), name); }

const Measurement& row(const NcclTestsTable& table, Bytes bytes, bool in_place) {
  static const Measurement none;
  const auto found = std::find_if(table.rows.begin(), table.rows.end(), [&](const Measurement& one) { return one.bytes == bytes && one.in_place == in_place; });
  EXPECT_NE(found, table.rows.end()) << bytes;
  return found == table.rows.end() ? none : *found;
}

TEST(ReadNcclTests, LabelsAndColumnsOfAnyAge) {
  const auto labelled = read_nccl_tests_table("0:      1024   256  float  sum  -1  10.0  0.10  0.19  0  N/A  N/A  N/A  N/A\n", "t");
  ASSERT_EQ(labelled.rows.size(), 2U);
  EXPECT_EQ(labelled.rows[0].busbw, 0.19e9);
  EXPECT_EQ(labelled.rows[0].wrong, 0);
  EXPECT_EQ(labelled.rows[1].wrong, -1);
  const auto cut = read_nccl_tests_table("1024 256 float sum -1 10.0 0.10 0.19 0 10.0 0.1\n", "t");
  EXPECT_EQ(cut.rows.size(), 1U);
  EXPECT_TRUE(cut.reading.partial);
  const auto wrong = read_nccl_tests_table("1024 256 float sum -1 10.0 0.10 0.19 7 10.0 0.1 0.2 0\n", "t");
  EXPECT_EQ(wrong.rows[0].wrong, 7);
  EXPECT_TRUE(field::noted(wrong.reading, "wrong results"));
  EXPECT_THROW((void)read_nccl_tests_table("nothing here\n", "t"), Error);
}

TEST(ReadNcclTests, MillisecondsOfEarlyTests) {
  const std::string head = "# Using devices\n#   Rank  0 on box device  0 [0x01] X\n#   Rank  1 on box device  1 [0x02] X\n#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res\n";
  const std::string line = "    20000000       5000000   float     sum    2.000  10.00  10.00    0e+00    2.500   8.00   8.00    0e+00\n";
  const auto early = read_nccl_tests_table(head + line, "t");
  ASSERT_EQ(early.rows.size(), 2U);
  EXPECT_EQ(early.rows[0].time_us, 2000);  // 20 MB at 10 GB/s
  EXPECT_EQ(early.rows[1].time_us, 2500);
  EXPECT_EQ(early.rows[0].ranks, 2);
  EXPECT_TRUE(field::noted(early.reading, "milliseconds"));
  // Without figures that tell, the head does.
  EXPECT_EQ(read_nccl_tests_table(head + "8 2 float sum 0.010 0.00 0.00 0e+00 0.011 0.00 0.00 0e+00\n", "t").rows[0].time_us, 10);
  const auto late = read_nccl_tests_table("20000000 5000000 float sum -1 2000.0 10.00 10.00 0 2500.0 8.00 8.00 0\n", "t");
  EXPECT_EQ(late.rows[0].time_us, 2000);
}

TEST(ReadNcclTests, RowsAndRemarksThatLostOrGainedAHash) {
  const auto gained = read_nccl_tests_table("#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n#  4096 1024 float sum 10.0 0.41 0.41 0e+00 10.0 0.41 0.41 0e+00\n", "t");
  ASSERT_EQ(gained.rows.size(), 2U);
  EXPECT_EQ(gained.rows[0].bytes, 4096U);
  const auto lost = read_nccl_tests_table(
      " nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 2(factor)\n Using devices\n  Rank  0 Group  0 Pid 17 on box device  0 [0x00] X\n  Rank  1 Group  0 Pid 17 on box device  1 [0x01] X\n"
      "       size         count    type   time   algbw   busbw #wrong\n 4096 1024 float sum -1 10.0 0.41 0.41 0 10.0 0.41 0.41 0\n Out of bounds values : 3 FAILED\n Avg bus bandwidth : 0.41\n",
      "t");
  ASSERT_EQ(lost.rows.size(), 2U);
  EXPECT_EQ(lost.rows[0].ranks, 2);
  EXPECT_TRUE(field::noted(lost.reading, "results were wrong: 3 FAILED"));
  EXPECT_TRUE(std::any_of(lost.reading.facts.begin(), lost.reading.facts.end(), [](const Fact& fact) { return fact.name == "average bus bandwidth" && fact.value == "0.41 GB/s"; }));
}

TEST(ReadNcclTests, TheFieldsTables) {
  WIREWISE_NEEDS_FIELD();
  const auto rows_only = table_of("8gpu-reduce_scatter-like-nccltests128-rows-only.txt");
  EXPECT_EQ(rows_only.rows.size(), 24U);
  EXPECT_EQ(row(rows_only, 134217728, true).busbw, 16.98e9);
  EXPECT_EQ(row(rows_only, 65536, false).time_us, 33.50);
  EXPECT_EQ(row(rows_only, 65536, false).wrong, 0);

  const auto pcie = table_of("a100-pcie-4gpu-all_gather-single-size.txt");
  ASSERT_EQ(pcie.rows.size(), 2U);
  EXPECT_EQ(pcie.rows[0].ranks, 4);
  EXPECT_EQ(pcie.rows[0].time_us, 973.2);
  EXPECT_EQ(pcie.rows[1].busbw, 25.95e9);

  const auto sxm = table_of("a100-sxm4-80gb-8gpu-1proc-all_reduce.txt");
  EXPECT_EQ(sxm.rows.size(), 60U);
  EXPECT_EQ(row(sxm, 4294967296ULL, false).busbw, 232.44e9);
  EXPECT_EQ(row(sxm, 4294967296ULL, true).time_us, 32455);
  EXPECT_EQ(row(sxm, 8, true).time_us, 38.85);
  EXPECT_EQ(row(sxm, 8, true).ranks, 8);
  EXPECT_FALSE(field::noted(sxm.reading, "falls"));
  EXPECT_FALSE(sxm.reading.partial);

  const auto pods = table_of("a800-12pod-24gpu-all_reduce.txt");
  EXPECT_EQ(pods.rows.size(), 6U);
  EXPECT_EQ(row(pods, 2147483648ULL, true).ranks, 24);
  EXPECT_EQ(row(pods, 2147483648ULL, true).busbw, 42.34e9);

  const auto torn = table_of("h100-4node-32gpu-slurm-label-prefix-split-rows-nccl1453.txt");
  EXPECT_EQ(torn.rows.size(), 20U);
  EXPECT_EQ(row(torn, 33554432, false).busbw, 29.50e9);
  EXPECT_EQ(row(torn, 67108864, false).busbw, 5.27e9);
  EXPECT_EQ(row(torn, 536870912, true).busbw, 5.33e9);
  EXPECT_TRUE(field::noted(torn.reading, "falls: 29.5 GB/s at 32.00 MiB, but 5.27 GB/s at 64.00 MiB"));
  EXPECT_TRUE(torn.reading.partial);  // its first row has lost its size

  const auto rccl = table_of("rccl-mi300-8gpu-all_reduce-algo-proto-columns.txt");
  EXPECT_EQ(rccl.rows.size(), 6U);
  EXPECT_EQ(rccl.rows[0].op, "all_reduce");
  EXPECT_EQ(row(rccl, 268435456, true).busbw, 365.76e9);
  EXPECT_TRUE(std::any_of(rccl.reading.facts.begin(), rccl.reading.facts.end(), [](const Fact& fact) { return fact.value == "Direct SIMPLE 32"; }));

  const auto bench = table_of("all_reduce_bench-tables.txt");
  EXPECT_EQ(bench.rows.size(), 20U + 40U);
  EXPECT_EQ(bench.rows[0].bytes, 32 * kKiB);
  EXPECT_EQ(bench.rows[0].algbw, 0.82e9);
  EXPECT_EQ(bench.rows.back().label, "4 nodes");
  EXPECT_EQ(bench.rows.back().busbw, 381.80e9);
  EXPECT_EQ(bench.rows.back().bytes, 16 * kGiB);

  const auto single = table_of("single-rank-all_reduce-avg-0.txt");
  EXPECT_TRUE(single.rows.empty());
  EXPECT_TRUE(field::noted(single.reading, "a single rank moves nothing"));
}

TEST(ReadNcclTests, SurvivesAnyText) {
  std::vector<std::string> samples = fuzz::with_field({}, "nccltests", ".txt");
  samples.push_back("# Collective test starting: all_reduce_perf\n1024 256 float sum -1 10.0 0.10 0.19 0 N/A N/A N/A N/A\n| payload | busbw | algbw |\n| 1KiB | 1.0GBps | 2.0GBps |\n");
  fuzz::run_reader(samples, [](const std::string& text) { return read_nccl_tests(text, "fuzz"); });
}

}  // namespace
}  // namespace wirewise
