// Lists, tables and reports as people post them: several commands in one file, parts left out, a reduction node that looks like a host.
#include <gtest/gtest.h>

#include "wiring/field.h"
#include "wirewise/wiring/cluster_file.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/path.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {
namespace {

using field::count;
using field::device;
using field::fact;
using field::noted;
using field::refusal;
using field::relation;

/// The link between two devices of one host.
Link link_of(const Reading& reading, const std::string& a, const std::string& b) {
  const int from = find_device(reading.wiring, a), to = find_device(reading.wiring, b);
  for (const Link& link : reading.wiring.links) {
    if (link.from == from && link.to == to) return link;
  }
  ADD_FAILURE() << a << " and " << b << " share no link";
  return {};
}

std::string nvlink_list(const std::string& first, const std::string& second) {
  return "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aa)\n" + first + "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-bb)\n" + second;
}

TEST(PostedLists, SeveralListsOfTheSameNvlinksAreOne) {
  const std::string up = "\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n";
  const std::string status = nvlink_list(up, up);
  const std::string capabilities = nvlink_list("\t Link 0, P2P is supported: true\n", "\t Link 0, P2P is supported: true\n");
  const Reading reading = read_wiring(status + "\n$ nvidia-smi nvlink -c\n" + capabilities + status, "t");
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 2U);
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "NV2");  // not four: the list stands there twice
  EXPECT_EQ(fact(reading, "GPU1", "NVLink 0 P2P is supported"), "true");
  // Another host's GPUs have the same numbers, but not the same names.
  EXPECT_NE(refusal(status + "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-cc)\n" + up).find("f:7:1: GPU 0 stands there twice, and isn't the same."), std::string::npos);
}

TEST(PostedLists, NvlinksThatThePosterLeftOutAreNotDown) {
  const Reading reading = read_wiring(nvlink_list("\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n\t Link 2: 26.562 GB/s\n", "\t Link 0: 26.562 GB/s\n...\n"), "t");
  EXPECT_TRUE(reading.partial);
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "NV3");
  EXPECT_TRUE(noted(reading, "the rest of GPU1's NVLinks is left out here"));
  EXPECT_FALSE(noted(reading, "has 1 NVLinks up"));
  EXPECT_EQ(link_of(reading, "GPU1", "nvswitch0").provenance, Provenance::kAssumed);
  EXPECT_TRUE(noted(read_wiring(nvlink_list("\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n", "\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"), "t"), "GPU1 has 1 NVLinks up, others 2"));
}

TEST(PostedLists, AReductionNodeIsNoHost) {
  const Reading reading = read_wiring(
      "CA: Mellanox Technologies Aggregation Node:\n"
      "      0x0000000000000a02      4    1[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>       3   41[  ] \"MF0;leaf7:MQM8700/U1\" ( )\n"
      "CA: node3 mlx5_0:\n"
      "      0x0000000000000b02      1    1[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>       3    1[  ] \"MF0;leaf7:MQM8700/U1\" ( )\n"
      "Switch: 0x0000000000000a01 MF0;leaf7:MQM8700/U1:\n"
      "           3    1[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>       1    1[  ] \"node3 mlx5_0\" ( )\n"
      "           3   41[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>       4    1[  ] \"Mellanox Technologies Aggregation Node\" ( )\n",
      "t");
  EXPECT_EQ(hosts_of(reading.wiring), 1);
  EXPECT_EQ(count(reading, DeviceKind::kNic), 1U);
  EXPECT_EQ(fact(reading, "cables", "4xHDR"), "1");
  EXPECT_TRUE(std::any_of(reading.facts.begin(), reading.facts.end(), [](const Fact& one) { return one.name == "reductions in the switch (SHARP)"; }));
}

std::string table_of(const std::string& ranks) {
  return "# Using devices\n" + ranks +
         "#\n#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
         "     1048576        262144     float     sum      -1    100.0   10.49   15.73      0    100.0   10.49   15.73      0\n";
}

