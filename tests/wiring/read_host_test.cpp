// What nvidia-smi, numactl and lscpu say of one host.
#include <gtest/gtest.h>

#include "wiring/reader_fuzz.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/relation.h"

namespace wirewise {
namespace {

using field::device;
using field::fact;
using field::noted;
using field::refusal;

TEST(ReadNvidiaQuery, UnitsHeadsAndMissingValues) {
  const Reading reading = read_wiring("index, name, pci.bus_id, memory.total [MiB], power.draw [W]\n0, NVIDIA T4, 00000000:3B:00.0, 15360, [N/A]\n1, NVIDIA T4, 00000000:AF:00.0, 15360 MiB, 26.1 W\n", "t");
  EXPECT_EQ(device(reading, "GPU0").memory, 15360 * kMiB);
  EXPECT_EQ(device(reading, "GPU1").memory, 15360 * kMiB);
  EXPECT_EQ(device(reading, "GPU0").pci, "0000:3b:00.0");
  EXPECT_EQ(fact(reading, "GPU0", "power.draw"), "[N/A]");
  EXPECT_EQ(fact(reading, "GPU1", "power.draw"), "26.1 W");
  const Reading bare = read_wiring("0, NVIDIA T4, 15360 MiB\n", "t");
  EXPECT_EQ(device(bare, "GPU0").model, "NVIDIA T4");
  EXPECT_TRUE(noted(bare, "no head"));
  EXPECT_EQ(refusal("index, name, memory.total [MiB]\n0, A\n"), "f:2:1: the row has 2 cells, the head 3.");
  EXPECT_NE(refusal("index, name, memory.total [MiB]\n0, A, big\n").find("is no size of memory"), std::string::npos);
  EXPECT_NE(refusal("index, name\n0, A\n0, B\n").find("stands there twice"), std::string::npos);
}

TEST(ReadNvidiaQuery, TheFieldsQueries) {
  WIREWISE_NEEDS_FIELD();
  const Reading h100 = field::read("smi/query-h100-81559.csv");
  EXPECT_EQ(device(h100, "GPU1").pci, "0000:3d:00.0");
  EXPECT_EQ(device(h100, "GPU1").memory, 81559 * kMiB);
  EXPECT_EQ(device(h100, "GPU0").model, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(devices_of(field::read("smi/query-index-name-mem-h200x4.csv").wiring, DeviceKind::kGpu).size(), 4U);
  EXPECT_EQ(device(field::read("smi/query-index-name-mem-no-unit-a30.csv"), "GPU1").memory, 24576 * kMiB);
  EXPECT_TRUE(noted(field::read("smi/query-index-uuid-name-mem-mixed-gpus.csv"), "the GPUs differ: NVIDIA GeForce RTX 3090, NVIDIA GeForce RTX 4080 SUPER"));
  EXPECT_EQ(fact(field::read("smi/query-rtx5080.csv"), "GPU1", "memory.used"), "8311 MiB");
  EXPECT_EQ(fact(field::read("smi/query-util-used-total.csv"), "GPU0", "utilization.gpu"), "0 %");
}

TEST(ReadNvidiaList, TheFieldsMigDevices) {
  WIREWISE_NEEDS_FIELD();
  const Reading list = field::read("smi/list-mig-h200nvl-plus-3050.txt");
  EXPECT_EQ(list.format, Format::kNvidiaList);
  EXPECT_EQ(device(list, "GPU5").model, "NVIDIA GeForce RTX 3050");
  EXPECT_EQ(fact(list, "GPU0", "MIG device"), "1g.18gb MIG-0a");
  EXPECT_TRUE(noted(list, "GPU0 is divided by MIG"));
  EXPECT_FALSE(noted(list, "GPU5 is divided"));
}

TEST(ReadNvlinkStatus, TheFieldsA100s) {
  WIREWISE_NEEDS_FIELD();
  const Reading status = field::read("smi/nvidia-smi-nvlink-status-a100.txt");
  EXPECT_EQ(status.format, Format::kNvlinkStatus);
  EXPECT_EQ(devices_of(status.wiring, DeviceKind::kGpu).size(), 8U);
  EXPECT_EQ(name_of(Relations(status.wiring).between(find_device(status.wiring, "GPU0"), find_device(status.wiring, "GPU7"))), "NV12");
  const int gpu = find_device(status.wiring, "GPU3");
  for (const Link& link : status.wiring.links) {
    if (link.from != gpu || link.kind != LinkKind::kNvlink) continue;
    EXPECT_DOUBLE_EQ(link.spec, 300e9);
    EXPECT_EQ(link.generation, 3);
  }
}

TEST(ReadNvlinkStatus, AGpuWithFewerLinksIsNamed) {
  const Reading status = read_wiring("GPU 0: A (UUID: a)\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\nGPU 1: A (UUID: b)\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n", "t");
  EXPECT_TRUE(noted(status, "GPU1 has 1 NVLinks up, others 2"));
  EXPECT_TRUE(noted(status, "GPU1's NVLink 1 is <inactive>"));
}

TEST(ReadNumactl, NodesCpusMemoryAndDistances) {
  const Reading bare = read_wiring("available: 2 nodes (0-1)\nnode 0 cpus: 0 1 2 5\nnode 0 size: 100 MB\nnode 1 cpus:\nnode 1 size: 50 MB\n", "t");
  EXPECT_EQ(device(bare, "numa0").cpus, "0-2,5");
  EXPECT_EQ(device(bare, "numa1").memory, 50 * kMiB);
  EXPECT_TRUE(noted(bare, "no CPUs: numa1"));
  EXPECT_TRUE(read_wiring("available: 2 nodes (0-1)\nnode 0 cpus: 0\n", "t").partial);
  EXPECT_EQ(refusal("node 0 cpus: 0 x\n"), "f:1:16: x is no CPU.");
  WIREWISE_NEEDS_FIELD();
  const Reading two = field::read("smi/numactl-H-interleaved-even-odd.txt");
  EXPECT_EQ(device(two, "numa0").cpus.substr(0, 8), "0,2,4,6,");
  EXPECT_EQ(device(two, "numa1").cpus.substr(0, 6), "1,3,5,");
  EXPECT_EQ(device(two, "numa1").memory, 516037 * kMiB);
  EXPECT_EQ(fact(two, "numa0-numa1", "distance"), "21");
  EXPECT_FALSE(two.partial);
}

TEST(ReadLscpu, GraceHasNineNodesAndCpusInOne) {
  WIREWISE_NEEDS_FIELD();
  const Reading grace = field::read("smi/lscpu-numa-grace-9-nodes-1-with-cpus.txt");
  EXPECT_EQ(devices_of(grace.wiring, DeviceKind::kNumaNode).size(), 9U);
  EXPECT_EQ(device(grace, "numa0").cpus, "0-71");
  EXPECT_EQ(device(grace, "numa8").cpus, "");
  EXPECT_TRUE(noted(grace, "no CPUs: numa1, numa2"));
  EXPECT_FALSE(grace.partial);
}

TEST(ReadHost, FieldNotesThatAreNoOutputAreRefused) {
  WIREWISE_NEEDS_FIELD();
  EXPECT_NE(refusal(field::text("smi/mig-note.txt").value()).find("none of the formats"), std::string::npos);
}

TEST(ReadHost, SurvivesAnyText) {
  std::vector<std::string> samples;
  for (const char* part : {"query", "list", "nvlink", "numactl", "lscpu"}) samples = fuzz::with_field(std::move(samples), "smi", part);
  samples.push_back("index, name, memory.total [MiB]\n0, A, 10 MiB\n");
  samples.push_back("GPU 0: A (UUID: a)\n  MIG 1g.5gb Device 0: (UUID: MIG-1)\n");
  samples.push_back("GPU 0: A (UUID: a)\n Link 0: 25 GB/s\n");
  samples.push_back("available: 1 nodes (0)\nnode 0 cpus: 0 1\nnode 0 size: 10 MB\nnode distances:\nnode 0\n 0: 10\n");
  samples.push_back("NUMA node(s): 1\nNUMA node0 CPU(s): 0-3\n");
  fuzz::run_reader(samples, [](const std::string& text) { return read_wiring(text, "fuzz"); }, 3000);
}

}  // namespace
}  // namespace wirewise
