// NCCL's and RCCL's topology and graph files: what a person sees in them.
#include "wiring/field.h"
#include "wirewise/wiring/group.h"
#include "wirewise/wiring/path.h"

namespace wirewise {
namespace {

using field::count;
using field::device;
using field::fact;
using field::noted;
using field::relation;

/// The PCIe link above a device.
Link above(const Reading& reading, const std::string& name) {
  const int index = find_device(reading.wiring, name);
  for (const Link& link : reading.wiring.links) {
    if (link.to == index && link.kind == LinkKind::kPcie) return link;
  }
  return {};
}

/// The link from one device to another.
Link between(const Reading& reading, const std::string& a, const std::string& b) {
  const int from = find_device(reading.wiring, a), to = find_device(reading.wiring, b);
  for (const Link& link : reading.wiring.links) {
    if (link.from == from && link.to == to) return link;
  }
  return {};
}

constexpr const char* kTwoGpus =
    "<system version=\"1\">\n"
    "  <cpu numaid=\"0\" affinity=\"ff,0000ffff\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\">\n"
    "    <pci busid=\"0000:16:00.0\" class=\"0x060400\" link_speed=\"8.0 GT/s PCIe\" link_width=\"16\">\n"
    "      <pci busid=\"0000:17:00.0\" class=\"0x030200\" link_speed=\"8.0 GT/s PCIe\" link_width=\"16\">\n"
    "        <gpu dev=\"0\" sm=\"90\" rank=\"0\" gdr=\"1\">\n"
    "          <nvlink target=\"0000:05:00.0\" count=\"10\" tclass=\"0x068000\"/>\n"
    "          <nvlink target=\"fffffff:ffff:ff\" count=\"8\" tclass=\"0x068000\"/>\n"
    "        </gpu>\n"
    "      </pci>\n"
    "      <pci busid=\"0000:18:00.0\" class=\"0x030200\" link_speed=\"2.5 GT/s PCIe\" link_width=\"8\">\n"
    "        <gpu dev=\"1\" sm=\"90\" rank=\"1\" gdr=\"1\">\n"
    "          <nvlink target=\"0000:05:00.0\" count=\"18\" tclass=\"0x068000\"/>\n"
    "        </gpu>\n"
    "      </pci>\n"
    "    </pci>\n"
    "    <nic><net name=\"eth0\" dev=\"0\" speed=\"10000\" port=\"0\" guid=\"0x0\" gdr=\"0\"/></nic>\n"
    "  </cpu>\n"
    "</system>\n";

TEST(ReadNcclXml, SwitchesOfNvlinkAreOneDevice) {
  const Reading reading = read_wiring(kTwoGpus, "f");
  EXPECT_EQ(reading.format, Format::kNcclXml);
  EXPECT_FALSE(reading.partial);
  EXPECT_EQ(count(reading, DeviceKind::kNvSwitch), 1U);
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "NV18");
  const Link link = between(reading, "GPU0", "nvswitch0");
  EXPECT_EQ(link.lanes, 18);
  EXPECT_EQ(link.generation, 4);
  EXPECT_NEAR(link.spec, 450e9, 1);
  EXPECT_TRUE(device(reading, "nvswitch0").nvls);
  EXPECT_EQ(device(reading, "numa0").cpus, "0-15,32-39");
  EXPECT_EQ(above(reading, "GPU0").generation, 3);
  EXPECT_EQ(above(reading, "GPU1").generation, 1);
  EXPECT_EQ(above(reading, "GPU1").lanes, 8);
  EXPECT_NEAR(above(reading, "GPU1").spec, 8 * 0.25e9, 1);  // 2.5 GT/s, 8 bits of 10
  EXPECT_EQ(between(reading, "host0", "numa0").source, "Intel UPI, Skylake");
  EXPECT_EQ(relation(reading, "GPU0", "eth0"), "PHB");
  EXPECT_EQ(fact(reading, "eth0", "speed"), "10000 Mbit/s");
}

TEST(ReadNcclXml, WordsOfNewerFiles) {
  const Reading grace = read_wiring(
      "<?xml version=\"1.0\"?><!-- a --><system version='1'><cpu host_hash='0xAB' numaid='0' affinity='ff' arch='arm64'>"
      "<pci busid='0008:01:00.0' class='0x030200' link_speed='64.0 GT/s PCIe' link_width='16'>"
      "<gpu dev='0' sm='100' rank='0' gdr='1'><c2c bw='44712' count='10'/></gpu></pci></cpu>"
      "<cpu host_hash='0xCD' numaid='0'><pci busid='0008:01:00.0' class='0x030200' link_speed='' link_width='0'><gpu dev='0' sm='100' rank='1'/></pci></cpu></system>",
      "f");
  EXPECT_EQ(hosts_of(grace.wiring), 2);
  EXPECT_EQ(fact(grace, "host0", "host hash"), "0xab");
  EXPECT_EQ(count(grace, DeviceKind::kGpu), 2U);
  EXPECT_NEAR(between(grace, "numa0", "GPU0").beta, 447.12e9, 1e6);
  EXPECT_EQ(between(grace, "numa0", "GPU0").source, "NVLink-C2C");
  EXPECT_EQ(above(grace, "GPU0").generation, 6);
  const Reading power = read_wiring(
      "<system><cpu numaid='0' arch='ppc64'><pci busid='0004:04:00.0' class='0x030200' link_speed='8 GT/s' link_width='2'>"
      "<gpu dev='0' sm='70'><nvlink target='0004:00:00.0' count='3' tclass='0x068001'/></gpu></pci></cpu></system>",
      "f");
  EXPECT_EQ(between(power, "numa0", "GPU0").lanes, 3);
}

TEST(ReadNcclXml, AzureNdv4HasTwoGpusAndTwoNicsUnderEachSwitch) {
  WIREWISE_FIELD(reading, "ncclxml/azure-ndv4-topo.xml");
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 8U);
  EXPECT_EQ(count(reading, DeviceKind::kNic), 8U);
  EXPECT_EQ(count(reading, DeviceKind::kNumaNode), 4U);
  EXPECT_EQ(count(reading, DeviceKind::kPcieSwitch), 4U);
  // By bus id: 0001 and 0002 are GPU0 and GPU1, on node 1 with NICs 0101 and 0102.
  EXPECT_EQ(device(reading, "GPU0").pci, "0001:00:00.0");
  EXPECT_EQ(device(reading, "GPU0").numa, 1);
  EXPECT_EQ(device(reading, "GPU2").numa, 0);
  EXPECT_EQ(device(reading, "GPU4").pci, "000b:00:00.0");
  EXPECT_EQ(device(reading, "GPU4").numa, 3);
  EXPECT_EQ(device(reading, "NIC0").pci, "0101:00:00.0");
  EXPECT_EQ(relation(reading, "GPU0", "NIC0"), "PIX");
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "PIX");
  EXPECT_EQ(relation(reading, "GPU0", "NIC2"), "SYS");
  EXPECT_EQ(above(reading, "GPU0").generation, 4);
  EXPECT_EQ(above(reading, "GPU0").lanes, 16);
  EXPECT_EQ(between(reading, "host0", "numa0").source, "AMD xGMI, Zen 2");
  EXPECT_EQ(fact(reading, "NIC0", "controller"), "InfiniBand");
  EXPECT_TRUE(noted(reading, "numbered by bus id"));
}

