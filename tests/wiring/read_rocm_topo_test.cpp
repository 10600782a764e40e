// rocm-smi --showtopo and amd-smi topology.
#include <gtest/gtest.h>

#include "wiring/field.h"
#include "wiring/posted_samples.h"
#include "wirewise/wiring/path.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {
namespace {

using field::device;
using field::fact;
using field::noted;
using field::refusal;
using field::relation;

TEST(ReadRocmTopo, ChainsOfXgmiAndNumaNodes) {
  const Reading reading = read_wiring(posted::kRocmTopo, "t");
  EXPECT_EQ(reading.format, Format::kRocmTopo);
  EXPECT_FALSE(reading.partial);
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "XGMI1");
  EXPECT_EQ(relation(reading, "GPU1", "GPU2"), "XGMI1");
  EXPECT_EQ(relation(reading, "GPU0", "GPU2"), "XGMI");  // over GPU1: weight 30
  EXPECT_EQ(relation(reading, "GPU2", "GPU3"), "NODE");
  EXPECT_EQ(relation(reading, "GPU0", "GPU3"), "SYS");
  EXPECT_EQ(device(reading, "GPU1").numa, 0);
  EXPECT_EQ(device(reading, "GPU3").numa, 1);
  EXPECT_EQ(fact(reading, "GPU0-GPU2", "weight"), "30");
  EXPECT_EQ(fact(reading, "GPU0-GPU3", "hops"), "2");
  EXPECT_EQ(fact(reading, "GPU0-GPU3", "link type"), "PCIE");
  EXPECT_TRUE(noted(reading, "1 pairs reach each other by xGMI through other GPUs"));
}

TEST(ReadRocmTopo, AmdSmiHasAddressesAndBandwidth) {
  const Reading reading = read_wiring(posted::kAmdTopology, "t");
  EXPECT_EQ(reading.format, Format::kRocmTopo);
  EXPECT_EQ(device(reading, "GPU0").pci, "0000:0c:00.0");
  EXPECT_EQ(device(reading, "GPU1").pci, "0000:22:00.0");
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "XGMI4");
  EXPECT_EQ(fact(reading, "GPU0-GPU1", "bandwidth in MB/s"), "50000-200000");
  EXPECT_EQ(fact(reading, "GPU0-GPU1", "access"), "ENABLED");
  EXPECT_TRUE(noted(reading, "NUMA nodes"));
}

TEST(ReadRocmTopo, EachTableByItself) {
  const std::string head = "============ Link Type between two GPUs ============\n       GPU0   GPU1\n";
  const Reading type = read_wiring(head + "GPU0   0      XGMI\nGPU1   XGMI   0\n", "t");
  EXPECT_EQ(relation(type, "GPU0", "GPU1"), "XGMI1");
  const Reading hops = read_wiring("=== Hops between two GPUs ===\n  GPU0 GPU1 GPU2\nGPU0 0 2 3\nGPU1 2 0 3\nGPU2 3 3 0\n", "t");
  EXPECT_EQ(relation(hops, "GPU0", "GPU1"), "NODE");
  EXPECT_EQ(relation(hops, "GPU0", "GPU2"), "SYS");
  EXPECT_TRUE(noted(hops, "whether xGMI joins the GPUs isn't known"));
  const Reading numa = read_wiring("GPU[0]\t\t: (Topology) Numa Node: 1\nGPU[1]\t\t: (Topology) Numa Node: -1\n", "t");
  EXPECT_EQ(device(numa, "GPU0").numa, 1);
  EXPECT_EQ(device(numa, "GPU1").numa, -1);
}

