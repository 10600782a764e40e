// Graphs written as cluster.toml and as SVG: what is written back is the same machine; the picture is well-formed, holds every device once,
// and no name gets out of its text.
#include <gtest/gtest.h>
#include <pugixml.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "wirewise/wiring/cluster_file.h"
#include "wirewise/wiring/relation.h"
#include "wirewise/wiring/write.h"

namespace wirewise {
namespace {

std::string key(const Wiring& wiring, int device) {
  const Device& one = wiring.devices[static_cast<std::size_t>(device)];
  const std::vector<int> host = one.host < 0 ? std::vector<int>{} : devices_of(wiring, DeviceKind::kHost, one.host);
  return (host.empty() ? "" : wiring.devices[static_cast<std::size_t>(host.front())].name) + "/" + one.name;
}

std::multimap<std::pair<std::string, std::string>, Link> links_by_name(const Wiring& wiring) {
  std::multimap<std::pair<std::string, std::string>, Link> all;
  for (const Link& link : wiring.links) all.insert({{key(wiring, link.from), key(wiring, link.to)}, link});
  return all;
}

void expect_same(const Wiring& before, const Wiring& after, const std::string& what) {
  ASSERT_EQ(before.devices.size(), after.devices.size()) << what;
  std::map<std::string, int> place;
  for (std::size_t i = 0; i < after.devices.size(); ++i) place[key(after, static_cast<int>(i))] = static_cast<int>(i);
  const Relations was(before), is(after);
  for (std::size_t i = 0; i < before.devices.size(); ++i) {
    const Device& a = before.devices[i];
    const auto found = place.find(key(before, static_cast<int>(i)));
    ASSERT_NE(found, place.end()) << what << " " << a.name;
    const Device& b = after.devices[static_cast<std::size_t>(found->second)];
    EXPECT_TRUE(a.kind == b.kind && a.numa == b.numa && a.level == b.level && a.placed == b.placed && a.pci == b.pci && a.model == b.model && a.cpus == b.cpus &&
                a.rack == b.rack && a.memory == b.memory && a.nvls == b.nvls)
        << what << " " << a.name;
    for (std::size_t j = 0; j < std::min<std::size_t>(before.devices.size(), 60); ++j) {
      EXPECT_EQ(name_of(was.between(static_cast<int>(i), static_cast<int>(j))), name_of(is.between(found->second, place.at(key(before, static_cast<int>(j)))))) << what;
    }
  }
  const auto first = links_by_name(before), second = links_by_name(after);
  ASSERT_EQ(first.size(), second.size()) << what;
  for (auto a = first.begin(), b = second.begin(); a != first.end(); ++a, ++b) {
    ASSERT_EQ(a->first, b->first) << what;
    EXPECT_EQ(a->second.kind, b->second.kind) << what;
    EXPECT_NEAR(a->second.beta, b->second.beta, 1e-9 * a->second.beta) << what;
    EXPECT_NEAR(a->second.alpha, b->second.alpha, 1e-15) << what;
    EXPECT_NEAR(a->second.spec, b->second.spec, 1e-9 * a->second.spec) << what;
    EXPECT_EQ(a->second.provenance, b->second.provenance) << what;
    EXPECT_EQ(a->second.source, b->second.source) << what;
    EXPECT_EQ(a->second.lanes, b->second.lanes) << what;
    EXPECT_EQ(a->second.generation, b->second.generation) << what;
  }
}

std::vector<std::pair<std::string, Wiring>> machines() {
  std::vector<std::pair<std::string, Wiring>> all;
  for (const ShippedMachine& machine : shipped_machines()) all.emplace_back(machine.name, read_shipped(machine.name).value().wiring);
  const std::string folder = WIREWISE_SOURCE_DIR "/../shared/field/topo/";
  for (const char* file : {"dgx1-v100-msccl-tabs.txt", "3gpu-a6000-nv4-bridge-plus-node.txt", "h100-8gpu-9nic-nccl1453-last-rows-missing.txt", "dgx-a100-40gb-12nic-nccl1505-first-rows.txt"}) {
    if (std::ifstream(folder + file)) all.emplace_back(file, read_wiring_file(folder + file).wiring);
  }
  all.emplace_back("cores", wire_hosts({0, 0, 1, 1}));
  return all;
}

const std::string kHostile = "\"></text><script>alert(1)</script>\n\x1b[31m\xff]]>'&$(rm)";

TEST(WriteCluster, ReadsBackToTheSameDevicesRelationsAndLinks) {
  for (const auto& [name, wiring] : machines()) expect_same(wiring, read_cluster(write_cluster(wiring), name).wiring, name);
}

TEST(WriteCluster, OneWayLinksAndQuotedNamesSurvive) {
  Wiring wiring = one_host(2);
  wiring.devices[0].name = "a \"host\", [1-3] \\ of $(mine)\n";
  wiring.links.pop_back();
  wiring.links[0].beta *= 0.3;
  expect_same(wiring, read_cluster(write_cluster(wiring), "x.toml").wiring, "one way");
}

struct Rectangle {
  double x, y, right, bottom;
  std::string kind, title;
};

std::vector<Rectangle> rectangles(const pugi::xml_document& document) {
  std::vector<Rectangle> all;
  for (const pugi::xml_node rect : document.child("svg").children("rect")) {
    const double x = rect.attribute("x").as_double(), y = rect.attribute("y").as_double();
    all.push_back({x, y, x + rect.attribute("width").as_double(), y + rect.attribute("height").as_double(), rect.attribute("class").value(), rect.child("title").text().get()});
  }
  return all;
}

TEST(WriteSvg, IsWellFormedAndItsBoxesLieApartOrWithinEachOther) {
  for (const auto& [name, wiring] : machines()) {
    pugi::xml_document document;
    ASSERT_TRUE(document.load_string(write_svg(wiring).c_str())) << name;
    const auto boxes = rectangles(document);
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const Rectangle &a = boxes[i], &b = boxes[j];
        const bool apart = a.right <= b.x || b.right <= a.x || a.bottom <= b.y || b.bottom <= a.y;
        const bool within = a.x >= b.x && a.right <= b.right && a.y >= b.y && a.bottom <= b.bottom;  // a box comes after what it lies in
        EXPECT_TRUE(apart || within) << name << ": " << a.title << " and " << b.title;
      }
      EXPECT_TRUE(boxes[i].x >= 0 && boxes[i].y >= 0) << name;
    }
  }
}