TEST(ReadNcclXml, AzureNdv5PairsEachGpuWithANic) {
  WIREWISE_FIELD(reading, "ncclxml/azure-ndv5-topo.xml");
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 8U);
  EXPECT_EQ(count(reading, DeviceKind::kNic), 8U);
  for (int i = 0; i < 8; ++i) {
    const std::string gpu = "GPU" + std::to_string(i);
    EXPECT_EQ(relation(reading, gpu, "NIC" + std::to_string(i)), "PIX");
    EXPECT_EQ(relation(reading, gpu, "NIC" + std::to_string((i + 1) % 4 + i / 4 * 4)), "PHB");
    EXPECT_EQ(device(reading, gpu).numa, i / 4);
    EXPECT_EQ(above(reading, gpu).generation, 5);
  }
  EXPECT_EQ(device(reading, "numa0").cpus, "0-47");
  EXPECT_EQ(device(reading, "numa1").cpus, "48-95");
  EXPECT_EQ(between(reading, "host0", "numa1").source, "Intel UPI, Sapphire Rapids");
}

TEST(ReadNcclXml, AzureNdv2ListsFunctionsOnly) {
  WIREWISE_FIELD(reading, "ncclxml/azure-ndv2-topo.xml");
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 8U);
  EXPECT_EQ(count(reading, DeviceKind::kNic), 1U);
  EXPECT_EQ(count(reading, DeviceKind::kPcieSwitch), 0U);
  EXPECT_EQ(relation(reading, "GPU0", "NIC0"), "PHB");
  EXPECT_EQ(relation(reading, "GPU0", "GPU3"), "PHB");
  EXPECT_EQ(relation(reading, "GPU4", "NIC0"), "SYS");
}

