// hwloc's XML: a machine far away, and this one, which must be the same from its file as from itself.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <map>
#include <pugixml.hpp>

#include "wiring/field.h"
#include "wiring/posted_samples.h"
#include "wirewise/wiring/discover.h"
#include "wirewise/wiring/hwloc_document.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/write.h"

namespace wirewise {
namespace {

using field::device;
using field::fact;
using field::noted;
using field::refusal;
using field::relation;

std::string lstopo() {
  FILE* const pipe = ::popen("lstopo-no-graphics --of xml 2>/dev/null", "r");
  std::string text;
  char block[4096];
  for (std::size_t got; (got = std::fread(block, 1, sizeof block, pipe)) > 0;) text.append(block, got);
  return ::pclose(pipe) == 0 ? text : std::string();
}

TEST(ReadHwlocXml, AMachineFarAway) {
  const Reading reading = read_wiring(posted::kHwloc, "t");
  EXPECT_EQ(reading.format, Format::kHwlocXml);
  EXPECT_EQ(device(reading, "far7").model, "AMD EPYC 7763 64-Core Processor");
  EXPECT_EQ(device(reading, "far7").memory, 96 * kGiB);
  EXPECT_EQ(device(reading, "numa0").cpus, "0-1");
  EXPECT_EQ(device(reading, "numa1").memory, 32 * kGiB);
  EXPECT_EQ(device(reading, "GPU0").pci, "0000:43:00.0");
  EXPECT_EQ(device(reading, "GPU0").model, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(device(reading, "GPU0").numa, 0);
  EXPECT_EQ(device(reading, "GPU1").pci, "0000:c1:00.0");
  EXPECT_EQ(device(reading, "GPU1").numa, 1);
  EXPECT_EQ(device(reading, "GPU1").cpus, "2-3");
  EXPECT_EQ(relation(reading, "GPU0", "mlx5_0"), "PIX");  // behind one switch
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "SYS");
  EXPECT_EQ(fact(reading, "mlx5_0:1", "rdma"), "ACTIVE");
  EXPECT_TRUE(noted(reading, "GPUs that idle slow theirs"));
  const int nic = find_device(reading.wiring, "mlx5_0"), gpu = find_device(reading.wiring, "GPU0");
  for (const Link& link : reading.wiring.links) {
    if (link.from == nic) {
      EXPECT_NEAR(link.spec, 15.753846e9, 1e4);
    }
    if (link.from == gpu) {
      EXPECT_NEAR(link.spec, 31.507692e9, 1e4);
    }
  }
}

TEST(ReadHwlocXml, NvlinksByTheirBandwidth) {
  const auto with = [](const std::string& values) {
    std::string text(posted::kHwloc);
    text.insert(text.find("</topology>"), "  <distances2hetero nbobjs=\"2\" kind=\"5\" name=\"NVLinkBandwidth\">\n    <indexes length=\"20\">OSDev:25 PCIDev:32 </indexes>\n    <u64values length=\"30\">" + values + "</u64values>\n  </distances2hetero>\n");
    return text;
  };
  const Reading reading = read_wiring(with("1000000 100000 100000 1000000 "), "t");
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "NV4");
  EXPECT_TRUE(noted(reading, "counted at 25 GB/s each"));
  for (const Link& link : reading.wiring.links) {
    if (link.kind == LinkKind::kNvlink) {
      EXPECT_DOUBLE_EQ(link.spec, 100e9);
    }
  }
  EXPECT_NE(refusal(with("1000000 100000 100000")).find("has not as many values as it needs"), std::string::npos);
}

TEST(ReadHwlocXml, ThisMachineIsTheSameFromItsFile) {
  const std::string text = lstopo();
  if (text.empty()) GTEST_SKIP() << "lstopo-no-graphics (Debian: hwloc-nox) is not here";
  Reading file = read_wiring(text, "t"), here = discover();
  const auto graph = [](Reading& reading) {
    for (Device& device : reading.wiring.devices) {  // what lstopo can't see without the GPUs' driver
      device.model = device.kind == DeviceKind::kHost ? device.model : std::string();
      if (device.kind == DeviceKind::kGpu) device.memory = 0;
    }
    std::erase_if(reading.wiring.links, [](const Link& link) { return link.kind == LinkKind::kNvlink; });
    for (Link& link : reading.wiring.links) {  // hwloc keeps the speed of a link, not its generation
      if (link.kind == LinkKind::kPcie) link.alpha = link.beta = link.spec = 0, link.generation = link.lanes = 0, link.provenance = Provenance::kAssumed, link.source.clear();
    }
    return write_tree(reading.wiring);
  };
  EXPECT_EQ(graph(file), graph(here));
  EXPECT_EQ(file.wiring.devices.size(), here.wiring.devices.size());
}

TEST(ReadHwlocXml, BridgesMayBeLeftOut) {
  std::string text(posted::kHwloc);
  const std::size_t begin = text.find("<object type=\"Bridge\" gp_index=\"30\""), end = text.find("<object type=\"PCIDev\" gp_index=\"32\"");
  text.erase(begin, end - begin);
  for (int closed = 0; closed < 2; ++closed) {
    const std::size_t at = text.find("</object>", begin);
    text.erase(at, 9);
  }
  const Reading reading = read_wiring(text, "t");
  EXPECT_EQ(device(reading, "GPU1").numa, 1);
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "SYS");
  for (const Link& link : reading.wiring.links) EXPECT_GT(link.beta, 0);
}

