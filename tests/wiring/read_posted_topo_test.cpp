// Matrices as people post them: a cell for CPUs that is empty, rows that break off, nodes that contradict cells, GPUs that lost their NVLinks.
#include "wiring/topo_rows.h"
#include "wirewise/wiring/path.h"
#include "wirewise/wiring/write.h"

namespace wirewise {
namespace {

using field::device;
using field::expect_clean;
using field::fact;
using field::noted;
using field::refusal;
using field::relation;

TEST(PostedTopo, AnEmptyListOfCpusIsNotTheNodesNumber) {
  // A job that owns no CPU of node 0 and one of node 1.
  const Reading tabs = read_wiring(
      "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
      "GPU0\t X \tSYS\tPIX\t\t0\t\tN/A\n"
      "GPU1\tSYS\t X \tSYS\t5\t1\t\tN/A\n"
      "NIC0\tPIX\tSYS\t X \t\t\t\t\n",
      "t");
  const Reading blanks = read_wiring(
      "        GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
      "GPU0     X      SYS     PIX             0               N/A\n"
      "GPU1    SYS      X      SYS     5       1               N/A\n"
      "NIC0    PIX     SYS      X                              \n",
      "t");
  for (const Reading* reading : {&tabs, &blanks}) {
    expect_clean(*reading);
    EXPECT_EQ(device(*reading, "GPU0").cpus, "");
    EXPECT_EQ(device(*reading, "GPU0").numa, 0);
    EXPECT_EQ(device(*reading, "NIC0").numa, 0);
    EXPECT_EQ(device(*reading, "GPU1").cpus, "5");
    EXPECT_EQ(device(*reading, "GPU1").numa, 1);
  }
  // Drivers before the GPU's own node: a tab more, a word less.
  const Reading old = read_wiring("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV2\t\t3\nGPU1\tNV2\t X \t0-7\t3\n", "t");
  EXPECT_EQ(device(old, "GPU0").cpus, "");
  EXPECT_EQ(device(old, "GPU0").numa, 3);
  // Without a cell for the nodes a single number is a CPU.
  const Reading older = read_wiring("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV2\t3\nGPU1\tNV2\t X \t4\n", "t");
  EXPECT_EQ(device(older, "GPU0").cpus, "3");
}

TEST(PostedTopo, CellsHoldWhereNodesContradictThem) {
  // A virtual machine: each GPU on a root of its own, all near one node.
  const Reading reading = read_wiring(
      "\tGPU0\tGPU1\tGPU2\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\n"
      "GPU0\t X \tSYS\tSYS\tPIX\tSYS\t0-7\t0\n"
      "GPU1\tSYS\t X \tSYS\tSYS\tPIX\t0-7\t0\n"
      "GPU2\tSYS\tSYS\t X \tSYS\tSYS\t0-7\t0\n"
      "NIC0\tPIX\tSYS\tSYS\t X \tSYS\n"
      "NIC1\tSYS\tPIX\tSYS\tSYS\t X \n",
      "t");
  expect_clean(reading);
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "SYS");
  EXPECT_EQ(relation(reading, "GPU1", "GPU2"), "SYS");
  EXPECT_EQ(relation(reading, "GPU0", "NIC0"), "PIX");
  EXPECT_EQ(relation(reading, "GPU0", "NIC1"), "SYS");
  for (const char* name : {"GPU0", "GPU1", "GPU2", "NIC1"}) EXPECT_EQ(device(reading, name).numa, 0) << name;
  // NCCL takes CPUs of one number for one: the others have none.
  const Reading again = read_wiring(write_nccl_xml(reading).text, "again.xml");
  EXPECT_EQ(relation(again, "GPU0", "GPU1"), "SYS");
  EXPECT_EQ(relation(again, "GPU1", "NIC1"), "PIX");
}

TEST(PostedTopo, RowsThatBreakOffInventNothing) {
  // GPU2's row is cut within the NVLinks, GPU3's is missing: of their PCIe nothing is said.
  const Reading reading = read_wiring(
      "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\n"
      "GPU0\t X \tNV4\tNV4\tNV4\tPIX\tSYS\t0-7\t0\n"
      "GPU1\tNV4\t X \tNV4\tNV4\tSYS\tSYS\t8-15\t1\n"
      "GPU2\tNV4\tNV4\t X \tN",
      "t");
  EXPECT_TRUE(reading.partial);
  EXPECT_EQ(relation(reading, "GPU0", "GPU2"), "NV4");
  EXPECT_EQ(relation(reading, "GPU2", "GPU3"), "?");
  for (const char* gpu : {"GPU2", "GPU3"}) {
    for (const char* nic : {"NIC0", "NIC1"}) EXPECT_EQ(relation(reading, gpu, nic), "?") << gpu << " " << nic;
  }
  EXPECT_EQ(relation(reading, "GPU1", "NIC0"), "SYS");
  EXPECT_EQ(relation(reading, "GPU0", "NIC1"), "SYS");  // far from both nodes
  EXPECT_FALSE(noted(reading, "contradicts itself"));
  const Reading again = read_wiring(write_nccl_xml(reading).text, "again.xml");
  EXPECT_EQ(relation(again, "GPU2", "NIC0"), "?");
  EXPECT_EQ(relation(again, "GPU0", "NIC1"), "SYS");
}

TEST(PostedTopo, ANameThatIsCutOffIsNone) {
  const std::string matrix = "\tGPU0\tNIC0\tNIC1\nGPU0\t X \tPIX\tSYS\nNIC0\tPIX\t X \tSYS\nNIC1\tSYS\tSYS\t X \n\nNIC Legend:\n\n  NIC0: rocep1s0\n  NIC1: roce";
  const Reading cut = read_wiring(matrix, "t");
  EXPECT_EQ(relation(cut, "GPU0", "rocep1s0"), "PIX");
  EXPECT_EQ(relation(cut, "GPU0", "NIC1"), "SYS");
  EXPECT_TRUE(cut.partial);
  expect_clean(read_wiring(matrix + "p2s0\n", "t"));
}

TEST(PostedTopo, MpLeavesNvlinksOut) {
  const std::string matrix = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNODE\t0-7\nGPU1\tNODE\t X \t0-7\n";
  const Reading reading = read_wiring("root@n1:~# nvidia-smi topo -mp\n" + matrix, "t");
  EXPECT_TRUE(noted(reading, "-mp leaves NVLinks out"));
  EXPECT_EQ(fact(reading, "host0", "NVLinks"), "not in the file");
  EXPECT_FALSE(noted(read_wiring("root@n1:~# nvidia-smi topo -m\n" + matrix, "t"), "NVLinks out"));
}

TEST(PostedTopo, AGpuThatLostItsNvlinksIsNoted) {
  const auto four = [](const std::string& last) {
    return "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\nGPU0\t X \tNV18\tNV18\t" + last + "\t0-7\nGPU1\tNV18\t X \tNV18\t" + last + "\t0-7\nGPU2\tNV18\tNV18\t X \t" + last + "\t0-7\nGPU3\t" + last + "\t" + last + "\t" + last +
           "\t X \t0-7\n";
  };
  EXPECT_TRUE(noted(read_wiring(four("NODE"), "t"), "GPU3 has no NVLink, but the other 3 reach each other by 18 each."));
  EXPECT_FALSE(noted(read_wiring(four("NV18"), "t"), "has no NVLink"));
  // Two cards under a bridge, and one that never had one.
  EXPECT_FALSE(noted(read_wiring("\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV4\tPHB\nGPU1\tNV4\t X \tPHB\nGPU2\tPHB\tPHB\t X \n", "t"), "has no NVLink"));
}

TEST(PostedTopo, ReportsOnAnEnvironmentNameTheGpus) {
  const std::string matrix = "GPU Topology:\nGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tNV8\t0-7\t0\t\tN/A\nGPU1\tNV8\t X \t0-7\t0\t\tN/A\n";
  for (const char* names : {"GPU models and configuration: \nGPU 0: NVIDIA H800\nGPU 1: NVIDIA H800\n\n", "GPU 0,1: NVIDIA H800\nGPU 0,1 Compute Capability: 9.0\n", "GPU 0: NVIDIA H800 (UUID: GPU-a)\nGPU 1: NVIDIA H800 (UUID: GPU-b)\n"}) {
    const Reading reading = read_wiring(names + matrix, "t");
    EXPECT_EQ(device(reading, "GPU0").model, "NVIDIA H800") << names;
    EXPECT_EQ(device(reading, "GPU1").model, "NVIDIA H800") << names;
    EXPECT_FALSE(noted(reading, "left out")) << names;
  }
  // What is said of a GPU is no name of it.
  const Reading reading = read_wiring("GPU 0: 35 C\nGPU 1: 36 C\n" + matrix, "t");
  EXPECT_EQ(device(reading, "GPU0").model, "");
  EXPECT_FALSE(noted(reading, "left out"));
}

TEST(PostedTopo, RowsWithoutTheirHeadAreRefusedAtTheFirst) {
  EXPECT_EQ(refusal("as it says:\nGPU0\t X \tNV4\t0-7\nGPU1\tNV4\t X \t0-7\n").substr(0, 45), "f:2:1: there is no line of column heads (GPU0");
}

}  // namespace
}  // namespace wirewise