TEST(ReadNcclXml, AzureNcv4HidesWhereNvlinksGo) {
  WIREWISE_FIELD(reading, "ncclxml/azure-ncv4-topo.xml");
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 4U);
  EXPECT_EQ(count(reading, DeviceKind::kNic), 1U);
  EXPECT_TRUE(reading.partial);
  EXPECT_TRUE(noted(reading, "GPU2 lead to itself"));
  EXPECT_EQ(fact(reading, "GPU0", "NVLinks with a hidden end"), "12");
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "SYS");
  EXPECT_EQ(relation(reading, "GPU0", "eth0"), "PHB");
  EXPECT_EQ(above(reading, "GPU0").provenance, Provenance::kAssumed);  // an empty link_speed
  EXPECT_EQ(above(reading, "GPU0").generation, 0);
}

TEST(ReadNcclXml, AwsP4dHasTwoGpusAndANicUnderEachSwitch) {
  for (const char* file : {"ncclxml/aws-p4d-24xl-topo.xml", "ncclxml/aws-p4de-24xl-topo.xml"}) {
    WIREWISE_FIELD(reading, file);
    EXPECT_EQ(count(reading, DeviceKind::kGpu), 8U);
    EXPECT_EQ(count(reading, DeviceKind::kNic), 4U);
    EXPECT_EQ(count(reading, DeviceKind::kPcieSwitch), 4U);
    EXPECT_EQ(relation(reading, "GPU2", "NIC1"), "PIX");
    EXPECT_EQ(relation(reading, "GPU2", "GPU3"), "PIX");
    EXPECT_EQ(relation(reading, "GPU2", "NIC0"), "PHB");
    EXPECT_EQ(relation(reading, "GPU2", "GPU4"), "SYS");
    EXPECT_EQ(device(reading, "NIC3").pci, "0000:a0:1b.0");
    EXPECT_EQ(device(reading, "numa0").cpus, "0-23,48-71");
    EXPECT_EQ(above(reading, "GPU2").generation, 3);
    EXPECT_EQ(fact(reading, "NIC0", "controller"), "Ethernet");
  }
}

TEST(ReadNcclXml, AwsG5SaysOfNoFunctionWhatItIs) {
  WIREWISE_FIELD(reading, "ncclxml/aws-g5.48xl-topo.xml");
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 0U);
  EXPECT_EQ(count(reading, DeviceKind::kNumaNode), 2U);
  EXPECT_TRUE(reading.partial);
  EXPECT_TRUE(noted(reading, "0000:00:16.0, 0000:00:17.0"));
  EXPECT_EQ(fact(reading, "0000:00:19.0", "place"), "numa 0");
  EXPECT_EQ(fact(reading, "0000:00:15.0", "place"), "numa 1");
}

