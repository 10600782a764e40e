// nvidia-smi topo -m as people posted it: what a person sees in each file.
#include "wiring/topo_rows.h"

namespace wirewise {
namespace {

using field::count;
using field::device;
using field::expect_all;
using field::expect_clean;
using field::expect_near;
using field::expect_row;
using field::fact;
using field::gpus;
using field::noted;
using field::relation;

TEST(ReadNvidiaTopo, OneGpuFourNicsMangled) {
  WIREWISE_FIELD(reading, "topo/1gpu-4nic-mangled-mixed-tabs.txt");
  expect_clean(reading);
  expect_row(reading, "GPU0", {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}, {"SYS", "SYS", "NODE", "NODE"});
  expect_row(reading, "mlx5_1", {"mlx5_0", "mlx5_2"}, {"PIX", "SYS"});
  EXPECT_EQ(relation(reading, "mlx5_2", "mlx5_3"), "PIX");
  expect_near(reading, {"GPU0"}, 1, "64-127,192-255");
  EXPECT_EQ(device(reading, "mlx5_2").numa, 1);
  EXPECT_EQ(device(reading, "mlx5_0").numa, -1);
}

TEST(ReadNvidiaTopo, PairsOfGpus) {
  struct Case {
    const char *file, *relation, *cpus;
    int numa;
  };
  for (const Case& one : {Case{"topo/2gpu-2080ti-nv2-short-legend.txt", "NV2", "0-3", 0}, Case{"topo/2gpu-5090-phb.txt", "PHB", "0-63", 0},
                          Case{"topo/2gpu-nv2-desktop-numaid.txt", "NV2", "0-23", 0}, Case{"topo/2gpu-nv2-numa-na-stas.txt", "NV2", "0-23", -1},
                          Case{"topo/2gpu-rtxpro6000-node-no-legend.txt", "NODE", "0-31", 0}}) {
    WIREWISE_FIELD(reading, one.file);
    SCOPED_TRACE(one.file);
    expect_clean(reading);
    EXPECT_EQ(count(reading, DeviceKind::kGpu), 2U);
    EXPECT_EQ(count(reading, DeviceKind::kNic), 0U);
    EXPECT_EQ(relation(reading, "GPU0", "GPU1"), one.relation);
    expect_near(reading, gpus(0, 2), one.numa, one.cpus);
  }
}

TEST(ReadNvidiaTopo, PairsOfGpusWithNics) {
  {
    WIREWISE_FIELD(reading, "topo/2gpu-4090-2nic-hand-edited.txt");
    expect_clean(reading);
    expect_row(reading, "GPU0", {"GPU1", "NIC0", "NIC1"}, {"NODE", "NODE", "NODE"});
    EXPECT_EQ(relation(reading, "NIC0", "NIC1"), "PIX");
    EXPECT_EQ(device(reading, "NIC1").numa, 0);
  }
  WIREWISE_FIELD(reading, "topo/2gpu-nv1-mlx5-phb-old-legend.txt");
  expect_clean(reading);
  expect_row(reading, "GPU1", {"GPU0", "mlx5_0"}, {"NV1", "PHB"});
  expect_near(reading, gpus(0, 2), -1, "0-7");
}

TEST(ReadNvidiaTopo, ThreeAndFourGpus) {
  {
    WIREWISE_FIELD(reading, "topo/3gpu-a6000-nv4-bridge-plus-node.txt");
    expect_clean(reading);
    EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "NV4");
    expect_row(reading, "GPU2", {"GPU0", "GPU1"}, {"NODE", "NODE"});
    expect_near(reading, gpus(0, 3), 0, "0-31,64-95");
  }
  {
    WIREWISE_FIELD(reading, "topo/4gpu-node-only-0-119.txt");
    expect_clean(reading);
    expect_all(reading, gpus(0, 4), "NODE");
    expect_near(reading, gpus(0, 4), 0, "0-119");
  }
  WIREWISE_FIELD(reading, "topo/4gpu-v100-nv1-nv2-mlx5-no-numa.txt");
  expect_clean(reading);
  expect_row(reading, "GPU0", {"GPU1", "GPU2", "GPU3", "mlx5_0"}, {"NV1", "NV1", "NV2", "SYS"});
  expect_row(reading, "GPU2", {"GPU1", "GPU3", "mlx5_0"}, {"NV2", "NV2", "SYS"});
  EXPECT_EQ(count(reading, DeviceKind::kNvSwitch), 0U);
}

TEST(ReadNvidiaTopo, EightBehindNvswitches) {
  for (const auto& [file, what] : {std::pair{"topo/8gpu-a100-reformatted-narrow-stas.txt", "NV12"}, std::pair{"topo/8gpu-h100-reformatted-narrow-stas.txt", "NV18"}}) {
    WIREWISE_FIELD(reading, file);
    expect_clean(reading);
    expect_all(reading, gpus(0, 8), what);
    EXPECT_EQ(count(reading, DeviceKind::kNvSwitch), 1U);
    const bool a100 = std::string(what) == "NV12";
    expect_near(reading, gpus(0, 4), 0, a100 ? "0-23" : "0-51");
    expect_near(reading, gpus(4, 8), 1, a100 ? "24-47" : "52-103");
  }
}

TEST(ReadNvidiaTopo, EightOverPcie) {
  {
    WIREWISE_FIELD(reading, "topo/8gpu-pcie-cloud-node-sys.txt");
    expect_clean(reading);
    expect_all(reading, gpus(0, 4), "NODE");
    expect_all(reading, gpus(4, 8), "NODE");
    expect_row(reading, "GPU3", gpus(4, 8), {"SYS", "SYS", "SYS", "SYS"});
    expect_near(reading, gpus(0, 4), 0, "0-31,64-95");
    expect_near(reading, gpus(4, 8), 1, "32-63,96-123");
  }
  WIREWISE_FIELD(reading, "topo/8gpu-pix-node-axolotl536.txt");
  expect_clean(reading);
  expect_all(reading, gpus(0, 4), "PIX");
  expect_all(reading, gpus(4, 8), "PIX");
  expect_row(reading, "GPU0", gpus(4, 8), {"NODE", "NODE", "NODE", "NODE"});
  expect_near(reading, gpus(0, 8), 0, "0-23,48-71");
}

TEST(ReadNvidiaTopo, Dgx1IsAHybridCubeMesh) {
  WIREWISE_FIELD(reading, "topo/dgx1-v100-msccl-tabs.txt");
  expect_clean(reading);
  expect_row(reading, "GPU0", gpus(1, 8), {"NV1", "NV1", "NV2", "NV2", "SYS", "SYS", "SYS"});
  expect_row(reading, "GPU5", gpus(0, 5), {"SYS", "NV2", "SYS", "SYS", "NV1"});
  expect_row(reading, "GPU0", {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}, {"PIX", "PHB", "SYS", "SYS"});
  expect_row(reading, "GPU6", {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}, {"SYS", "SYS", "PHB", "PIX"});
  expect_row(reading, "mlx5_0", {"mlx5_1", "mlx5_2"}, {"PHB", "SYS"});
  expect_near(reading, gpus(0, 4), -1, "0-19,40-59");
  expect_near(reading, gpus(4, 8), -1, "20-39,60-79");
}

TEST(ReadNvidiaTopo, EightV100WithOneNic) {
  {
    WIREWISE_FIELD(reading, "topo/v100-sxm2-16gb-x8-mlx5_0-spaces.txt");
    expect_clean(reading);
    expect_row(reading, "mlx5_0", gpus(0, 5), {"NODE", "NODE", "PIX", "PIX", "SYS"});
    EXPECT_EQ(relation(reading, "GPU2", "GPU6"), "NV1");
    expect_near(reading, gpus(4, 8), -1, "12-23,36-47");
  }
  WIREWISE_FIELD(reading, "topo/v100-sxm2-32gb-x8-nic0-numaid.txt");
  expect_clean(reading);
  expect_row(reading, "NIC0", gpus(0, 5), {"NODE", "NODE", "NODE", "NODE", "SYS"});
  expect_row(reading, "GPU3", gpus(4, 8), {"SYS", "SYS", "SYS", "NV1"});
  EXPECT_EQ(device(reading, "NIC0").numa, 0);
  expect_near(reading, gpus(0, 4), 0, "0-19,40-59");
  expect_near(reading, gpus(4, 8), 1, "20-39,60-79");
}

TEST(ReadNvidiaTopo, OneGpuAlone) {
  WIREWISE_FIELD(reading, "topo/single-gpu-dgx-spark-gb10.txt");
  expect_clean(reading);
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 1U);
  expect_near(reading, {"GPU0"}, 0, "0-19");
}