TEST(ReadHwlocXml, SetsThatContradictTheTreeGiveWay) {
  std::string text(posted::kHwloc);
  for (const char* set : {"cpuset=\"0x00000003\"", "nodeset=\"0x00000002\""}) {
    for (std::size_t at = text.find(set); at != std::string::npos; at = text.find(set, at + 1)) text.replace(at, std::string(set).size(), std::string(set).replace(std::string(set).size() - 2, 1, "9"));
  }
  const Reading reading = read_wiring(text, "t");
  EXPECT_EQ(device(reading, "GPU1").numa, 1);
  EXPECT_EQ(device(reading, "GPU0").numa, 0);
}

TEST(ReadHwlocXml, NodesOfHwlocOneHoldTheirCpus) {
  const Reading reading = read_wiring(
      "<topology>\n<object type=\"Machine\" os_index=\"0\" cpuset=\"0x0000000f\">\n<info name=\"HostName\" value=\"old1\"/>\n"
      "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x00000003\" local_memory=\"1073741824\"><object type=\"Socket\" os_index=\"0\"><object type=\"Cache\" depth=\"3\"><object type=\"Core\"><object type=\"PU\" os_index=\"0\"/><object type=\"PU\" os_index=\"1\"/></object></object></object>\n"
      "<object type=\"Bridge\" os_index=\"0\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[00-02]\"><object type=\"PCIDev\" os_index=\"1\" pci_busid=\"0000:02:00.0\" pci_type=\"0200 [8086:1521] [15d9:1521] 01\" pci_link_speed=\"0.0\"><object type=\"OSDev\" name=\"eth0\" osdev_type=\"2\"/></object></object></object>\n"
      "<object type=\"NUMANode\" os_index=\"1\" cpuset=\"0x0000000c\" local_memory=\"2147483648\"><object type=\"Socket\" os_index=\"1\"><object type=\"PU\" os_index=\"2\"/><object type=\"PU\" os_index=\"3\"/></object></object>\n"
      "</object>\n</topology>\n",
      "t");
  EXPECT_EQ(device(reading, "old1").memory, 3 * kGiB);
  EXPECT_EQ(device(reading, "numa0").cpus, "0-1");
  EXPECT_EQ(device(reading, "numa1").cpus, "2-3");
  EXPECT_EQ(device(reading, "eth0").numa, 0);
}

TEST(ReadHwlocXml, TornAndTwistedFilesAreRefusedWithThePlace) {
  const std::string whole(posted::kHwloc);
  EXPECT_NE(refusal(whole.substr(0, whole.size() / 2)).find("the file ends before </topology>"), std::string::npos);
  const auto changed = [&](const std::string& what, const std::string& with) {
    std::string text = whole;
    text.replace(text.find(what), what.size(), with);
    return refusal(text);
  };
  EXPECT_NE(changed("type=\"PU\" os_index=\"3\"", "type=\"PU\" os_index=\"999999999\"").find(": a PU has no os_index"), std::string::npos);
  EXPECT_NE(changed("type=\"PU\" os_index=\"1\"", "type=\"PU\" os_index=\"0\"").find("f:13:9: CPU 0 stands there twice"), std::string::npos);
  EXPECT_NE(changed("</object>", "</objekt>").find("the XML is broken here"), std::string::npos);
  EXPECT_NE(changed("type=\"NUMANode\" os_index=\"1\"", "type=\"NUMANode\" os_index=\"0\"").find("NUMA node 0 stands there twice"), std::string::npos);
  EXPECT_NE(changed("type=\"Package\"", "type=\"Pakage\"").find("f:6:5: Pakage is no type of object"), std::string::npos);
  EXPECT_NE(changed("type=\"PCIDev\"", "type=\"PU\"").find("a PU stands below a device"), std::string::npos);
  EXPECT_NE(changed("pci_busid=\"0000:43:00.0\"", "pci_busid=\"43:00\"").find("a PCIDev has no pci_busid"), std::string::npos);
  EXPECT_NE(refusal("<topology version=\"2.0\">\n</topology>\n").find("there is no object"), std::string::npos);
  EXPECT_NE(refusal("  NUMANode L#0 (P#0 31GB)\n").find("lstopo's text"), std::string::npos);
}