TEST(ReadNcclXml, AFragmentOfADgxA100) {
  WIREWISE_FIELD(reading, "ncclxml/nccl1505-a100-fragment.xml");
  EXPECT_TRUE(reading.partial);
  EXPECT_TRUE(noted(reading, "<pci> was opened before the file begins"));
  EXPECT_TRUE(noted(reading, "<pci> is never closed"));
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 1U);
  EXPECT_EQ(count(reading, DeviceKind::kNic), 1U);
  EXPECT_EQ(relation(reading, "GPU0", "mlx5_0"), "?");  // what joins them stood before
  EXPECT_EQ(between(reading, "GPU0", "nvswitch0").lanes, 12);
  EXPECT_EQ(between(reading, "GPU0", "nvswitch0").generation, 3);
  EXPECT_FALSE(device(reading, "nvswitch0").nvls);
  EXPECT_EQ(device(reading, "mlx5_0").numa, -1);
  EXPECT_EQ(fact(reading, "mlx5_0", "speed"), "200000 Mbit/s");
}

TEST(ReadNcclXml, AnUnclosedFragmentOfADgx1) {
  WIREWISE_FIELD(reading, "ncclxml/nccl671-dgx1-v100-fragment-unclosed.xml");
  EXPECT_TRUE(reading.partial);
  EXPECT_TRUE(noted(reading, "<system> is never closed, nor are 4 elements within it"));
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 2U);
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "NV1");
  EXPECT_EQ(fact(reading, "GPU0", "NVLinks to 0000:85:00.0"), "2");
  EXPECT_EQ(fact(reading, "GPU1", "NVLinks to 0000:86:00.0"), "2");
  EXPECT_EQ(device(reading, "GPU0").numa, 0);
  EXPECT_EQ(device(reading, "numa0").cpus, "0-19,40-59");
  EXPECT_EQ(between(reading, "GPU0", "GPU1").generation, 2);
  EXPECT_EQ(between(reading, "host0", "numa0").source, "Intel QPI, Broadwell");
}

TEST(ReadNcclXml, RcclRingsOfQuadsWithANicEach) {
  for (const char* file : {"ncclxml/rccl-topo_8p_rome_4nics.xml", "ncclxml/rccl-topo_collnet_n4.xml"}) {
    WIREWISE_FIELD(reading, file);
    EXPECT_EQ(count(reading, DeviceKind::kGpu), 8U);
    EXPECT_EQ(count(reading, DeviceKind::kNic), 4U);
    EXPECT_EQ(count(reading, DeviceKind::kNvSwitch), 0U);
    EXPECT_EQ(relation(reading, "GPU0", "GPU3"), "XGMI1");
    EXPECT_EQ(relation(reading, "GPU0", "GPU4"), "SYS");
    EXPECT_EQ(relation(reading, "GPU0", "mlx5_1"), "PXB");
    EXPECT_EQ(relation(reading, "GPU2", "mlx5_1"), "SYS");
    EXPECT_EQ(relation(reading, "GPU6", "mlx5_7"), "PXB");
    EXPECT_EQ(device(reading, "GPU5").numa, 2);
    EXPECT_EQ(device(reading, "GPU0").model, "AMD gfx908");
    EXPECT_EQ(device(reading, "numa0").cpus, "0-31,128-159");
    EXPECT_EQ(between(reading, "host0", "numa0").source, "AMD xGMI, Zen 2");
  }
}

TEST(ReadNcclXml, RcclPcieOnly) {
  {
    WIREWISE_FIELD(reading, "ncclxml/rccl-topo_8p_pcie_2nic.xml");
    EXPECT_EQ(count(reading, DeviceKind::kGpu), 8U);
    EXPECT_EQ(count(reading, DeviceKind::kPcieSwitch), 10U);
    EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "PXB");
    EXPECT_EQ(relation(reading, "GPU0", "mlx5_0"), "PXB");
    EXPECT_EQ(relation(reading, "GPU0", "GPU4"), "PHB");
    EXPECT_EQ(relation(reading, "GPU4", "mlx5_1"), "PXB");
    EXPECT_EQ(above(reading, "GPU4").generation, 4);
    EXPECT_EQ(above(reading, "mlx5_1").generation, 3);
  }
  WIREWISE_FIELD(reading, "ncclxml/rccl-topo_3p_pcie.xml");
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 3U);
  EXPECT_EQ(relation(reading, "GPU0", "mlx5_0"), "PHB");
  EXPECT_EQ(relation(reading, "GPU1", "GPU2"), "PHB");
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "SYS");
  EXPECT_EQ(device(reading, "GPU0").model, "AMD gfx90a");
  // A card of generation 5 behind a switch that has 4: the path gets what the switch has.
  const auto path = Paths(reading.wiring).find(find_device(reading.wiring, "GPU1"), find_device(reading.wiring, "GPU2"));
  ASSERT_TRUE(path);
  EXPECT_NEAR(path->bandwidth, 24e9, 1);
}