TEST(ReadNvidiaTopo, DgxA100OfWhichFourRowsAreThere) {
  WIREWISE_FIELD(reading, "topo/dgx-a100-40gb-12nic-nccl1505-first-rows.txt");
  EXPECT_TRUE(reading.partial);
  EXPECT_TRUE(noted(reading, "rows are missing: GPU4, GPU5, GPU6, GPU7, NIC0"));
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 8U);
  EXPECT_EQ(count(reading, DeviceKind::kNic), 12U);
  EXPECT_EQ(relation(reading, "GPU0", "GPU7"), "NV12");
  expect_row(reading, "GPU1", {"NIC0", "NIC1", "NIC2"}, {"PXB", "PXB", "SYS"});
  expect_row(reading, "GPU2", {"NIC1", "NIC2", "NIC3", "NIC11"}, {"SYS", "PXB", "PXB", "SYS"});
  expect_near(reading, gpus(0, 2), 3, "48-63,176-191");
  expect_near(reading, gpus(2, 4), 1, "16-31,144-159");
  EXPECT_EQ(device(reading, "NIC0").numa, 3);
  EXPECT_EQ(device(reading, "GPU5").numa, -1);
  EXPECT_EQ(relation(reading, "NIC8", "NIC9"), "?");  // no row speaks of it
}