std::string rank_line(int rank, const std::string& host) { return "#  Rank " + std::string(rank < 10 ? " " : "") + std::to_string(rank) + " Group  0 Pid  77 on " + host + " device  0 [0x1b] NVIDIA H100\n"; }

TEST(PostedLists, RanksAreCountedByTheirNumbers) {
  EXPECT_EQ(fact(read_wiring(table_of(rank_line(0, "a") + rank_line(1, "a") + rank_line(2, "b")), "t"), "table", "ranks"), "3");
  const Reading cut = read_wiring(table_of(rank_line(30, "c") + rank_line(31, "c")), "t");
  EXPECT_EQ(fact(cut, "table", "ranks"), "32");
  EXPECT_TRUE(noted(cut, "rank 31 is in it, so there are 32 or more"));
  EXPECT_TRUE(cut.partial);
  // Built without MPI: as many runs of one rank.
  const Reading alone = read_wiring(table_of(rank_line(0, "a") + rank_line(0, "b")), "t");
  EXPECT_EQ(fact(alone, "table", "ranks"), "1");
  EXPECT_TRUE(noted(alone, "rank 0 stands there 2 times: these are 2 runs of 1 rank"));
  // Two tables, each with its list.
  const Reading two = read_wiring(table_of(rank_line(0, "a") + rank_line(1, "a")) + table_of(rank_line(0, "a") + rank_line(1, "a") + rank_line(2, "b") + rank_line(3, "b")), "t");
  EXPECT_EQ(fact(two, "table", "ranks"), "4");
  EXPECT_FALSE(noted(two, "stands there"));
}

TEST(PostedLists, APortThatBreaksOffIsNamed) {
  const std::string port = "CA 'mlx5_3'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Active\n\t\tRate: 400\n";
  const Reading reading = read_wiring(port, "t");
  EXPECT_TRUE(noted(reading, "port 1 of mlx5_3 ends before its link layer"));
  EXPECT_FALSE(noted(reading, "before its ports"));
  EXPECT_TRUE(noted(read_wiring("CA 'mlx5_3'\n\tCA type: MT4129\n", "t"), "ends before its ports"));
  EXPECT_FALSE(read_wiring(port + "\t\tLink layer: InfiniBand\n", "t").partial);
}

TEST(PostedLists, APatchIsReadAsWhatItLeaves) {
  const Reading reading = read_wiring(
      "```diff\n@@ -1,6 +1,6 @@\n <system version=\"1\">\n-  <cpu numaid=\"0\" affinity=\"ff\">\n+  <cpu numaid=\"1\" affinity=\"0f\">\n     <pci busid=\"0001:00:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\"/>\n"
      "     <pci busid=\"0101:00:00.0\" class=\"0x020700\" link_speed=\"16 GT/s\" link_width=\"16\"/>\n   </cpu>\n </system>\n```\n",
      "t");
  EXPECT_EQ(device(reading, "GPU0").numa, 1);
  EXPECT_EQ(count(reading, DeviceKind::kNumaNode), 1U);
  EXPECT_EQ(relation(reading, "GPU0", "NIC0"), "PHB");
  EXPECT_FALSE(noted(reading, "<>"));
}

TEST(PostedLists, GraphsWithoutWhatHoldsThem) {
  const Reading reading = read_wiring(
      "I see this:\n```\n  <graph id=\"0\" pattern=\"4\" nchannels=\"1\" speedintra=\"20\" typeintra=\"PIX\">\n    <channel>\n      **<net dev=\"1\"/>\n      <gpu dev=\"0\"/>**\n      <gpu dev=\"1\"/>\n    </channel>\n  </graph>\n```\n", "t");
  EXPECT_EQ(fact(reading, "graph 0", "pattern"), "ring");
  EXPECT_EQ(fact(reading, "graph 0", "channel 0"), "net1 GPU0 GPU1");
  EXPECT_TRUE(reading.partial);
  EXPECT_FALSE(noted(reading, "<>"));
}