/// The sets of CPUs and nodes of each object, as they follow from which CPU and node stands where.
TEST(ReadHwlocXml, SetsAreMadeAnewOfWhereCpusAndNodesStand) {
  std::string bad(posted::kHwloc);  // sets that contradict the tree
  for (const std::string set : {"cpuset=\"", "nodeset=\""}) {
    for (std::size_t at = bad.find(set); at != std::string::npos; at = bad.find(set, at + 1)) {
      const std::size_t value = at + set.size();
      if (bad.compare(bad.rfind('<', at), 24, "<object type=\"NUMANode\" ") == 0 && set[0] == 'c') continue;  // what a node says of its CPUs counts
      bad.replace(value, bad.find('"', value) - value, "0x00000f00");
    }
  }
  for (const std::string& text : {std::string(posted::kHwloc), bad}) {
    pugi::xml_document given, made;
    ASSERT_TRUE(given.load_string(text.c_str(), pugi::parse_default));
    const std::string sound = sound_hwloc_document(given.child("topology"), [](const pugi::xml_node&, const std::string& what) { FAIL() << what; });
    ASSERT_TRUE(made.load_string(sound.c_str()));
    std::map<std::string, std::string> sets;
    const std::function<void(const pugi::xml_node&, int)> walk = [&](const pugi::xml_node& node, int package) {
      for (const pugi::xml_node object : node.children("object")) {
        const std::string type = object.attribute("type").value();
        if (type == "Package") ++package;
        if (!object.attribute("cpuset")) continue;
        const std::string name = type == "Package" ? type + std::to_string(package) : type + object.attribute("os_index").value();
        sets[name] = std::string(object.attribute("cpuset").value()) + " " + object.attribute("nodeset").value();
        EXPECT_STREQ(object.attribute("complete_cpuset").value(), object.attribute("cpuset").value()) << name;
        EXPECT_STREQ(object.attribute("complete_nodeset").value(), object.attribute("nodeset").value()) << name;
        if (type == "Machine") {
          EXPECT_STREQ(object.attribute("allowed_cpuset").value(), "0x0000000f");
          EXPECT_STREQ(object.attribute("allowed_nodeset").value(), "0x00000003");
        }
        walk(object, package);
        if (type == "Package") continue;
      }
    };
    int packages = -1;
    for (const pugi::xml_node machine : made.child("topology").children("object")) {
      sets["Machine"] = std::string(machine.attribute("cpuset").value()) + " " + machine.attribute("nodeset").value();
      for (const pugi::xml_node package : machine.children("object")) {
        if (package.attribute("type").value() != std::string_view("Package")) continue;
        sets["Package" + std::to_string(++packages)] = std::string(package.attribute("cpuset").value()) + " " + package.attribute("nodeset").value();
        walk(package, packages);
      }
    }
    const std::map<std::string, std::string> expected{
        {"Machine", "0x0000000f 0x00000003"},   {"Package0", "0x00000003 0x00000001"},  {"Package1", "0x0000000c 0x00000002"}, {"NUMANode0", "0x00000003 0x00000001"},
        {"NUMANode1", "0x0000000c 0x00000002"}, {"PU0", "0x00000001 0x00000001"},       {"PU1", "0x00000002 0x00000001"},      {"PU2", "0x00000004 0x00000002"},
        {"PU3", "0x00000008 0x00000002"}};
    EXPECT_EQ(sets, expected) << sound;
  }
}

/// A node of memory alone beside the sockets is the machine's, and nobody's in particular; one that claims CPUs of others keeps its own; what an
/// empty socket holds is the machine's; and objects stand in the order of their CPUs, as hwloc has them.
TEST(ReadHwlocXml, ANodeWithoutCpusIsLocalToNoCpu) {
  pugi::xml_document given, made;
  ASSERT_TRUE(given.load_string(
      "<topology version='2.0'><object type='Machine' os_index='0'><object type='NUMANode' os_index='5' cpuset='0x0' local_memory='1073741824'/>"
      "<object type='Package' os_index='0'><object type='NUMANode' os_index='1' cpuset='0x000000ff' local_memory='1073741824'/><object type='PU' os_index='3'/></object>"
      "<object type='Package' os_index='1'><object type='PU' os_index='2'/></object>"
      "<object type='Package' os_index='2'><object type='NUMANode' os_index='7' local_memory='1073741824'/></object></object></topology>"));
  const std::string sound = sound_hwloc_document(given.child("topology"), [](const pugi::xml_node&, const std::string& what) { FAIL() << what; });
  ASSERT_TRUE(made.load_string(sound.c_str()));
  const pugi::xml_node machine = made.child("topology").child("object");
  const auto set_of = [&](const char* type, const char* index, const char* set) -> std::string {
    return machine.find_node([&](const pugi::xml_node& node) { return node.attribute("type").value() == std::string_view(type) && node.attribute("os_index").value() == std::string_view(index); }).attribute(set).value();
  };
  EXPECT_STREQ(machine.attribute("nodeset").value(), "0x000000a2");
  EXPECT_STREQ(machine.attribute("cpuset").value(), "0x0000000c");
  EXPECT_EQ(set_of("NUMANode", "5", "cpuset"), "0x0");
  EXPECT_EQ(set_of("NUMANode", "1", "cpuset"), "0x00000008");
  EXPECT_EQ(set_of("NUMANode", "7", "cpuset"), "0x0000000c");
  EXPECT_EQ(set_of("PU", "3", "nodeset"), "0x00000082");
  EXPECT_EQ(set_of("PU", "2", "nodeset"), "0x00000080");
  EXPECT_LT(sound.find("os_index=\"2\""), sound.find("os_index=\"3\""));
}

}  // namespace
}  // namespace wirewise
