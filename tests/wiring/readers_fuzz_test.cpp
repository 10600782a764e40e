// Hostile texts for the readers of matrices, XML and our own dumps.
#include "wiring/reader_fuzz.h"

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

}  // namespace
}  // namespace wirewise