TEST(PostedLists, AReportBeforeTheMatrixSaysWhatItsGpusAre) {
  const auto gpu = [](const std::string& id, const std::string& lanes) {
    return "GPU 00000000:" + id + ":00.0\n    Product Name                          : NVIDIA L40S\n    PCI\n        GPU Link Info\n            PCIe Generation\n                Max                       : 4\n"
           "                Current                   : 4\n            Link Width\n                Max                       : 16x\n                Current                   : " + lanes + "x\n"
           "    FB Memory Usage\n        Total                             : 46068 MiB\n    Performance State                     : P0\n\n";
  };
  const std::string matrix = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\tPHB\t0-31\t0\nGPU1\tSYS\t X \tSYS\t32-63\t1\nNIC0\tPHB\tSYS\t X \t\t\n";
  const std::string head = "==============NVSMI LOG==============\n\nAttached GPUs                             : 2\n";
  for (const std::string& text : {head + gpu("3B", "8") + gpu("D8", "16") + matrix, matrix + "\n" + head + gpu("3B", "8") + gpu("D8", "16")}) {
    const Reading reading = read_wiring(text, "t");
    EXPECT_EQ(relation(reading, "GPU0", "NIC0"), "PHB");
    EXPECT_EQ(device(reading, "GPU0").pci, "0000:3b:00.0");
    EXPECT_EQ(device(reading, "GPU1").pci, "0000:d8:00.0");
    EXPECT_EQ(device(reading, "GPU0").model, "NVIDIA L40S");
    EXPECT_EQ(device(reading, "GPU1").memory, 46068 * kMiB);
    EXPECT_TRUE(noted(reading, "GPU0's PCIe link has 8 lanes of 16"));
    const auto path = Paths(reading.wiring).find(find_device(reading.wiring, "GPU0"), find_device(reading.wiring, "GPU1"));
    ASSERT_TRUE(path);
    EXPECT_EQ(count(reading, DeviceKind::kGpu), 2U);
    int lanes = 0;
    for (const Link& link : reading.wiring.links) {
      if (link.from == find_device(reading.wiring, "GPU0")) lanes = link.lanes;
    }
    EXPECT_EQ(lanes, 8);
  }
  // A report of one of them says nothing of which.
  const Reading one = read_wiring(head + gpu("3B", "8") + matrix, "t");
  EXPECT_EQ(device(one, "GPU0").pci, "");
  EXPECT_TRUE(noted(one, "were left out"));
}

TEST(PostedLists, TemplatesOfGpusWithoutNvlinkMissNone) {
  const auto file = [](const std::string& id) {
    const auto gpu = [&](const std::string& bus) {
      return "    <pci busid=\"0000:" + bus + ":00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"" + id + "\" subsystem_vendor=\"0x10de\" subsystem_device=\"0x1234\" link_speed=\"16 GT/s\" link_width=\"16\"/>\n";
    };
    return "<system version=\"1\">\n  <cpu numaid=\"0\">\n" + gpu("1a") + gpu("1b") + "  </cpu>\n</system>\n";
  };
  EXPECT_FALSE(noted(read_wiring(file("0x27b8"), "t"), "NVLinks"));  // L4
  EXPECT_TRUE(noted(read_wiring(file("0x20b0"), "t"), "where the GPUs have some"));  // A100
}

TEST(PostedLists, ABridgeOfSeveralPortsIsNoSlot) {
  const Reading reading = read_shipped("8xl40s").value();
  for (const Link& link : reading.wiring.links) {
    if (reading.wiring.devices[static_cast<std::size_t>(link.to)].kind != DeviceKind::kHostBridge || link.kind != LinkKind::kPcie) continue;
    if (link.source.find("ports together") == std::string::npos) continue;
    EXPECT_EQ(link.lanes, 0);
    EXPECT_NEAR(link.beta, 2 * pcie_link(4, 16, Provenance::kSpec).beta, 1);
  }
  for (const Link& link : reading.wiring.links) EXPECT_EQ(link.source.find("x32"), std::string::npos) << link.source;
}

}  // namespace
}  // namespace wirewise
