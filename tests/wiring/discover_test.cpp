// This machine against lstopo, and machines written by hand against what one reads in them.
#include "wirewise/wiring/discover.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <pugixml.hpp>
#include <sstream>

#include "wirewise/wiring/relation.h"
#include "wirewise/wiring/write.h"
#include "wiring/machine_tree.h"

namespace wirewise {
namespace {

using testing::MachineTree;

const Device& device(const Reading& reading, const char* name) {
  const int index = find_device(reading.wiring, name);
  if (index < 0) throw std::runtime_error(std::string("no device ") + name + " in\n" + write_tree(reading.wiring));
  return reading.wiring.devices[static_cast<std::size_t>(index)];
}
std::string relation(const Reading& reading, const char* a, const char* b) {
  return name_of(Relations(reading.wiring).between(find_device(reading.wiring, a), find_device(reading.wiring, b)));
}
/// The link that leads down to a device.
const Link& link_to(const Reading& reading, const char* name) {
  for (const Link& link : reading.wiring.links) {
    if (link.to == find_device(reading.wiring, name) && link.kind == LinkKind::kPcie) return link;
  }
  throw std::runtime_error("no link");
}
bool has_note(const Reading& reading, const std::string& words) {
  for (const Note& note : reading.notes) {
    if (note.text.find(words) != std::string::npos) return true;
  }
  return false;
}

TEST(Discover, AMachineWithoutSysIsPartial) {
  const MachineTree tree;  // an empty root
  const Reading reading = discover({tree.root(), "/nowhere"});
  EXPECT_TRUE(reading.partial);
  EXPECT_TRUE(has_note(reading, "/sys isn't mounted here")) << reading.notes.size();
  MachineTree whole;
  whole.trainer();
  EXPECT_FALSE(discover({whole.root(), "/nowhere"}).partial);
}

/// What lstopo says of a root: NUMA nodes with their CPU masks and memory, CPUs, and PCI devices of the classes 02 and 03.
struct Lstopo {
  std::map<int, Bytes> nodes;
  int cpus = 0;
  std::map<std::string, std::string> pci;
};
std::optional<Lstopo> lstopo(const std::string& options) {
  FILE* const pipe = ::popen(("lstopo-no-graphics --of xml " + options + " 2>/dev/null").c_str(), "r");
  std::string text;
  char block[4096];
  for (std::size_t got; (got = std::fread(block, 1, sizeof block, pipe)) > 0;) text.append(block, got);
  if (::pclose(pipe) != 0) return std::nullopt;
  pugi::xml_document xml;
  if (!xml.load_string(text.c_str())) return std::nullopt;
  Lstopo found;
  for (const auto& node : xml.select_nodes("//object[@type='NUMANode']")) {
    found.nodes[node.node().attribute("os_index").as_int()] = node.node().attribute("local_memory").as_ullong();
  }
  found.cpus = static_cast<int>(xml.select_nodes("//object[@type='PU']").size());
  for (const auto& node : xml.select_nodes("//object[@type='PCIDev']")) {
    const std::string type = node.node().attribute("pci_type").as_string();
    if (type.starts_with("02") || type.starts_with("03")) found.pci[node.node().attribute("pci_busid").as_string()] = type.substr(0, 4);
  }
  return found;
}

void agrees(const Places& places, const Lstopo& theirs) {
  const Machine machine = inspect_machine(places);
  EXPECT_EQ(machine.processors.cpus, theirs.cpus);
  std::map<int, Bytes> nodes;
  for (const NumaNode& node : machine.processors.nodes) nodes[node.number] = node.memory;
  EXPECT_EQ(nodes, theirs.nodes);
  const Reading reading = wire(machine);
  EXPECT_EQ(devices_of(reading.wiring, DeviceKind::kNumaNode).size(), theirs.nodes.size());
  std::map<std::string, std::string> pci;
  for (const PciDevice& one : machine.pci) {
    char type[8];
    std::snprintf(type, sizeof type, "%04x", one.type >> 8);
    if (one.type >> 16 == 0x02 || one.type >> 16 == 0x03) pci[one.address] = type;
  }
  EXPECT_EQ(pci, theirs.pci);
}

TEST(Discover, ThisMachineAgreesWithLstopo) {
  const auto theirs = lstopo("");
  if (!theirs) GTEST_SKIP() << "lstopo-no-graphics (Debian: hwloc-nox) is not here";
  agrees({}, *theirs);
}

TEST(Discover, AMachineWrittenByHandAgreesWithLstopo) {
  MachineTree tree;
  tree.processors(2, 4);
  const auto theirs = lstopo("-i " + tree.root().string());
  if (!theirs) GTEST_SKIP() << "lstopo-no-graphics (Debian: hwloc-nox) is not here";
  ASSERT_EQ(theirs->nodes.size(), 2u);
  agrees({tree.root(), "/nowhere"}, *theirs);
}

TEST(Discover, TreeIsThatOfTheFolders) {
  MachineTree tree;
  tree.trainer();
  const Reading reading = discover({tree.root(), "/nowhere"});
  EXPECT_EQ(device(reading, "trainer7").memory, 128 * kGiB);
  EXPECT_EQ(device(reading, "numa0").cpus, "0-3");
  EXPECT_EQ(device(reading, "numa1").memory, 64 * kGiB);
  EXPECT_EQ(devices_of(reading.wiring, DeviceKind::kGpu).size(), 3u);  // the console's picture is none
  EXPECT_EQ(device(reading, "GPU0").pci, "0000:3d:00.0");
  EXPECT_EQ(device(reading, "GPU2").pci, "0000:b1:00.0");
  EXPECT_EQ(device(reading, "GPU2").numa, 1);
  EXPECT_EQ(device(reading, "GPU2").cpus, "4-7");
  EXPECT_EQ(device(reading, "mlx5_0").numa, 0);
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "PIX");
  EXPECT_EQ(relation(reading, "GPU0", "mlx5_0"), "PIX");
  EXPECT_EQ(relation(reading, "GPU2", "ens3"), "PHB");
  EXPECT_EQ(relation(reading, "GPU0", "GPU2"), "SYS");
  EXPECT_EQ(link_to(reading, "GPU0").generation, 4);
  EXPECT_EQ(link_to(reading, "GPU0").lanes, 16);
  EXPECT_EQ(link_to(reading, "ens3").lanes, 8);
  EXPECT_EQ(link_to(reading, "ens3").provenance, Provenance::kDriver);
  EXPECT_NE(write_json(reading).find("no NVML"), std::string::npos);
  EXPECT_NE(write_json(reading).find("InfiniBand, 200 Gb/sec (4X HDR), ACTIVE"), std::string::npos);
}

TEST(Discover, AnIdleGpuHasTheLinkThatItCanReach) {
  MachineTree tree;
  tree.processors(1, 4);
  tree.pci({"pci0000:00/0000:00:01.0", "0x060400", "0x8086", 0, "2.5 GT/s PCIe", "16.0 GT/s PCIe"});
  tree.pci({"pci0000:00/0000:00:01.0/0000:01:00.0", "0x030200", "0x10de", 0, "2.5 GT/s PCIe", "32.0 GT/s PCIe", 8, 16});
  const Reading reading = discover({tree.root(), "/nowhere"});
  EXPECT_EQ(link_to(reading, "GPU0").generation, 4);  // the slot's
  EXPECT_EQ(link_to(reading, "GPU0").lanes, 8);
}

TEST(Discover, NodesWithoutCpusAndDevicesWithoutANode) {
  MachineTree tree;
  tree.processors(1, 4);
  tree.numa(1, 0, 2);
  tree.write("sys/devices/system/node/online", "0-1\n");
  tree.write("sys/devices/system/node/possible", "0-1\n");
  tree.pci({"pci0000:00/0000:00:03.0", "0x020000", "0x1af4", -1, "Unknown", "Unknown", 255, 255});
  tree.net("eth0", "pci0000:00/0000:00:03.0", -1, "unknown");
  const Reading reading = discover({tree.root(), "/nowhere"});
  EXPECT_EQ(device(reading, "numa1").cpus, "");
  EXPECT_EQ(device(reading, "numa1").memory, 64 * kGiB);
  EXPECT_EQ(device(reading, "eth0").numa, -1);
  EXPECT_TRUE(has_note(reading, "near no NUMA node"));
  EXPECT_EQ(link_to(reading, "eth0").provenance, Provenance::kAssumed);
}

TEST(Discover, TheDriverSaysNamesMemoryAndNvlinks) {
  MachineTree tree;
  tree.trainer();
  const Reading reading = discover({tree.root(), WIREWISE_FAKE_NVML});
  EXPECT_EQ(device(reading, "GPU1").model, "NVIDIA A100-SXM4-40GB");
  EXPECT_EQ(device(reading, "GPU1").memory, 40 * kGiB);
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "NV4");
  EXPECT_EQ(relation(reading, "GPU0", "GPU2"), "SYS");
  EXPECT_TRUE(has_note(reading, "GPU is lost"));
  for (const Link& link : reading.wiring.links) {
    EXPECT_TRUE(link.kind != LinkKind::kNvlink || link.generation == 3);
  }
}

TEST(Discover, ALibraryThatIsNoNvmlIsSaidToBeNone) {
  MachineTree tree;
  EXPECT_NE(read_nvml("libm.so.6").absence.find("has no function nvmlInit_v2"), std::string::npos);
  EXPECT_FALSE(read_nvml((tree.root() / "absent.so").string()).present);
}

TEST(Discover, AnEmptyRootIsAHostAlone) {
  MachineTree tree;
  const Reading reading = discover({tree.root() / "nothing", "/nowhere"});
  EXPECT_EQ(hosts_of(reading.wiring), 1);
  EXPECT_TRUE(devices_of(reading.wiring, DeviceKind::kGpu).empty());
}

}  // namespace
}  // namespace wirewise