TEST(ReadNcclXml, RcclOneNode) {
  {
    WIREWISE_FIELD(reading, "ncclxml/rccl-topo_8p_90a.xml");
    EXPECT_EQ(count(reading, DeviceKind::kGpu), 8U);
    EXPECT_EQ(count(reading, DeviceKind::kNumaNode), 1U);
    EXPECT_EQ(relation(reading, "GPU0", "GPU6"), "XGMI1");
    EXPECT_EQ(relation(reading, "GPU0", "GPU3"), "XGMI");  // over others: no link of its own
    EXPECT_EQ(above(reading, "eth0").lanes, 1);
    EXPECT_EQ(above(reading, "eth0").generation, 1);
    EXPECT_EQ(between(reading, "GPU0", "GPU6").source, "1 x xGMI, MI200");
  }
  WIREWISE_FIELD(reading, "ncclxml/rccl-topo_8p_940vm.xml");
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 8U);
  EXPECT_EQ(count(reading, DeviceKind::kNic), 8U);
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < i; ++j) EXPECT_EQ(relation(reading, "GPU" + std::to_string(i), "GPU" + std::to_string(j)), "XGMI1");
    EXPECT_EQ(device(reading, "GPU" + std::to_string(i)).numa, i / 4);
  }
  EXPECT_EQ(device(reading, "GPU1").pci, "0021:00:00.0");
  EXPECT_EQ(device(reading, "GPU6").model, "AMD gfx942");
  EXPECT_EQ(relation(reading, "GPU0", "mlx5_3"), "PHB");
  EXPECT_EQ(relation(reading, "GPU0", "mlx5_4"), "SYS");
  EXPECT_EQ(above(reading, "GPU0").generation, 5);
}

TEST(ReadNcclXml, RcclLargerOnes) {
  {
    WIREWISE_FIELD(reading, "ncclxml/rccl-topo_16p1h_vm.xml");
    EXPECT_FALSE(reading.partial);
    EXPECT_EQ(count(reading, DeviceKind::kGpu), 16U);
    EXPECT_EQ(count(reading, DeviceKind::kNic), 8U);
    EXPECT_EQ(relation(reading, "GPU0", "GPU3"), "XGMI4");
    EXPECT_EQ(relation(reading, "GPU0", "GPU4"), "XGMI2");
    EXPECT_EQ(relation(reading, "GPU0", "mlx5_1"), "PHB");
  }
  WIREWISE_FIELD(reading, "ncclxml/rccl-topo_8p6l_6nic.xml");
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 8U);
  EXPECT_EQ(count(reading, DeviceKind::kNic), 6U);
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "XGMI1");
  EXPECT_EQ(relation(reading, "GPU0", "mlx5_0"), "PHB");
  EXPECT_EQ(device(reading, "GPU0").cpus, "");
}

TEST(ReadNcclXml, AGraphFileIsOrdersAndNoDevices) {
  WIREWISE_FIELD(reading, "ncclxml/azure-ncv4-graph.xml");
  EXPECT_TRUE(reading.wiring.devices.empty());
  EXPECT_EQ(fact(reading, "graph 0", "pattern"), "ring");
  EXPECT_EQ(fact(reading, "graph 1", "pattern"), "balanced tree");
  EXPECT_EQ(fact(reading, "graph 2", "pattern"), "tree");
  EXPECT_EQ(fact(reading, "graph 0", "channel 1"), "GPU0 GPU3 GPU2 GPU1");
  EXPECT_EQ(fact(reading, "graph 1", "channel 3"), "GPU2 GPU3 GPU0 GPU1");
  EXPECT_EQ(fact(reading, "graph 0", "speed within a host"), "12 GB/s a channel");
  EXPECT_EQ(fact(reading, "graph 0", "farthest within a host"), "SYS");
  EXPECT_TRUE(reading.notes.empty());
}

