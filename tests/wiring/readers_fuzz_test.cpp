// Hostile texts for the readers of matrices, XML, our own dumps, and of what people post of GPUs, fabrics and several hosts.
#include "wiring/posted_samples.h"
#include "wiring/reader_fuzz.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

constexpr const char* kMatrix =
    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV4\tPIX\t0-31\t0\t\tN/A\n"
    "GPU1\tNV4\t X \tSYS\t32-63\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\t X \t\t\t\n\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n";
constexpr const char* kXml =
    "<system version=\"1\">\n  <cpu host_hash=\"0x1\" numaid=\"0\" affinity=\"ff\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\">\n"
    "    <pci busid=\"0000:01:00.0\" class=\"0x060400\" link_speed=\"8 GT/s\" link_width=\"16\">\n"
    "      <pci busid=\"0000:02:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">\n"
    "        <gpu dev=\"0\" sm=\"90\" rank=\"0\" gdr=\"1\"><nvlink target=\"0000:03:00.0\" count=\"2\" tclass=\"0x030200\"/><c2c bw=\"1\" count=\"2\"/></gpu>\n      </pci>\n"
    "      <pci busid=\"0000:03:00.0\" class=\"0x030200\">\n        <gpu dev=\"1\" sm=\"90\"><nvlink target=\"fffffff:ffff:ff\" count=\"2\" tclass=\"0x068000\"/></gpu>\n      </pci>\n"
    "    </pci>\n    <nic>\n      <net name=\"eth0\" dev=\"0\" speed=\"1000\"/>\n    </nic>\n  </cpu>\n</system>\n";
constexpr const char* kGraph = "<graphs version=\"1\">\n<graph id=\"0\" pattern=\"4\" nchannels=\"1\">\n<channel>\n<net dev=\"0\"/>\n<gpu dev=\"0\"/>\n</channel>\n</graph>\n</graphs>\n";

void sound(const std::string& text) {
  const Reading reading = read_wiring(text, "fuzzed");
  fuzz::expect_sound(reading);
  if (::testing::Test::HasFatalFailure() || reading.wiring.devices.size() > 200) return;
  ASSERT_EQ(write_json(read_json(write_json(reading), "dump")), write_json(reading));
  (void)write_tree(reading.wiring);
  (void)write_matrix(reading.wiring);
  try {
    const std::string xml = write_nccl_xml(reading).text;
    ASSERT_EQ(field::count(read_nccl_xml(xml, "written"), DeviceKind::kGpu), field::count(reading, DeviceKind::kGpu)) << xml;
  } catch (const Error& error) {
    ASSERT_EQ(error.kind(), ErrorKind::kBadInput);
  }
}

TEST(ReadersFuzz, NvidiaTopo) {
  fuzz::run(fuzz::with_field({kMatrix}, "topo"), {"GPU0", "GPU1", "GPU17", "NIC0", "mlx5_0", " X ", "NV4", "NV1000", "PIX", "SYS", "NODE", "OK", "N/A", "0-31", "Legend:", "NIC", "NIC0: host0", "numa0", "\tGPU0\tGPU1\n", "CPU Affinity"}, sound);
}

TEST(ReadersFuzz, NcclXml) {
  fuzz::run(fuzz::with_field({kXml, kXml, kXml, kGraph}, "ncclxml"),
            {"<pci busid=\"0000:04:00.0\">", "</pci>", "<cpu numaid=\"0\">", "</cpu>", "<gpu dev=\"0\">", "</gpu>", "<nic>", "<!--", "-->", "<![CDATA[", "&amp;", "&#x41;", "<!DOCTYPE a>", "target", "0000:02:00.0", "class=\"0x020000\"", "<net name=\"host0\"/>", "<net name=\"switch0\"/>", "/>", "'"},
            sound);
}

