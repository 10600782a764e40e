// What readers and writers say of links is what the texts have in them: generations by a GPU's model, NVLinks that a template leaves out, figures that
// are achievable and not the standard's.
#include <gtest/gtest.h>

#include <string>

#include "wirewise/wiring/cluster_file.h"
#include "wirewise/wiring/group.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/write.h"
#include "wiring/field.h"

namespace wirewise {
namespace {

bool has(std::string_view text, std::string_view word) { return text.find(word) != std::string_view::npos; }

const Link& first_of(const Wiring& wiring, LinkKind kind) {
  for (const Link& link : wiring.links) {
    if (link.kind == kind) return link;
  }
  throw std::runtime_error("no such link");
}

/// Four GPUs whose pairs all have `links` NVLinks, as nvidia-smi topo -m prints them.
std::string matrix(const std::string& links) {
  std::string text = "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\n";
  for (int i = 0; i < 4; ++i) {
    text += "GPU" + std::to_string(i);
    for (int j = 0; j < 4; ++j) text += "\t" + (i == j ? std::string(" X ") : links);
    text += "\t0-31\t0\n";
  }
  return text;
}

std::string listed(const std::string& model, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "GPU " + std::to_string(i) + ": " + model + " (UUID: GPU-0000000" + std::to_string(i) + "-0000-0000-0000-000000000000)\n";
  return text;
}

TEST(SaidAsItIs, MoreThan12NvlinksAreNoNvlink3) {
  const Wiring hopper = read_wiring(matrix("NV18"), "topo.txt").wiring;
  EXPECT_EQ(first_of(hopper, LinkKind::kNvlink).generation, 4);
  EXPECT_NEAR(first_of(hopper, LinkKind::kNvlink).beta / 1e9, 370.8, 1e-9);
  ASSERT_EQ(devices_of(hopper, DeviceKind::kNvSwitch).size(), 1U);
  EXPECT_TRUE(hopper.devices[static_cast<std::size_t>(devices_of(hopper, DeviceKind::kNvSwitch).front())].nvls);  // of NVLink 4 on they sum
  // 12 may be NVLink 3, which nothing states.
  const Wiring ampere = read_wiring(matrix("NV12"), "topo.txt").wiring;
  EXPECT_NEAR(first_of(ampere, LinkKind::kNvlink).beta / 1e9, 240, 1e-9);
  EXPECT_EQ(first_of(ampere, LinkKind::kNvlink).generation, 0);
}

TEST(SaidAsItIs, NamesBesideAMatrixSayTheGeneration) {
  const Reading reading = read_wiring(listed("NVIDIA B200", 4) + "\n" + matrix("NV18"), "topo.txt");
  ASSERT_EQ(reading.format, Format::kNvidiaTopo);
  EXPECT_EQ(first_of(reading.wiring, LinkKind::kNvlink).generation, 5);
  EXPECT_EQ(reading.wiring.devices[static_cast<std::size_t>(find_device(reading.wiring, "GPU3"))].model, "NVIDIA B200");
  // -q says how much memory they have, too.
  std::string report;
  for (int i = 0; i < 4; ++i) report += "    Product Name : NVIDIA B200\n    FB Memory Usage\n        Total : 183359 MiB\n    BAR1 Memory Usage\n        Total : 262144 MiB\n";
  const Reading detailed = read_wiring(matrix("NV18") + "\n" + report, "topo.txt");
  ASSERT_EQ(detailed.format, Format::kNvidiaTopo);
  EXPECT_EQ(field::device(detailed, "GPU2").memory, 183359 * kMiB);
  // As many as the matrix has, or none, and that is said.
  const Reading fewer = read_wiring(listed("NVIDIA B200", 2) + "\n" + matrix("NV18"), "topo.txt");
  bool said = false;
  for (const Note& note : fewer.notes) said = said || has(note.text, "names of 2 GPUs");
  EXPECT_TRUE(said);
  EXPECT_TRUE(fewer.wiring.devices[static_cast<std::size_t>(find_device(fewer.wiring, "GPU0"))].model.empty());
}

std::string status(const std::string& model, int links, const std::string& speed) {
  std::string text;
  for (int gpu = 0; gpu < 2; ++gpu) {
    text += "GPU " + std::to_string(gpu) + ": " + model + " (UUID: GPU-0000000" + std::to_string(gpu) + "-0000-0000-0000-000000000000)\n";
    for (int i = 0; i < links; ++i) text += "\t Link " + std::to_string(i) + ": " + speed + " GB/s\n";
  }
  return text;
}

TEST(SaidAsItIs, TheModelOfAGpuDecidesItsNvlinks) {
  const auto link = [](const std::string& model, int links, const std::string& speed) { return first_of(read_wiring(status(model, links, speed), "nvlink.txt").wiring, LinkKind::kNvlink); };
  EXPECT_EQ(link("NVIDIA H100 80GB HBM3", 6, "26.562").generation, 4);
  EXPECT_NEAR(link("NVIDIA H100 80GB HBM3", 6, "26.562").beta / 1e9, 6 * 20.6, 1e-6);
  EXPECT_NEAR(link("NVIDIA H100 80GB HBM3", 18, "26.562").beta / 1e9, 370.8, 1e-6);
  EXPECT_EQ(link("NVIDIA A100-SXM4-40GB", 4, "25").generation, 3);
  // A link that runs at half of its rate counts half.
  EXPECT_NEAR(link("NVIDIA H100 80GB HBM3", 18, "13.281").beta / 1e9, 370.8 * 13.281 / 25, 1e-6);
}

TEST(SaidAsItIs, FunctionsAloneHaveNoNvlinksInTheFile) {
  const Reading functions = read_wiring("<system><cpu numaid='0'><pci busid='0000:01:00.0' class='0x030200'/><pci busid='0000:02:00.0' class='0x030200'/></cpu></system>", "f");
  EXPECT_EQ(field::fact(functions, "host0", "NVLinks"), "not in the file");
}

TEST(SaidAsItIs, TemplatesWithoutNvlinksSaySo) {
  WIREWISE_NEEDS_FIELD();
  const auto noted = [](const std::string& file) { return field::noted(field::read("ncclxml/" + file), "the file has no NVLinks"); };
  EXPECT_TRUE(noted("azure-ndv5-topo.xml"));
  EXPECT_TRUE(noted("aws-p4d-24xl-topo.xml"));
  EXPECT_FALSE(noted("nccl1505-a100-fragment.xml"));  // NCCL wrote it, with them
  EXPECT_FALSE(noted("rccl-topo_8p_90a.xml"));
  EXPECT_TRUE(has(write_groups(read_shipped("dgx-1").value().wiring, {}, "without NVLinks"), "; without NVLinks)"));
}

TEST(SaidAsItIs, AchievableFiguresAreNotCalledTheStandards) {
  const Wiring dgx = read_shipped("dgx-a100").value().wiring;
  const std::string tree = write_tree(dgx);
  EXPECT_TRUE(has(tree, "24 of 31.5 GB/s a direction: PCIe 4 x16")) << tree;
  EXPECT_TRUE(has(tree, "16 of 36 GB/s a direction: AMD xGMI, Zen 2"));
  EXPECT_FALSE(has(tree, "spec")) << tree;
  EXPECT_FALSE(has(write_groups(dgx), "spec"));
  EXPECT_EQ(name_of(Provenance::kSpec), "spec");  // in JSON
  // What a source says already isn't said twice.
  Wiring hosts = wire_hosts({0, 1});
  const std::string assumed = write_tree(hosts);
  EXPECT_TRUE(has(assumed, "assumed: 10 Gbit/s Ethernet")) << assumed;
  EXPECT_FALSE(has(assumed, "assumed: assumed")) << assumed;
}

TEST(SaidAsItIs, RingsOfXgmiAreNotCalledNvlinks) {
  const Wiring amd = read_cluster("device = [{ name = \"GPU0\", kind = \"gpu\" }, { name = \"GPU1\", kind = \"gpu\" }]\n"
                                  "link = [{ b = \"GPU0\", class = \"PCIe 4\", units = 16 }, { b = \"GPU1\", class = \"PCIe 4\", units = 16 }, { a = \"GPU0\", b = \"GPU1\", class = \"xGMI, MI200\", units = 2 }]\n",
                                  "c.toml").wiring;
  const std::string why = ring_bandwidth(amd, devices_of(amd, DeviceKind::kGpu)).why;
  EXPECT_TRUE(has(why, "over xGMI")) << why;
}

TEST(SaidAsItIs, TwoLanesOfHdrAreNotEdr) {
  const auto source = [](const std::string& width, const std::string& speed) {
    const std::string text = "CA: node1 mlx5_0:\n      0x0000000000000001      1    1[  ] ==( " + width + " " + speed + " Gbps Active/  LinkUp)==>       2    3[  ] \"SW\" ( )\n";
    return first_of(read_wiring(text, "links.txt").wiring, LinkKind::kInfiniband).source;
  };
  EXPECT_TRUE(has(source("2X", "53.125"), "InfiniBand HDR100")) << source("2X", "53.125");
  EXPECT_EQ(source("4X", "25.78125"), "InfiniBand EDR");
  EXPECT_EQ(source("4X", "53.125"), "InfiniBand HDR");
}

}  // namespace
}  // namespace wirewise
