// What collectives of a size take: times that people measured on GPUs and that the curves have not seen, and closed forms.
#include "wirewise/wiring/group_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>

#include "wirewise/base/error.h"
#include "wirewise/base/outliers.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/cluster_file.h"
#include "wirewise/wiring/collective_curves.h"
#include "wirewise/wiring/path.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/write.h"

namespace wirewise {
namespace {

Wiring shipped(const std::string& name) { return read_shipped(name).value().wiring; }

std::vector<int> first_gpus(const Wiring& wiring, int count) {
  std::vector<int> gpus = devices_of(wiring, DeviceKind::kGpu);
  gpus.resize(static_cast<std::size_t>(count));
  return gpus;
}

struct Row {
  std::string machine, source;
  int gpus = 0;
  Bytes bytes = 0;
  double time_us = 0;
};

/// Rows of data/collective_curves.csv that the curves aren't made of.
std::vector<Row> held_out() {
  std::ifstream in(std::string(WIREWISE_SOURCE_DIR) + "/data/collective_curves.csv");
  std::string line;
  std::getline(in, line);
  std::vector<Row> rows;
  while (std::getline(in, line)) {
    const auto cells = split(line, ',');
    if (cells[7] == "yes") continue;
    rows.push_back({cells[0], cells[8], std::stoi(cells[3]), static_cast<Bytes>(std::stoull(cells[4])), std::stod(cells[5])});
  }
  return rows;
}

TEST(GroupTime, AgreesWithTimesThatTheCurvesHaveNotSeen) {
  const std::map<std::string, Wiring> machines{{"dgx1-v100", shipped("dgx-1")}, {"dgx-a100", shipped("dgx-a100")}};
  std::vector<double> errors;
  const std::vector<Row> rows = held_out();
  ASSERT_GT(rows.size(), 90U);
  for (const Row& row : rows) {
    const Wiring& wiring = machines.at(row.machine);
    const GroupTime found = group_time(wiring, first_gpus(wiring, row.gpus), GroupCollective::kAllReduce, row.bytes);
    errors.push_back(std::abs(found.time * 1e6 / row.time_us - 1));
    EXPECT_LT(errors.back(), 0.25) << row.machine << ", " << row.gpus << " GPUs, " << row.bytes << " B: predicted " << found.time * 1e6
                                   << " us, measured " << row.time_us << " (" << row.source << "); " << found.from;
    EXPECT_TRUE(found.from.starts_with("as measured")) << found.from;
  }
  const auto within = [&](double share) {
    return std::count_if(errors.begin(), errors.end(), [&](double error) { return error <= share; });
  };
  std::cout << errors.size() << " times: median error " << 100 * median(errors) << " %, largest "
            << 100 * *std::max_element(errors.begin(), errors.end()) << " %; " << within(0.1) << " within 10 %, " << within(0.2)
            << " within 20 %\n";
  EXPECT_LT(median(errors), 0.06);
  EXPECT_GT(static_cast<double>(within(0.1)), 0.7 * static_cast<double>(errors.size()));
}

TEST(GroupTime, CurvesGoStraightBetweenSizesAndNumbersOfGpus) {
  // Of 2 A100 1 MiB took 44.21 us and 2 MiB 53.43, of 8 1 MiB took 92.79; at 1 GiB they had 197.28 and 229.35 GB/s (vTrain trace/a100).
  const auto above = [](int gpus, double bytes) { return all_reduce_curve(LinkKind::kNvlink, 3, gpus, static_cast<Bytes>(bytes)).value().above * 1e6; };
  const double mib = 1048576;
  const double small = 44.21 - mib / 197.28e3, twice = 53.43 - 2 * mib / 197.28e3, eight = 92.79 - 1.75 * mib / 229.35e3;
  EXPECT_NEAR(above(2, mib), small, 1e-3);
  EXPECT_NEAR(above(2, mib * std::sqrt(2.0)), (small + twice) / 2, 1e-3);
  EXPECT_NEAR(above(5, mib), (small + eight) / 2, 1e-3);
  EXPECT_NEAR(above(2, 1), small, 1e-3);  // smaller ones as the smallest
  EXPECT_LT(above(2, 1e12), 0.1);         // larger ones as the largest, which bandwidth alone explains; the figures are rounded
  EXPECT_FALSE(all_reduce_curve(LinkKind::kNvlink, 3, 9, 8).has_value());
  EXPECT_FALSE(all_reduce_curve(LinkKind::kNvlink, 3, 1, 8).has_value());
  EXPECT_FALSE(all_reduce_curve(LinkKind::kNvlink, 4, 8, 8).has_value());
}

TEST(GroupTime, LargeMessagesGetTheBandwidthOfTheGroup) {
  for (const char* name : {"dgx-1", "dgx-a100", "hgx-h100", "512-h100", "4x3090"}) {
    const Wiring wiring = shipped(name);
    const std::vector<int> gpus = devices_of(wiring, DeviceKind::kGpu);
    for (GroupCollective collective : {GroupCollective::kAllReduce, GroupCollective::kAllGather, GroupCollective::kReduceScatter}) {
      const GroupTime found = group_time(wiring, gpus, collective, Bytes{1} << 44);
      EXPECT_NEAR(found.bus / group_bandwidth(wiring, gpus, collective).bus, 1, 1e-3) << name;
    }
  }
}

TEST(GroupTime, StepsOfARingAndATreeAreCounted) {
  // Four hosts of a GPU each on one switch: latencies of the ports add up to that of a step.
  const Wiring wiring = read_cluster("[[host]]\ntemplate = \"workstation-25gbe\"\ncount = 4\n", "c.toml").wiring;
  std::vector<int> gpus;
  for (int host = 0; host < 4; ++host) gpus.push_back(devices_of(wiring, DeviceKind::kGpu, host).front());
  const Seconds step = Paths(wiring).find(gpus[0], gpus[1]).value().latency;
  ASSERT_GT(step, 0);
  const auto latency = [&](GroupCollective collective, GroupAlgorithm algorithm) {
    return group_time(wiring, gpus, collective, 1, algorithm).latency;
  };
  EXPECT_NEAR(latency(GroupCollective::kAllReduce, GroupAlgorithm::kRing), 6 * step, 1e-12);
  EXPECT_NEAR(latency(GroupCollective::kAllGather, GroupAlgorithm::kRing), 3 * step, 1e-12);
  EXPECT_NEAR(latency(GroupCollective::kAllReduce, GroupAlgorithm::kTree), 4 * step, 1e-12);
  // Few bytes go by the tree, many by the ring; time never falls.
  EXPECT_EQ(group_time(wiring, gpus, GroupCollective::kAllReduce, 8).large.algorithm, GroupAlgorithm::kTree);
  EXPECT_EQ(group_time(wiring, gpus, GroupCollective::kAllReduce, Bytes{1} << 30).large.algorithm, GroupAlgorithm::kRing);
  Seconds before = 0;
  for (Bytes bytes = 1; bytes < Bytes{1} << 36; bytes *= 3) {
    const GroupTime found = group_time(wiring, gpus, GroupCollective::kAllReduce, bytes);
    EXPECT_GE(found.time, before);
    EXPECT_NEAR(found.time, found.latency + 1.5 * static_cast<double>(bytes) / found.large.bus, 1e-12 + 1e-9 * found.time);
    before = found.time;
  }
}

TEST(GroupTime, MeasuredLinksOfCoresArePrintedBySize) {
  // Two cores: an all-reduce is two steps of two links, and its bus bandwidth the link's.
  const Reading reading = read_cluster(
      "device = [{ name = \"a\", kind = \"cpu\" }, { name = \"b\", kind = \"cpu\" }]\n"
      "link = [{ b = \"a\", kind = \"shared memory\", beta_GBps = 1 }, { b = \"b\", kind = \"shared memory\", beta_GBps = 1 }]\n"
      "[[measured]]\nclass = \"shared memory\"\nalpha_us = 5\nbeta_GBps = 8\n",
      "c.toml");
  const Bytes sizes[] = {1 << 20};
  const std::string text = write_groups(reading.wiring, sizes);
  EXPECT_NE(text.find("all-reduce of 2 cores: 8 GB/s bus bandwidth"), std::string::npos) << text;
  EXPECT_NE(text.find("measured"), std::string::npos) << text;
  const GroupTime found = group_time(reading.wiring, devices_of(reading.wiring, DeviceKind::kCpu), GroupCollective::kAllReduce, 1 << 20);
  EXPECT_NEAR(found.time, 20e-6 + 1048576 / 8e9, 1e-12);
  EXPECT_EQ(found.provenance, Provenance::kMeasured);
}

TEST(GroupTime, WhatAnAlgorithmCantDoIsRefused) {
  const Wiring wiring = shipped("dgx-a100");
  const std::vector<int> gpus = devices_of(wiring, DeviceKind::kGpu);
  EXPECT_THROW((void)group_time(wiring, gpus, GroupCollective::kAllGather, 8, GroupAlgorithm::kTree), Error);
  EXPECT_THROW((void)group_time(wiring, gpus, GroupCollective::kAllReduce, 8, GroupAlgorithm::kInSwitch), Error);  // its switches don't sum
  EXPECT_EQ(group_time(wiring, first_gpus(wiring, 1), GroupCollective::kAllReduce, 8).time, 0);
}

}  // namespace
}  // namespace wirewise