TEST(ReadersFuzz, Json) {
  std::vector<std::string> samples{write_json(read_wiring(kMatrix, "f")), write_json(read_wiring(kXml, "f")), write_json(read_wiring(kGraph, "f"))};
  fuzz::run(samples, {"{", "}", "[", "]", "null", "1e400", "-1", "\"kind\":\"gpu\"", "\"host_index\":0", "\"from\":0", "\"\\ud800\"", "true", ",", ":"}, [](const std::string& text) {
    const Reading reading = read_json(text, "fuzzed");
    // Links may lead from a device to itself there, and names that others would refuse be given: it says what it was told.
    const std::string once = write_json(reading);
    ASSERT_EQ(write_json(read_json(once, "dump")), once);
  });
}

TEST(ReadersFuzz, NvidiaReport) {
  fuzz::run({std::string(posted::kNvidiaReport), std::string(posted::kNvidiaXml), std::string(posted::kNvidiaTable)},
            {"GPU 00000000:17:00.0", "GPU 00000000:18:00.0", "        ", "Current : 1", "GPU Link Info", "</gpu>", "<gpu id=\"0:1:2\">", "<!--", "]]>", "&amp;", "|", "| 3  X On | 00000000:01:00.0 |", "P8", "16x"}, sound);
}

TEST(ReadersFuzz, RocmTopo) {
  fuzz::run({std::string(posted::kRocmTopo), std::string(posted::kAmdTopology)},
            {"GPU0", "GPU1", "GPU255", "XGMI", "PCIE", "SELF", "N/A", "15", "30", "0-0", "1-99999", "=== Weight between two GPUs ===", "HOPS TABLE:", "(Topology) Numa Node:", "GPU[9] : (Topology) Numa Node: 3\n", "0000:0c:00.0", "MI250"}, sound);
}

TEST(ReadersFuzz, Iblinkinfo) {
  fuzz::run({std::string(posted::kIblinkinfo), std::string(posted::kIblinkinfoLines)},
            {"==(", ")==>", "CA:", "Switch:", "Switch: 0x1 a:\n", "[  ]", "\"\"", "\"a a\"", "\"host0 nic0\"", "4X", "25.78125 Gbps", "FDR10", "Down/ Polling", "Could be", "0x0c42a103008d7a10", "0x1"}, sound);
}

TEST(ReadersFuzz, HwlocXml) {
  fuzz::run({std::string(posted::kHwloc), std::string(posted::kHwloc)},
            {"<object type=\"PU\" os_index=\"9\">", "<object type=\"Group\">", "</object>", "<topology>", "</topology>", "type=\"NUMANode\"", "type=\"Bridge\"", "type=\"Machine\"", "type=\"L3Cache\"", "cpuset=\"0xf...f\"", "cpuset=\"0x0\"",
             "cpuset=\"\"", "bridge_type=\"1-1\"", "bridge_type=\"0-1\"", "bridge_pci=\"0000:[ff-00]\"", "pci_type=\"0302 [10de:20b2] [0:0] 0\"", "osdev_type=\"5\"", "<info name=\"GPUModel\" value=\"x\"/>", "gp_index=\"1\"", "PU", "Core", "Die", "OSDev"},
            sound);
}

TEST(ReadersFuzz, SeveralHosts) {
  std::vector<std::string> samples;
  for (const char* sample : {kMatrix, "CA 'a'\n\tPort 1:\n\t\tState: Active\n\t\tRate: 100\n\t\tLink layer: InfiniBand\n"}) {
    std::string labelled;
    for (const TextLine& line : text_lines(sample)) labelled += "n1: " + line.text + "\nn2: " + line.text + "\n";
    samples.push_back(labelled);
    samples.push_back(std::string("----\nn[1-3] (3)\n----\n") + sample + "n4 | CHANGED | rc=0 >>\n" + sample);
  }
  fuzz::run(samples, {"n1: ", "n3: ", " 0: ", "12: ", "[1,4]<stdout>:", "----\n", "----\nn[1-900]\n----\n", "a | SUCCESS | rc=0 >>\n", "b | UNREACHABLE! => {\n", "> ", "```\n", "network: "}, sound, 600);
}

}  // namespace
}  // namespace wirewise
