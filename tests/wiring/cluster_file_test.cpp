// cluster.toml: what it makes, how it refuses, and the machines that are shipped against what is publicly known of them.
#include "wirewise/wiring/cluster_file.h"

#include <gtest/gtest.h>
#include <pugixml.hpp>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "wirewise/base/error.h"
#include "wirewise/wiring/embedded.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/path.h"
#include "wirewise/wiring/relation.h"
#include "wiring/reader_fuzz.h"

namespace wirewise {
namespace {

std::string refused(const std::string& text) {
  try {
    (void)read_cluster(text, "c.toml");
  } catch (const Error& failure) {
    EXPECT_EQ(failure.kind(), ErrorKind::kBadInput);
    return failure.what();
  }
  return "accepted";
}

Wiring shipped(const std::string& name) { return read_shipped(name).value().wiring; }

int outside(const Wiring& wiring, const std::string& name) { return find_device(wiring, name, -1); }

/// The first link from a to b.
const Link& link_of(const Wiring& wiring, int a, int b) {
  for (const Link& link : wiring.links) {
    if (link.from == a && link.to == b) return link;
  }
  throw std::runtime_error("no link");
}

TEST(ClusterFile, HostsTimesCountWithRailsLeavesAndSpines) {
  const Wiring wiring = read_cluster(R"(
[[host]]
template = "hgx-h100"
names = "n[001-006]"
per_rack = 2
out = "n004"
[network]
link = "InfiniBand NDR"
rails = true
[[level]]
hosts = 2
oversubscription = 2
[[level]]
switches = 4
)", "c.toml").wiring;
  EXPECT_EQ(hosts_of(wiring), 5);
  EXPECT_EQ(devices_of(wiring, DeviceKind::kGpu).size(), 40u);
  EXPECT_EQ(find_device(wiring, "n004", 3), -1);
  EXPECT_EQ(devices_of(wiring, DeviceKind::kSwitch).size(), 3u * 8 + 4);
  const int n005 = find_device(wiring, "n005", 3);
  ASSERT_GE(n005, 0);
  EXPECT_EQ(wiring.devices[static_cast<std::size_t>(n005)].rack, "rack2");
  // The host that is out keeps its place: n005 is under the third group's leaves, NIC 3 on rail 3.
  const int leaf = outside(wiring, "leaf2-rail3");
  ASSERT_GE(leaf, 0);
  EXPECT_DOUBLE_EQ(link_of(wiring, find_device(wiring, "NIC3", 3), leaf).beta, 48e9);
  EXPECT_EQ(wiring.devices[static_cast<std::size_t>(leaf)].rack, "rack2");
  // Two ports of 48 down, half of it up, over four spines.
  const int spine = outside(wiring, "spine3");
  EXPECT_NEAR(link_of(wiring, leaf, spine).beta, 2 * 48e9 / 2 / 4, 1);
  EXPECT_EQ(wiring.devices[static_cast<std::size_t>(spine)].level, 1);
}

TEST(ClusterFile, LeavesByRackMayBeUneven) {
  const Wiring wiring = read_cluster(R"(
[[host]]
template = "8x4090"
count = 3
rack = "a"
[[host]]
template = "8x4090"
count = 1
rack = "b"
[[level]]
by_rack = true
uplinks = 2
uplink = "100 GbE"
[[level]]
)", "c.toml").wiring;
  int in_a = 0, in_b = 0;
  for (const Link& link : wiring.links) {
    in_a += link.to == outside(wiring, "leaf0") && wiring.devices[static_cast<std::size_t>(link.from)].kind == DeviceKind::kNic;
    in_b += link.to == outside(wiring, "leaf1") && wiring.devices[static_cast<std::size_t>(link.from)].kind == DeviceKind::kNic;
  }
  EXPECT_EQ(in_a, 3);
  EXPECT_EQ(in_b, 1);
  EXPECT_NEAR(link_of(wiring, outside(wiring, "leaf1"), outside(wiring, "spine0")).beta, 2 * link_class("100 GbE").usable, 1);
}

TEST(ClusterFile, OverridesAndMeasuredFiguresHoldForTheirHostsOnly) {
  const Wiring wiring = read_cluster(R"(
[[host]]
template = "hgx-h100"
count = 3
[[override]]
hosts = "node1"
gpus_out = [7]
nics_out = [7]
link = "InfiniBand HDR"
[[measured]]
class = "InfiniBand NDR"
hosts = "node2"
beta_GBps = 45.5
alpha_us = 2.5
source = "a run"
)", "c.toml").wiring;
  EXPECT_EQ(devices_of(wiring, DeviceKind::kGpu, 1).size(), 7u);
  const int leaf = outside(wiring, "leaf0");
  EXPECT_EQ(find_device(wiring, "NIC7", 1), -1);
  EXPECT_DOUBLE_EQ(link_of(wiring, find_device(wiring, "NIC0", 0), leaf).beta, 48e9);
  EXPECT_EQ(link_of(wiring, find_device(wiring, "NIC0", 0), leaf).provenance, Provenance::kSpec);
  EXPECT_DOUBLE_EQ(link_of(wiring, find_device(wiring, "NIC0", 1), leaf).beta, 24e9);
  const Link& measured = link_of(wiring, leaf, find_device(wiring, "NIC0", 2));
  EXPECT_DOUBLE_EQ(measured.beta, 45.5e9);
  EXPECT_DOUBLE_EQ(measured.alpha, 2.5e-6);
  EXPECT_EQ(measured.provenance, Provenance::kMeasured);
  EXPECT_NE(measured.source.find("a run"), std::string::npos);
}

/// The switch that a NIC's port leads to.
std::string switch_of(const Wiring& wiring, const std::string& nic, int host) {
  const int device = find_device(wiring, nic, host);
  for (const Link& link : wiring.links) {
    if (link.from == device && wiring.devices[static_cast<std::size_t>(link.to)].kind == DeviceKind::kSwitch) return wiring.devices[static_cast<std::size_t>(link.to)].name;
  }
  return "";
}

// A NIC that is taken out is pulled from its rail; the others stay plugged in where they were.
TEST(ClusterFile, NicsKeepTheirRailsWhereOthersAreTakenOut) {
  const Wiring wiring = read_cluster(R"(
[[host]]
template = "hgx-h100"
count = 2
[[override]]
hosts = "node1"
nics_out = [0, 5]
[network]
rails = true
[[level]]
[[level]]
)", "c.toml").wiring;
  for (int nic = 0; nic < 8; ++nic) {
    const std::string name = "NIC" + std::to_string(nic), rail = "leaf0-rail" + std::to_string(nic);
    EXPECT_EQ(switch_of(wiring, name, 0), rail);
    EXPECT_EQ(switch_of(wiring, name, 1), nic == 0 || nic == 5 ? "" : rail);
  }
  // What is unplugged takes no uplink away.
  const int spine = outside(wiring, "spine0");
  EXPECT_DOUBLE_EQ(link_of(wiring, outside(wiring, "leaf0-rail0"), spine).beta, link_of(wiring, outside(wiring, "leaf0-rail1"), spine).beta);
}

TEST(ClusterFile, OverridesNumberTheWholeHost) {
  const auto gpus_left = [](const std::string& overrides) {
    const Wiring wiring = read_cluster("[[host]]\ntemplate = \"hgx-h100\"\n" + overrides, "c.toml").wiring;
    std::set<std::string> names;
    for (const int gpu : devices_of(wiring, DeviceKind::kGpu)) names.insert(wiring.devices[static_cast<std::size_t>(gpu)].name);
    return names;
  };
  const std::string of = "[[override]]\nhosts = \"node0\"\n";
  const std::set<std::string> expected{"GPU0", "GPU1", "GPU2", "GPU3", "GPU4", "GPU6"};
  EXPECT_EQ(gpus_left(of + "gpus_out = [5, 7]\n"), expected);
  EXPECT_EQ(gpus_left(of + "gpus_out = [5]\n" + of + "gpus_out = [7]\n"), expected);
  EXPECT_EQ(gpus_left(of + "gpus_out = [5, 7]\n" + of + "gpus_out = 5\n" + of + "nics_out = 0\n"), expected);
}

/// Hosts round each NVSwitch outside of hosts.
std::map<std::string, std::set<std::string>> domains(const std::string& text) {
  const Wiring wiring = read_cluster(text, "c.toml").wiring;
  std::map<int, std::string> names;
  for (const int host : devices_of(wiring, DeviceKind::kHost)) names[wiring.devices[static_cast<std::size_t>(host)].host] = wiring.devices[static_cast<std::size_t>(host)].name;
  std::map<std::string, std::set<std::string>> found;
  for (const Link& link : wiring.links) {
    const Device& to = wiring.devices[static_cast<std::size_t>(link.to)];
    if (to.kind == DeviceKind::kNvSwitch && to.host == -1) found[to.name].insert(names[wiring.devices[static_cast<std::size_t>(link.from)].host]);
  }
  return found;
}

// A tray that is out leaves a gap in its own rack: those of the next rack have other NVSwitches.
TEST(ClusterFile, RacksOfNvlinkStayApartWhereTraysAreMissing) {
  const std::string two_racks = "[[host]]\ntemplate = \"gb200-nvl72\"\ncount = 36\nprefix = \"t\"\n";
  for (const std::string& more : {std::string("out = \"t[3,17]\"\n"), std::string("per_rack = 18\nout = \"t[3,17]\"\n"), std::string("[[override]]\nhosts = \"t[3,17]\"\nout = true\n"),
                                  std::string("[[override]]\nhosts = \"t[3,17]\"\ngpus_out = [0, 1, 2, 3]\n")}) {
    const auto found = domains(two_racks + more);
    ASSERT_EQ(found.size(), 2u) << more;
    EXPECT_EQ(found.at("nvswitch0").size(), 16u) << more;
    EXPECT_EQ(found.at("nvswitch1").size(), 18u) << more;
    EXPECT_TRUE(found.at("nvswitch1").contains("t18")) << more;
  }
  // A rack with fewer trays than its NVSwitches could join is a rack all the same.
  const auto small = domains("[[host]]\ntemplate = \"gb200-nvl72\"\ncount = 32\nper_rack = 16\n");
  ASSERT_EQ(small.size(), 2u);
  EXPECT_EQ(small.at("nvswitch0").size(), 16u);
  EXPECT_EQ(small.at("nvswitch1").size(), 16u);
}

TEST(ClusterFile, NothingIsTakenAndNotDone) {
  const std::string host = "[[host]]\ntemplate = \"hgx-h100\"\n", of = host + "[[override]]\nhosts = \"node0\"\n";
  const std::string box = "[gpus]\ncount = 2\n[[nics]]\nlink = \"100 GbE\"\n[[bridge]]\ngpus = [0, 1]\nnics = [0]\n";
  const std::vector<std::pair<std::string, std::string>> cases{
      {of, "this override changes nothing"},
      {of + "link = \"NVLink 4\"\n", "c.toml:5:1: NVLink 4 is no network"},
      {host + "names = []\n", "names lists no host"},
      {host + "names = \"\"\n", "names lists no host"},
      {host + "per_rack = 2.0\n", "not 2.0."},
      {host + "[[level]]\nby_rack = true\n", "c.toml:4:1: node0 is in no rack"},
      {host + "[[templat]]\nname = \"x\"\n", "c.toml:3:3: there is no key templat here. Did you mean template?"},
      {host + "[[measured]]\nclass = \"InfiniBand NDR\"\nbeta_Gbps = 400\n", "c.toml:5:1: there is no key beta_Gbps here. Did you mean beta_GBps?"},
      {box + "[[numa]]\ncpus = \"abc\"\n", "c.toml:9:1: \"abc\" lists no CPUs"},
      {box + "[[numa]]\ncpus = \"23-0\"\n", "lists no CPUs"},
      {box + "[[numa]]\ncpus = \"0-99999999999\"\n", "lists no CPUs"},
      {box + "[[numa]]\ncpus = \"-3\"\n", "lists no CPUs"},
      {box + "[[numa]]\ncpus = \"0-3,,7\"\n", "lists no CPUs"},
      {box + "[nvlink]\ngeneration = 3\npairs = [[0, 1, 2], [1, 0, 2]]\n", "the pair of GPU 0 and GPU 1 stands there twice"},
      {box + "[nvlink]\ngeneration = 3\nswitch = \"host\"\n", "[nvlink] needs links"},
      {box + "[nvlink]\ngeneration = 3\nlinks = 12\nswitch = \"host\"\npairs = [[0, 1, 2]]\n", "either a switch or pairs"},
      {box + "[nvlink]\ngeneration = 3\nlinks = 12\npairs = [[0, 1, 2]]\n", "links goes with a switch"},
      {box + "[nvlink]\ngeneration = 3\nnvls = true\npairs = [[0, 1, 2]]\n", "nvls goes with a switch"},
      {box + "[nvlink]\nlinks = 12\nswitch = \"rack\"\n", "needs hosts"},
      {box + "[nvlink]\nlinks = 12\nswitch = \"host\"\nhosts = 3\n", "hosts goes with switch = \"rack\""},
      {box + "[nvlink]\nlink = \"NVLink 4\"\ngeneration = 4\npairs = [[0, 1, 2]]\n", "either a link or a generation"},
      {"[gpus]\ncount = 2\npci = [\"0000:01:00.0\"]\n[[bridge]]\ngpus = [0, 1]\n", "pci lists 1 addresses, but count is 2"},
      {"[gpus]\nhost_link = \"NVLink-C2C\"\nlanes = 8\n[[bridge]]\ngpus = [0]\n", "what hangs on NVLink-C2C has no lanes of its own"},
      {"[gpus]\n[[nics]]\ncount = 2\nlink = \"100 GbE\"\nnames = [\"eth0\"]\n[[bridge]]\ngpus = [0]\nnics = [0, 1]\n", "names lists 1 NICs, but count is 2"},
      {"[gpus]\n[[nic]]\nlink = \"100 GbE\"\n[[bridge]]\ngpus = [0]\nnics = [0]\n", "c.toml:2:3: there is no key nic here. Did you mean nics?"},
  };
  for (const auto& [text, expected] : cases) EXPECT_NE(refused(text).find(expected), std::string::npos) << text << refused(text);
}

TEST(ClusterFile, CpusMayHaveBlanksBetween) {
  const Wiring wiring = read_cluster("[gpus]\n[[numa]]\ncpus = \"0-23, 48-71\"\n[[bridge]]\ngpus = [0]\n", "c.toml").wiring;
  EXPECT_EQ(wiring.devices[static_cast<std::size_t>(find_device(wiring, "GPU0", 0))].cpus, "0-23,48-71");
}

// 400 is what the port is called by, in Gbit/s.
TEST(ClusterFile, MeasuredFiguresBeyondTheStandardAreNoted) {
  const auto notes = [](const std::string& beta) {
    return read_cluster("[[host]]\ntemplate = \"hgx-h100\"\ncount = 2\n[network]\n[[measured]]\nclass = \"InfiniBand NDR\"\nbeta_GBps = " + beta + "\n", "c.toml").notes;
  };
  EXPECT_TRUE(notes("49").empty());
  ASSERT_EQ(notes("400").size(), 1u);
  EXPECT_EQ(notes("400").front().line, 5);
  EXPECT_NE(notes("400").front().text.find("faster than the 50 GB/s"), std::string::npos) << notes("400").front().text;
}

TEST(ClusterFile, RefusesWithPlaceAndNearestWord) {
  const std::string host = "[[host]]\ntemplate = \"dgx-1\"\n";
  EXPECT_NE(refused(host + "cuont = 2\n").find("c.toml:3:1: there is no key cuont here. Did you mean count?"), std::string::npos) << refused(host + "cuont = 2\n");
  EXPECT_NE(refused("[[hots]]\ntemplate = \"dgx-1\"\n").find("Did you mean host?"), std::string::npos) << refused("[[hots]]\ntemplate = \"dgx-1\"\n");
  EXPECT_NE(refused("[[host]]\ntemplate = \"dgx-a10\"\n").find("c.toml:2:1: there is no kind of host named dgx-a10. Did you mean dgx-a100?"), std::string::npos);
  EXPECT_NE(refused(host + "count = 0\n").find("c.toml:3:1: count must be a whole number from 1"), std::string::npos);
  EXPECT_NE(refused(host + "count = \"two\"\n").find("not \"two\""), std::string::npos);
  EXPECT_NE(refused(host + "[network]\nlink = \"Infiniband NDR\"\n").find("Did you mean InfiniBand NDR?"), std::string::npos);
  EXPECT_NE(refused(host + "[network]\nlink = \"PCIe 4\"\n").find("is no network"), std::string::npos);
  EXPECT_NE(refused(host + "names = \"a[1-2\"\n").find("c.toml:3:1"), std::string::npos);
  EXPECT_NE(refused(host + "names = \"a,a\"\n").find("two hosts are named a"), std::string::npos);
  EXPECT_NE(refused(host + "count = 4\n[[level]]\nhosts = 2\n").find("nothing joins the 2 groups of level leaf"), std::string::npos);
  EXPECT_NE(refused(host + "count = 4\n[[level]]\noversubscription = 2\n").find("nothing above"), std::string::npos);
  const std::string levels = host + "count = 4\n[[level]]\nhosts = 2\n[[level]]\nname = \"fabric\"\ngroups = 1\n[[level]]\nname = \"fabric\"\n";
  EXPECT_NE(refused(levels).find("two hosts or switches are named fabric0"), std::string::npos) << refused(levels);
  EXPECT_NE(refused("[[host]]\ntemplate = \"dgx-1\"\nnames = \"leaf0\"\n[[level]]\n").find("two hosts or switches are named leaf0"), std::string::npos);
  EXPECT_NE(refused("[[host]\n").find("c.toml:1:"), std::string::npos);
  EXPECT_NE(refused("x = 1\n").find("c.toml:1:1: there is no key x"), std::string::npos);
  EXPECT_NE(refused("name = \"x\"\n").find("describes no host"), std::string::npos);
  EXPECT_NE(refused("[gpus]\ncount = 2\n[[bridge]]\ngpus = [0]\n").find("GPU 1 hangs on no bridge"), std::string::npos);
  EXPECT_NE(refused("[gpus]\ncount = 2\n[[bridge]]\ngpus = [0, 0, 1]\n").find("c.toml:4:1: GPU 0 hangs in two places"), std::string::npos);
  EXPECT_NE(refused("[gpus]\n[[bridge]]\ngpus = [1]\n").find("there is no GPU 1"), std::string::npos);
  EXPECT_NE(refused("[gpus]\n[[bridge]]\nnuma = 3\n[[numa]]\nnode = 0\n").find("there is no NUMA node 3"), std::string::npos);
  EXPECT_NE(refused("[gpus]\ncount = 2\n[nvlink]\npairs = [[0, 2, 1]]\n[[bridge]]\ngpus = [0, 1]\n").find("[0, 2, 1] is no pair"), std::string::npos);
  EXPECT_EQ(refused("[[measured]]\nclass = \"PCIe 3\"\n" + host).find("accepted"), std::string::npos);
  EXPECT_EQ(refused("[[override]]\nhosts = \"x\"\n" + host).find("accepted"), std::string::npos);
}

// Description, edges of the tree, and relations of the GPUs as their makers publish them.
TEST(ShippedMachines, AreReadAndHaveSources) {
  for (const ShippedMachine& machine : shipped_machines()) {
    const auto reading = read_shipped(machine.name);
    ASSERT_TRUE(reading.has_value());
    EXPECT_FALSE(machine.about.empty()) << machine.name;
    EXPECT_TRUE(reading->notes.empty()) << machine.name << ": " << reading->notes.front().text;
    EXPECT_TRUE(std::any_of(reading->facts.begin(), reading->facts.end(), [](const Fact& fact) { return fact.name == "source"; })) << machine.name;
    const Relations relations(reading->wiring);
    for (int host = 0; host < hosts_of(reading->wiring); ++host) {
      std::vector<int> ends = devices_of(reading->wiring, DeviceKind::kGpu, host);
      const std::vector<int> nics = devices_of(reading->wiring, DeviceKind::kNic, host);
      ends.insert(ends.end(), nics.begin(), nics.end());
      for (int a : ends) {
        for (int b : ends) EXPECT_NE(name_of(relations.between(a, b)), "?") << machine.name;
      }
    }
  }
  EXPECT_GE(shipped_machines().size(), 24u);
  for (const EmbeddedFile& file : embedded_files()) EXPECT_EQ(file.text.find("from memory"), std::string_view::npos) << file.name;
}

TEST(ShippedMachines, HaveTheirGpusNicsAndNvlinks) {
  struct Case {
    const char* name;
    std::size_t gpus, nics;
    double nvlink_gbyte, network_gbyte;  // of one GPU's NVLinks, and of a host's NICs, per direction, as the standard says
  };
  for (const Case& one : {Case{"dgx-1", 8, 4, 150, 50}, Case{"dgx-2", 16, 8, 150, 100}, Case{"dgx-a100", 8, 8, 300, 200}, Case{"hgx-h100", 8, 8, 450, 400},
                          Case{"hgx-h200", 8, 8, 450, 400}, Case{"hgx-b200", 8, 8, 900, 400}, Case{"gb200-nvl72", 4, 4, 900, 200}, Case{"4x3090", 4, 1, 56.25, 1.25},
                          Case{"8x4090", 8, 1, 0, 3.125}, Case{"aws-p4d", 8, 4, 300, 50}, Case{"aws-p5", 8, 32, 450, 400}, Case{"aws-p5en", 8, 16, 450, 400},
                          Case{"aws-p6-b200", 8, 8, 900, 400}, Case{"azure-ndv2", 8, 1, 150, 12.5}, Case{"azure-ndv4", 8, 8, 300, 200}, Case{"azure-ndv5", 8, 8, 450, 400}}) {
    const Wiring wiring = shipped(one.name);
    EXPECT_EQ(devices_of(wiring, DeviceKind::kGpu).size(), one.gpus) << one.name;
    EXPECT_EQ(devices_of(wiring, DeviceKind::kNic).size(), one.nics) << one.name;
    for (int gpu : devices_of(wiring, DeviceKind::kGpu)) {
      double nvlink = 0;
      for (const Link& link : wiring.links) nvlink += link.from == gpu && link.kind == LinkKind::kNvlink ? link.spec : 0;
      EXPECT_DOUBLE_EQ(nvlink / 1e9, one.nvlink_gbyte) << one.name;
    }
    double network = 0;
    for (int nic : devices_of(wiring, DeviceKind::kNic)) network += link_class(std::string_view(wiring.devices[static_cast<std::size_t>(nic)].model)).spec;
    EXPECT_DOUBLE_EQ(network / 1e9, one.network_gbyte) << one.name;
  }
}

TEST(ShippedMachines, AnNvl72RackIsOneDomainOfNvlink) {
  const Wiring wiring = shipped("gb200-nvl72-rack");
  const std::vector<int> gpus = devices_of(wiring, DeviceKind::kGpu);
  ASSERT_EQ(gpus.size(), 72u);
  const Relations relations(wiring);
  const Paths paths(wiring);
  for (int other : {1, 4, 71}) {
    EXPECT_EQ(name_of(relations.between(gpus[0], gpus[static_cast<std::size_t>(other)])), "NV18");
    EXPECT_NEAR(paths.find(gpus[0], gpus[static_cast<std::size_t>(other)]).value().bandwidth, 18 * 40.1e9, 1);
  }
}

TEST(ShippedMachines, SixteenThousandGpusAreBuiltAtOnceInMemoryInProportion) {
  const Reading reading = read_cluster("[[host]]\ntemplate = \"hgx-h100\"\ncount = 2048\n[network]\nrails = true\n[[level]]\nhosts = 32\n[[level]]\nswitches = 16\n", "c.toml");
  EXPECT_EQ(devices_of(reading.wiring, DeviceKind::kGpu).size(), 16384u);
  EXPECT_LT(reading.wiring.devices.size(), 2048u * 40);
  EXPECT_LT(reading.wiring.links.size(), 2048u * 120);
}

// Topology files of the clouds' own images: which GPU and NIC share a NUMA node and a PCIe switch.
struct Published {
  std::map<std::string, std::pair<int, std::string>> place;  // bus id: NUMA node, switch's bus id
  std::vector<std::string> gpus, nics;                        // in the order of bus ids
};

Published published(const std::string& path) {
  pugi::xml_document document;
  Published found;
  if (!document.load_file(path.c_str())) return found;
  for (const pugi::xml_node cpu : document.child("system").children("cpu")) {
    const auto visit = [&](auto&& self, const pugi::xml_node at, const std::string& above) -> void {
      for (const pugi::xml_node pci : at.children("pci")) {
        const std::string kind = pci.attribute("class").value(), id = pci.attribute("busid").value();
        found.place[id] = {cpu.attribute("numaid").as_int(), above};
        if (kind == "0x030200") found.gpus.push_back(id);
        if (kind == "0x020700" || kind == "0x020000") found.nics.push_back(id);
        self(self, pci, id);
      }
    };
    visit(visit, cpu, "");
  }
  return found;
}

TEST(ShippedMachines, AgreeWithTheTopologyFilesOfTheClouds) {
  WIREWISE_NEEDS_FIELD();
  for (const auto& [file, name] : {std::pair{"aws-p4d-24xl-topo.xml", "aws-p4d"}, std::pair{"azure-ndv2-topo.xml", "azure-ndv2"},
                                   std::pair{"azure-ndv4-topo.xml", "azure-ndv4"}, std::pair{"azure-ndv5-topo.xml", "azure-ndv5"}}) {
    const Published stated = published(field::path(std::string("ncclxml/") + file));
    const Wiring wiring = shipped(name);
    const std::vector<int> gpus = devices_of(wiring, DeviceKind::kGpu), nics = devices_of(wiring, DeviceKind::kNic);
    ASSERT_EQ(stated.gpus.size(), gpus.size()) << file;
    ASSERT_EQ(stated.nics.size(), nics.size()) << file;
    // Devices are numbered by bus id, and bus ids in turn as the file's system numbers them: sorted.
    auto ids = stated;
    std::sort(ids.gpus.begin(), ids.gpus.end());
    std::sort(ids.nics.begin(), ids.nics.end());
    const Relations relations(wiring);
    std::vector<std::pair<std::string, int>> all;
    for (std::size_t i = 0; i < gpus.size(); ++i) all.emplace_back(ids.gpus[i], gpus[i]);
    for (std::size_t i = 0; i < nics.size(); ++i) all.emplace_back(ids.nics[i], nics[i]);
    for (const auto& [id, device] : all) {
      EXPECT_EQ(wiring.devices[static_cast<std::size_t>(device)].numa, stated.place.at(id).first) << file << " " << id;
      for (const auto& [other, second] : all) {
        if (id == other) continue;
        const auto a = stated.place.at(id), b = stated.place.at(other);
        const Connection near = relations.between(device, second).pcie;
        if (a.first != b.first) {
          EXPECT_EQ(near, Connection::kSys) << file << " " << id << " " << other;
        } else if (!a.second.empty() && a.second == b.second) {
          EXPECT_EQ(near, Connection::kPix) << file << " " << id << " " << other;
        } else {
          EXPECT_TRUE(near == Connection::kPhb || near == Connection::kNode) << file << " " << id << " " << other;
        }
      }
    }
  }
}

// As the matrix that someone printed has it.
TEST(ShippedMachines, Dgx1IsTheHybridCubeMesh) {
  const Wiring wiring = shipped("dgx-1");
  const Relations relations(wiring);
  const char* const rows[] = {"X NV1 NV1 NV2 NV2 SYS SYS SYS PIX PHB SYS SYS", "NV1 X NV2 NV1 SYS NV2 SYS SYS PIX PHB SYS SYS", "NV1 NV2 X NV2 SYS SYS NV1 SYS PHB PIX SYS SYS",
                              "NV2 NV1 NV2 X SYS SYS SYS NV1 PHB PIX SYS SYS", "NV2 SYS SYS SYS X NV1 NV1 NV2 SYS SYS PIX PHB", "SYS NV2 SYS SYS NV1 X NV2 NV1 SYS SYS PIX PHB",
                              "SYS SYS NV1 SYS NV1 NV2 X NV2 SYS SYS PHB PIX", "SYS SYS SYS NV1 NV2 NV1 NV2 X SYS SYS PHB PIX"};
  std::vector<int> ends = devices_of(wiring, DeviceKind::kGpu);
  const std::vector<int> nics = devices_of(wiring, DeviceKind::kNic);
  ends.insert(ends.end(), nics.begin(), nics.end());
  for (std::size_t i = 0; i < 8; ++i) {
    std::istringstream row(rows[i]);
    for (int end : ends) {
      std::string cell;
      row >> cell;
      EXPECT_EQ(name_of(relations.between(ends[i], end)), cell) << i;
    }
  }
}

TEST(LinkClasses, NvlinkFourIsFourteenTimesPcieFourNotTwentyEight) {
  const LinkClass& nvlink = link_class("NVLink 4");
  const LinkClass& pcie = link_class("PCIe 4");
  const double per_direction = nvlink.spec * nvlink.full / (pcie.spec * pcie.full);
  EXPECT_NEAR(per_direction, 14.3, 0.1);
  EXPECT_NEAR(nvlink.advertised_gbyte / (pcie.spec * pcie.full / 1e9), 28.6, 0.1);  // the comparison that misleads
  EXPECT_NEAR(nvlink.advertised_gbyte / pcie.advertised_gbyte, per_direction, 0.1);
}

TEST(LinkClasses, AchievableIsNoMoreThanSpecAndAdvertisedIsBothDirections) {
  std::set<std::string> names;
  for (const LinkClass& of : link_classes()) {
    EXPECT_TRUE(names.insert(of.name).second) << of.name;
    EXPECT_GT(of.usable, 0) << of.name;
    EXPECT_LE(of.usable, of.spec) << of.name;
    EXPECT_NEAR(of.advertised_gbyte, 2 * of.spec * of.full / 1e9, 0.01 * of.advertised_gbyte) << of.name;
    EXPECT_FALSE(of.source.empty()) << of.name;
  }
}

TEST(ClusterFile, NoTextBreaksTheReader) {
  std::vector<std::string> samples;
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name != "links.toml") samples.emplace_back(file.text);
  }
  samples.emplace_back("[[host]]\ntemplate = \"dgx-1\"\nnames = \"n[1-4]\"\nout = \"n2\"\n[[override]]\nhosts = \"n1\"\ngpus_out = [1]\n[network]\nnics = 1\n[[level]]\nby_rack = true\n"
                       "[[switch]]\nname = \"s\"\nkind = \"switch\"\n[[link]]\na = [\"n1\", \"NIC0\"]\nb = \"s\"\nclass = \"25 GbE\"\n[[measured]]\nclass = \"PCIe 3\"\nalpha_us = 1\n");
  const std::vector<std::string> words{"[[host]]\n", "999999999999", "-1", "\"", "[", "]", "{", "}", "nan", "1e308", "hosts = 1\n", "count = 200000\n", "[[level]]\n", "\xff", std::string(1, '\0'), "''' "};
  fuzz::run(samples, words, [](const std::string& text) { fuzz::expect_sound(read_cluster(text, "fuzz.toml")); }, 1500);
}

}  // namespace
}  // namespace wirewise
