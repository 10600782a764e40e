// nvidia-smi -q as text and as XML, its table, and the PCIe columns of its queries.
#include <gtest/gtest.h>

#include "wiring/field.h"
#include "wiring/posted_samples.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {
namespace {

using field::device;
using field::fact;
using field::noted;
using field::refusal;

/// The link of a GPU upwards.
Link link_of(const Reading& reading, const std::string& gpu) {
  const int at = find_device(reading.wiring, gpu);
  for (const Link& link : reading.wiring.links) {
    if (link.from == at && link.kind == LinkKind::kPcie) return link;
  }
  return {};
}

TEST(ReadNvidiaReport, WhatOneSeesOfEachGpu) {
  const Reading reading = read_wiring(posted::kNvidiaReport, "t");
  EXPECT_EQ(reading.format, Format::kNvidiaReport);
  EXPECT_FALSE(reading.partial);
  EXPECT_EQ(field::count(reading, DeviceKind::kGpu), 2U);
  EXPECT_EQ(device(reading, "GPU0").pci, "0000:17:00.0");
  EXPECT_EQ(device(reading, "GPU0").model, "NVIDIA A40");
  EXPECT_EQ(device(reading, "GPU0").memory, 46068 * kMiB);
  EXPECT_EQ(device(reading, "GPU1").pci, "0000:65:00.0");
  EXPECT_EQ(fact(reading, "host0", "driver"), "535.104.05");
  EXPECT_EQ(fact(reading, "GPU0", "persistence mode"), "Enabled");
  EXPECT_EQ(fact(reading, "GPU0", "ECC"), "Enabled");
  EXPECT_EQ(fact(reading, "GPU0", "MIG"), "Enabled");
  EXPECT_EQ(fact(reading, "GPU0", "MIG device 0"), "4864 MiB");  // not taken for the card's memory
  EXPECT_EQ(fact(reading, "GPU0", "NVLink fabric"), "In Progress");
  EXPECT_TRUE(noted(reading, "GPU0 is divided by MIG"));
  EXPECT_TRUE(noted(reading, "GPU0's NVLink fabric is In Progress"));
}

TEST(ReadNvidiaReport, ALinkBelowWhatItCouldIsNotedUnlessTheGpuRests) {
  const Reading reading = read_wiring(posted::kNvidiaReport, "t");
  EXPECT_TRUE(noted(reading, "GPU0's PCIe link runs at generation 1 of 4, and the GPU isn't idle"));
  EXPECT_TRUE(noted(reading, "GPU0's PCIe link has 8 lanes of 16"));
  EXPECT_FALSE(noted(reading, "GPU1's PCIe link"));  // P8
  EXPECT_EQ(link_of(reading, "GPU0").generation, 1);
  EXPECT_EQ(link_of(reading, "GPU0").lanes, 8);
  EXPECT_EQ(link_of(reading, "GPU1").generation, 4);
  EXPECT_EQ(link_of(reading, "GPU1").lanes, 16);
  EXPECT_EQ(link_of(reading, "GPU1").provenance, Provenance::kDriver);
  const Reading unknown = read_wiring("GPU 0000:01:00.0\n  PCI\n    GPU Link Info\n      PCIe Generation\n        Max : 3\n        Current : 1\n", "t");
  EXPECT_TRUE(noted(unknown, "generation 1 of 3; whether the GPU idles"));
}

TEST(ReadNvidiaReport, OneChoiceOfItAndOneGpuOfSeveral) {
  const Reading memory = read_wiring(
      "==============NVSMI LOG==============\n\nDriver Version : 455.45.01\nAttached GPUs : 4\nGPU 00000000:01:00.0\n    FB Memory Usage\n        Total : 24268 MiB\n    BAR1 Memory Usage\n        Total : 256 MiB\n", "t");
  EXPECT_EQ(device(memory, "GPU0").memory, 24268 * kMiB);
  EXPECT_TRUE(memory.partial);
  EXPECT_TRUE(noted(memory, "4 GPUs are attached, 1 described"));
  EXPECT_NE(refusal("    GPU Link Info\n        PCIe Generation\n            Max : 4\n").find("there is no GPU"), std::string::npos);
  const std::string twice = "GPU 00000000:01:00.0\n  Product Name : A\nGPU 00000000:01:00.0\n  Product Name : A\n";
  EXPECT_EQ(refusal(twice), "f:3:1: GPU 00000000:01:00.0 stands there twice; the first is line 1.");
}

TEST(ReadNvidiaReport, GpusOfTwoModelsAreSaidAndMemoryOfOldDriversIsRead) {
  const auto gpu = [](const std::string& bus, const std::string& model, const std::string& memory) {
    return "GPU 0000:" + bus + ":00.0\n    Product Name : " + model + "\n    FB Memory Usage\n        Total : " + memory + "\n";
  };
  const Reading mixed = read_wiring(gpu("01", "Tesla K40m", "11519 MB") + gpu("02", "Tesla K80", "11519 MiB"), "t");
  EXPECT_TRUE(noted(mixed, "the GPUs differ: Tesla K40m, Tesla K80"));
  EXPECT_EQ(device(mixed, "GPU0").memory, 11519 * kMiB);  // MB of old drivers are MiB
  EXPECT_EQ(device(mixed, "GPU1").memory, 11519 * kMiB);
  EXPECT_FALSE(noted(read_wiring(gpu("01", "Tesla K80", "11519 MiB") + gpu("02", "Tesla K80", "11519 MiB"), "t"), "differ"));
}

TEST(ReadNvidiaReport, XmlSaysTheSame) {
  const Reading reading = read_wiring(posted::kNvidiaXml, "t");
  EXPECT_EQ(reading.format, Format::kNvidiaReport);
  EXPECT_FALSE(reading.partial);
  EXPECT_EQ(device(reading, "GPU0").pci, "0000:17:00.0");
  EXPECT_EQ(device(reading, "GPU0").memory, 46068 * kMiB);
  EXPECT_EQ(fact(reading, "GPU0", "MIG"), "Disabled");
  EXPECT_EQ(fact(reading, "GPU0", "ECC"), "Enabled");
  EXPECT_EQ(link_of(reading, "GPU0").generation, 3);
  EXPECT_TRUE(noted(reading, "GPU0's PCIe link runs at generation 3 of 4, and the GPU isn't idle"));
  EXPECT_TRUE(noted(reading, "GPU1 waits for a reset"));
}

TEST(ReadNvidiaReport, TornXmlGivesWhatStandsBefore) {
  const std::string whole(posted::kNvidiaXml);
  const Reading torn = read_wiring(whole.substr(0, whole.find("<remapped_rows>")), "t");
  EXPECT_TRUE(torn.partial);
  EXPECT_EQ(device(torn, "GPU1").model, "NVIDIA A40");
  EXPECT_TRUE(noted(torn, "cut off or broken here"));
  EXPECT_NE(refusal(whole.substr(0, whole.find("<gpu"))).find("f:6"), std::string::npos);
}

TEST(ReadNvidiaTable, NamesAddressesAndMemory) {
  const Reading reading = read_wiring(posted::kNvidiaTable, "t");
  EXPECT_EQ(reading.format, Format::kNvidiaTable);
  EXPECT_EQ(field::count(reading, DeviceKind::kGpu), 2U);
  EXPECT_EQ(device(reading, "GPU0").model, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(device(reading, "GPU0").pci, "0000:07:00.0");
  EXPECT_EQ(device(reading, "GPU0").memory, 81920 * kMiB);
  EXPECT_EQ(device(reading, "GPU1").memory, 24576 * kMiB);
  EXPECT_EQ(fact(reading, "GPU0", "persistence mode"), "On");
  EXPECT_EQ(fact(reading, "GPU0", "ECC errors, uncorrected"), "2");
  EXPECT_EQ(fact(reading, "GPU0", "MIG"), "Enabled");
  EXPECT_EQ(fact(reading, "GPU0", "memory used"), "4MiB");
  EXPECT_EQ(fact(reading, "host0", "CUDA"), "12.2");
  EXPECT_TRUE(noted(reading, "GPU0 is divided by MIG"));
  EXPECT_TRUE(noted(reading, "cut off by nvidia-smi"));
  EXPECT_TRUE(noted(reading, "nvidia-smi topo -m"));
  EXPECT_NE(refusal("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n").find("no driver that answers"), std::string::npos);
}

TEST(ReadNvidiaQuery, PcieColumnsMakeTheLink) {
  const Reading reading = read_wiring(
      "index, pci.bus_id, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, pcie.link.width.max, pstate\n"
      "0, 00000000:01:00.0, 1, 4, 16, 16, P8\n1, 00000000:02:00.0, 3, 4, 4, 16, P0\n", "t");
  EXPECT_EQ(link_of(reading, "GPU0").generation, 4);
  EXPECT_EQ(link_of(reading, "GPU1").generation, 3);
  EXPECT_EQ(link_of(reading, "GPU1").lanes, 4);
  EXPECT_TRUE(noted(reading, "GPU1's PCIe link runs at generation 3 of 4"));
  EXPECT_TRUE(noted(reading, "GPU1's PCIe link has 4 lanes of 16"));
  EXPECT_FALSE(noted(reading, "GPU0's"));
}

}  // namespace
}  // namespace wirewise