TEST(ReadNvidiaTopo, Dgx2CutWithinALineOfCpus) {
  WIREWISE_FIELD(reading, "topo/dgx2-16gpu-10nic-nccltests78-truncated.txt");
  EXPECT_TRUE(reading.partial);
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 16U);
  EXPECT_EQ(count(reading, DeviceKind::kNic), 10U);
  EXPECT_EQ(relation(reading, "GPU0", "GPU15"), "NV6");
  EXPECT_EQ(relation(reading, "GPU14", "GPU15"), "NV6");  // through the NVSwitches
  expect_row(reading, "GPU2", {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_4"}, {"PXB", "PIX", "NODE", "SYS"});
  expect_row(reading, "GPU4", {"mlx5_0", "mlx5_2", "mlx5_3"}, {"NODE", "PIX", "PXB"});
  expect_near(reading, gpus(0, 4), -1, "0-23,48-71");
  EXPECT_EQ(device(reading, "GPU4").cpus, "");  // "0-23,4" is no whole list
  EXPECT_TRUE(noted(reading, "0-23,4 may be cut off"));
}

TEST(ReadNvidiaTopo, H100WhoseLastRowsAreMissing) {
  WIREWISE_FIELD(reading, "topo/h100-8gpu-9nic-nccl1453-last-rows-missing.txt");
  EXPECT_TRUE(reading.partial);
  EXPECT_TRUE(noted(reading, "rows are missing: NIC6, NIC7, NIC8."));
  EXPECT_TRUE(noted(reading, "cut off after its name"));
  expect_all(reading, gpus(0, 8), "NV18");
  const std::vector<std::string> nearest{"NIC8", "NIC7", "NIC6", "NIC5", "NIC4", "NIC3", "NIC2", "NIC1"};
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(relation(reading, "GPU" + std::to_string(i), nearest[static_cast<std::size_t>(i)]), "PIX");
    EXPECT_EQ(relation(reading, "GPU" + std::to_string(i), "NIC0"), "SYS");
  }
  expect_near(reading, gpus(0, 4), 0, "0-79");
  expect_near(reading, gpus(4, 8), 1, "80-159");
  EXPECT_EQ(device(reading, "NIC8").numa, 0);
  EXPECT_EQ(relation(reading, "NIC7", "NIC8"), "NODE");  // both are PIX to GPUs of node 0
}

TEST(ReadNvidiaTopo, EightWithMlx4Truncated) {
  WIREWISE_FIELD(reading, "topo/8gpu-mlx4-k8s53497-trailing-spaces-truncated.txt");
  EXPECT_TRUE(reading.partial);
  EXPECT_TRUE(noted(reading, "rows are missing: GPU5, GPU6, GPU7, mlx4_0."));
  expect_row(reading, "GPU0", {"GPU1", "GPU2", "GPU4", "mlx4_0"}, {"PIX", "PHB", "SYS", "PHB"});
  expect_row(reading, "GPU4", {"GPU5", "GPU6", "GPU7", "mlx4_0"}, {"PIX", "PHB", "PHB", "SYS"});
  expect_near(reading, gpus(0, 4), -1, "0-9,20-29");
}

TEST(ReadNvidiaTopo, CollectEnvWithTrimmedHeader) {
  WIREWISE_FIELD(reading, "topo/vllm-collectenv-trimmed-header-truncated.txt");
  EXPECT_TRUE(reading.partial);
  EXPECT_TRUE(noted(reading, "rows are missing: GPU7."));
  EXPECT_TRUE(noted(reading, "the row of GPU6 ends before the column of GPU7"));
  expect_row(reading, "GPU0", gpus(1, 5), {"PIX", "PXB", "PXB", "SYS"});
  expect_row(reading, "GPU4", gpus(5, 8), {"PIX", "PXB", "PXB"});
  expect_near(reading, gpus(0, 6), -1, "0-95");
}

TEST(ReadNvidiaTopo, PeerAccess) {
  {
    WIREWISE_FIELD(reading, "topo/2gpu-3090-p2p-rw-ok.txt");
    EXPECT_EQ(fact(reading, "GPU0-GPU1", "peer access"), "OK");
    EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "?");
  }
  {
    WIREWISE_FIELD(reading, "topo/2gpu-5090-p2p-rw-gns.txt");
    EXPECT_EQ(fact(reading, "GPU1-GPU0", "peer access"), "GNS");
  }
  WIREWISE_FIELD(reading, "topo/p2p-r-8xh100-ok.txt");
  EXPECT_EQ(reading.facts.size(), 56U);
  EXPECT_EQ(fact(reading, "GPU7-GPU3", "peer access"), "OK");
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 8U);
}

TEST(ReadNvidiaTopo, EveryFileOfTheFieldIsRead) {
  WIREWISE_NEEDS_FIELD();
  for (const std::string& file : field::files("topo")) EXPECT_NO_THROW((void)read_wiring(*field::text(file), file)) << file;
}

}  // namespace
}  // namespace wirewise