TEST(ReadNcclXml, RefusesWithLineAndColumn) {
  EXPECT_EQ(field::refusal("<system>\n  <cpu numaid=\"0\">\n  </pci>\n</system>\n"), "f:3:3: </pci> stands where <cpu> of line 2 is to be closed.");
  EXPECT_EQ(field::refusal("<system>\n <!DOCTYPE x>\n</system>").substr(0, 8), "f:2:2: d");
  EXPECT_EQ(field::refusal("<system>\n<!ENTITY a \"b\">").substr(0, 8), "f:2:1: d");
  EXPECT_EQ(field::refusal("<system>\n<cpu numaid=\"0>\n</cpu></system>").substr(0, 26), "f:2:13: a value has no clo");
  EXPECT_EQ(field::refusal("<system><cpu numaid=\"0\"\n<pci/></cpu></system>").substr(0, 20), "f:2:1: a tag begins ");
  EXPECT_EQ(field::refusal("<system>\n<cpu numaid=0></cpu></system>").substr(0, 4), "f:2:");
  EXPECT_EQ(field::refusal("<system>\n<cpu><pci class=\"0x030200\"/></cpu></system>"), "f:2:6: a PCI device has no busid.");
  EXPECT_EQ(field::refusal("<system><cpu>\n<pci busid=\"0000:01:00.0\" class=\"0x030200\"/>\n<pci busid=\"0000:01:00.0\" class=\"0x030200\"/></cpu></system>"),
            "f:3:1: 0000:01:00.0 stands twice; the first is line 2.");
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "<pci busid=\"" + std::to_string(i) + "\">";
  EXPECT_NE(field::refusal("<system>" + deep).find("deeper than 64"), std::string::npos);
  EXPECT_NE(field::refusal("<system>\n</system>").find("no CPU, GPU or NIC"), std::string::npos);
}

TEST(ReadNcclXml, ACutIsNotedWhereverItIs) {
  const std::string whole = kTwoGpus;
  int read = 0;
  for (std::size_t at = 60; at < whole.size() - 12; ++at) {  // from within the CPU's tag to its closing one
    const std::string cut = whole.substr(0, at);
    if (const std::string why = field::refusal(cut); !why.empty()) {
      EXPECT_NE(why.find("no CPU"), std::string::npos) << why;
      continue;
    }
    const Reading reading = read_wiring(cut, "f");
    EXPECT_TRUE(reading.partial) << cut;
    EXPECT_FALSE(reading.notes.empty()) << cut;
    EXPECT_LE(count(reading, DeviceKind::kGpu), 2U);
    ++read;
  }
  EXPECT_GT(read, 500);
}

TEST(ReadNcclXml, WhatIsOddIsNoted) {
  const Reading reading = read_wiring(
      "<system><cpu numaid='0'><pci busid='0000:01:00.0' class='0x030200'><gpu dev='0' sm='80'><nvlink target='0000:02:00.0' count='4'/></gpu></pci>"
      "<pci busid='0000:02:00.0' class='0x030200'><gpu dev='0' sm='80'><nvlink target='0000:01:00.0' count='2'/><nvlink target='0000:01:00.0' count='-1'/></gpu></pci>"
      "<pci busid='0000:03:00.0' class='0x010802'/><moon/></cpu><cpu numaid='0'/></system>",
      "f");
  EXPECT_TRUE(noted(reading, "two GPUs are number 0"));
  EXPECT_TRUE(noted(reading, "GPU0 has 4 links to GPU1, which has 2 back"));
  EXPECT_TRUE(noted(reading, "have no count"));
  EXPECT_TRUE(noted(reading, "<moon> isn't known"));
  EXPECT_TRUE(noted(reading, "NUMA node 0 stands twice"));
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "NV4");
  EXPECT_EQ(fact(reading, "0000:03:00.0", "place"), "numa 0, class 0x010802");
  EXPECT_FALSE(noted(reading, "nothing says"));
}

}  // namespace
}  // namespace wirewise