TEST(ReadRocmTopo, RefusesWithThePlace) {
  const std::string head = "=== Link Type between two GPUs ===\n     GPU0 GPU1\n";
  EXPECT_EQ(refusal(head + "GPU0 0 BUS\nGPU1 PCIE 0\n"), "f:3:8: BUS is no link type, in the row of GPU0 under GPU1.");
  EXPECT_EQ(refusal(head + "GPU0 0\nGPU1 PCIE 0\n"), "f:3:1: the row has 1 cells, the head 2 columns.");
  EXPECT_EQ(refusal(head + "GPU2 0 PCIE\n"), "f:3:1: the row of GPU2 has no column.");
  EXPECT_NE(refusal(head + "GPU0 0 PCIE\nGPU1 PCIE 0\n" + head + "GPU0 0 PCIE\nGPU1 PCIE 0\n").find("f:6:6: a second matrix of link type"), std::string::npos);
  const Reading cut = read_wiring(head + "GPU0 0 XGMI\n", "t");
  EXPECT_TRUE(cut.partial);
  EXPECT_TRUE(noted(cut, "has 1 rows for 2 columns"));
  EXPECT_NE(refusal("======= ROCm System Management Interface =======\nGPU[0] : Temperature: 40\n").find("not of the GPUs' topology"), std::string::npos);
}

TEST(ReadRocmTopo, PairsWithoutBandwidthHaveNoCable) {
  // Hops are 1 throughout a hive; the bandwidths say who is joined, and nothing where all are 0-0.
  const std::string types = "LINK TYPE TABLE:\n 0000:0a:00.0 0000:1a:00.0 0000:2a:00.0\n0000:0a:00.0 SELF XGMI XGMI\n0000:1a:00.0 XGMI SELF XGMI\n0000:2a:00.0 XGMI XGMI SELF\n";
  const auto bandwidths = [](const std::string& ab, const std::string& bc, const std::string& ac) {
    return "NUMA BW TABLE:\n 0000:0a:00.0 0000:1a:00.0 0000:2a:00.0\n0000:0a:00.0 N/A " + ab + " " + ac + "\n0000:1a:00.0 " + ab + " N/A " + bc + "\n0000:2a:00.0 " + ac + " " + bc + " N/A\n";
  };
  const Reading chain = read_wiring(types + bandwidths("50000-200000", "50000-50000", "0-0"), "t");
  EXPECT_EQ(relation(chain, "GPU0", "GPU1"), "XGMI4");
  EXPECT_EQ(relation(chain, "GPU1", "GPU2"), "XGMI1");
  EXPECT_EQ(relation(chain, "GPU0", "GPU2"), "XGMI");
  const auto path = Paths(chain.wiring).find(find_device(chain.wiring, "GPU0"), find_device(chain.wiring, "GPU2"));
  ASSERT_TRUE(path);
  ASSERT_EQ(path->links.size(), 2U);  // over GPU1, not over PCIe
  for (const int link : path->links) EXPECT_EQ(chain.wiring.links[static_cast<std::size_t>(link)].kind, LinkKind::kXgmi);
  EXPECT_EQ(relation(read_wiring(types + bandwidths("0-0", "0-0", "0-0"), "t"), "GPU0", "GPU2"), "XGMI1");
}

TEST(ReadRocmTopo, AMatrixWhoseHeadIsCutSaysWhatItIs) {
  const Reading reading = read_wiring("PE TABLE:\n 0000:0a:00.0 0000:1a:00.0\n0000:0a:00.0 SELF XGMI\n0000:1a:00.0 XGMI SELF\nHOPS TABLE:\n 0000:0a:00.0 0000:1a:00.0\n0000:0a:00.0 0 1\n0000:1a:00.0 1 0\n", "t");
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "XGMI1");
  EXPECT_FALSE(noted(reading, "type of the links isn't there"));
}

TEST(ReadRocmTopo, ACellThatTheFileEndsInIsLeftOut) {
  const Reading reading = read_wiring("WEIGHT TABLE:\n 0000:0a:00.0 0000:1a:00.0\n0000:0a:00.0 0 15\n0000:1a:00.0 1", "t");
  EXPECT_TRUE(reading.partial);
  EXPECT_FALSE(noted(reading, "is 1 here"));
}

}  // namespace
}  // namespace wirewise