TEST(WriteSvg, EveryDeviceOfAHostIsDrawnOnce) {
  for (const auto& [name, wiring] : machines()) {
    if (hosts_of(wiring) != 1) continue;
    pugi::xml_document document;
    ASSERT_TRUE(document.load_string(write_svg(wiring).c_str()));
    EXPECT_EQ(rectangles(document).size(), wiring.devices.size()) << name;
  }
}

/// 16 kinds of hosts under leaves and spines.
Wiring sixteen_kinds() {
  std::string text;
  for (const char* kind : {"4x3090", "8x4090", "8xl40s", "aws-g5-48xl", "aws-p4d", "azure-ndv2", "azure-ndv4", "azure-ndv5", "dgx-1", "dgx-a100", "dgx-h100", "gcp-a2-highgpu-8g", "hgx-b200", "hgx-h200",
                           "workstation-10gbe", "workstation-25gbe"}) {
    text += std::string("[[host]]\ntemplate = \"") + kind + "\"\nnames = [\"of-" + kind + "\"]\n";
  }
  return read_cluster(text + "[network]\nlink = \"InfiniBand HDR\"\n[[level]]\nhosts = 4\n[[level]]\nswitches = 2\n", "f").wiring;
}

TEST(WriteSvg, ManyKindsOfHostsStandInRowsAsWideAsAScreen) {
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(write_svg(sixteen_kinds()).c_str()));
  EXPECT_LE(document.child("svg").attribute("width").as_double(), 1700);
  std::set<double> rows;
  int hosts = 0;
  for (const Rectangle& box : rectangles(document)) {
    if (box.kind != "host" || !box.title.starts_with("of-")) continue;
    rows.insert(box.y);
    ++hosts;
  }
  EXPECT_EQ(hosts, 16);
  EXPECT_GE(rows.size(), 8U);
}

/// Out of its port a line goes up to the gap above its row, beside all hosts to the top, and bends to its switch there: across no host but its own.
TEST(WriteSvg, LinesOfLowerRowsPassBesideTheHostsAbove) {
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(write_svg(sixteen_kinds()).c_str()));
  std::vector<Rectangle> hosts;
  for (const Rectangle& box : rectangles(document)) {
    if (box.kind == "host" && box.title.starts_with("of-")) hosts.push_back(box);
  }
  int lanes = 0;
  for (const pugi::xml_node path : document.child("svg").children("path")) {
    double x = 0, y = 0, gap = 0, lane = 0, top = 0;
    if (std::sscanf(path.attribute("d").value(), "M%lf %lf V%lf H%lf V%lf", &x, &y, &gap, &lane, &top) != 5) continue;
    ++lanes;
    for (const Rectangle& host : hosts) {
      const bool across = gap > host.y && gap < host.bottom, along = lane > host.x && lane < host.right;
      EXPECT_FALSE(across || along) << host.title;
      const bool own = x > host.x && x < host.right && y > host.y && y < host.bottom;
      EXPECT_TRUE(own || x < host.x || x > host.right || y < host.y || gap > host.bottom) << host.title;
    }
  }
  EXPECT_GT(lanes, 16);
}

TEST(WriteSvg, NamesOfHostsThatBeginLikeTheirDevicesMakeNoKinds) {
  const std::string svg = write_svg(read_cluster("[[host]]\ntemplate = \"dgx-1\"\nnames = [\"a\", \"b\", \"GPU\", \"s\"]\n", "f").wiring);
  EXPECT_NE(svg.find("4 hosts like a"), std::string::npos);
}

TEST(WriteSvg, TheLegendSaysEachThingOnce) {
  auto all = machines();
  all.emplace_back("sixteen", sixteen_kinds());
  for (const auto& [name, wiring] : all) {
    pugi::xml_document document;
    ASSERT_TRUE(document.load_string(write_svg(wiring).c_str()));
    std::set<std::string> said;
    bool legend = false;
    for (const pugi::xml_node text : document.child("svg").children("text")) {
      const std::string words = text.text().get();
      EXPECT_TRUE(!legend || said.insert(words).second) << name << ": " << words;
      legend = legend || words == "per direction:";
    }
  }
}

TEST(WriteSvg, AlikeHostsAreOneBoxThatSaysHowMany) {
  const std::string svg = write_svg(read_shipped("512-h100").value().wiring);
  EXPECT_LT(svg.size(), 200'000u);
  EXPECT_NE(svg.find("64 hosts like node0"), std::string::npos);
}

TEST(WriteSvg, NoHostileNameGetsThrough) {
  Wiring wiring = read_shipped("dgx-1").value().wiring;
  for (Device& device : wiring.devices) device.name = device.model = device.pci = device.cpus = device.rack = kHostile + device.name;
  for (Link& link : wiring.links) link.source = kHostile;
  const std::string svg = write_svg(wiring);
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(svg.c_str()));
  EXPECT_TRUE(document.select_nodes("//script").empty());
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_EQ(svg.find('\x1b'), std::string::npos);
  EXPECT_EQ(svg.find('\xff'), std::string::npos);
}

}  // namespace
}  // namespace wirewise
