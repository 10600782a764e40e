// A graph written as NCCL's topology file is read back to the same graph; and our own dump to the very same reading.
#include "wirewise/wiring/write.h"

#include <algorithm>
#include <map>
#include <utility>

#include "wirewise/wiring/cluster_file.h"
#include "wiring/field.h"

namespace wirewise {
namespace {

/// Relations of all GPUs and NICs by name, and every link but those that the writer makes up names for.
std::map<std::string, std::string> told(const Reading& reading) {
  std::map<std::string, std::string> all;
  const Wiring& wiring = reading.wiring;
  std::vector<int> ends = devices_of(wiring, DeviceKind::kGpu);
  const std::vector<int> nics = devices_of(wiring, DeviceKind::kNic);
  ends.insert(ends.end(), nics.begin(), nics.end());
  const Relations relations(wiring);
  for (int a : ends) {
    const Device& device = wiring.devices[static_cast<std::size_t>(a)];
    all[device.name] = device.pci + " numa " + std::to_string(device.numa) + " " + device.model;
    for (int b : ends) all[device.name + "-" + wiring.devices[static_cast<std::size_t>(b)].name] = name_of(relations.between(a, b));
  }
  for (const Link& link : wiring.links) {
    const Device &from = wiring.devices[static_cast<std::size_t>(link.from)], &to = wiring.devices[static_cast<std::size_t>(link.to)];
    all[std::to_string(from.host) + from.name + ">" + to.name] = link.source + " x" + std::to_string(link.lanes) + " " + std::to_string(link.beta) + " " + std::to_string(link.spec);
  }
  return all;
}

TEST(WriteNcclXml, ReadBackItIsTheSame) {
  WIREWISE_NEEDS_FIELD();
  const std::vector<std::string> files = field::files("ncclxml");
  int written = 0;
  for (const std::string& file : files) {
    const Reading reading = read_wiring(*field::text(file), file);
    if (reading.wiring.devices.empty()) {  // orders, not wires
      EXPECT_THROW((void)write_nccl_xml(reading), Error) << file;
      continue;
    }
    const std::string text = write_nccl_xml(reading).text;
    EXPECT_EQ(text.find(" />"), std::string::npos) << "NCCL's parser stumbles";
    EXPECT_EQ(text.find("version=\"2\"") != std::string::npos, file.find("rccl") != std::string::npos) << file;
    const Reading again = read_wiring(text, "written");
    EXPECT_EQ(told(again), told(reading)) << file << "\n" << text;
    EXPECT_EQ(again.partial, file.find("nccl1505") != std::string::npos) << file;  // of which a part has no known place
    EXPECT_EQ(write_nccl_xml(again).text, text) << file;
    ++written;
  }
  EXPECT_GE(written, 16);
}

TEST(WriteNcclXml, HostileNamesStayData) {
  const Reading reading = read_wiring(
      "<system><cpu numaid='0'><pci busid='0000:01:00.0' class='0x020000'><nic><net name='&lt;a b=&quot;c&quot;&gt;&amp;$(x)' dev='0' speed='1000'/></nic></pci></cpu></system>", "f");
  EXPECT_EQ(field::count(reading, DeviceKind::kNic), 1U);
  const std::string text = write_nccl_xml(reading).text;
  EXPECT_EQ(text.find("<a b"), std::string::npos);
  const Reading again = read_wiring(text, "f");
  EXPECT_NE(find_device(again.wiring, "<a b=\"c\">&$(x)"), -1);
}

/// The values of an attribute of all elements of a name, in order; "none" where one hasn't it.
std::vector<std::string> values(const std::string& xml, const std::string& element, const std::string& attribute) {
  std::vector<std::string> found;
  for (std::size_t at = xml.find("<" + element + " "); at != std::string::npos; at = xml.find("<" + element + " ", at + 1)) {
    const std::string tag = xml.substr(at, xml.find('>', at) - at);
    const std::string sign = " " + attribute + "=\"";
    const std::size_t begin = tag.find(sign);
    found.push_back(begin == std::string::npos ? "none" : tag.substr(begin + sign.size(), tag.find('"', begin + sign.size()) - begin - sign.size()));
  }
  return found;
}

bool mentions(const NcclXml& xml, const std::string& words) {
  return std::any_of(xml.notes.begin(), xml.notes.end(), [&](const std::string& note) { return note.find(words) != std::string::npos; });
}

/// ncclTopoAddCpu() fails without arch, and for x86_64 without vendor; of Intel's CPUs it wants family and model as well.
TEST(WriteNcclXml, EveryCpuHasWhatNcclRequires) {
  std::vector<std::string> sources;
  for (const char* folder : {"topo", "ncclxml", "smi"}) {
    const std::vector<std::string> files = field::files(folder);
    sources.insert(sources.end(), files.begin(), files.end());
  }
  std::vector<std::pair<std::string, Reading>> readings;
  for (const std::string& file : sources) {
    try {
      readings.emplace_back(file, read_wiring(*field::text(file), file));
    } catch (const Error&) {
      continue;  // refused, as others' tests state
    }
  }
  for (const ShippedMachine& machine : shipped_machines()) readings.emplace_back(machine.name, read_shipped(machine.name).value());
  for (const char* fragment : {"<cpu numaid='0'/>", "<cpu numaid='0' arch='x86_64'/>", "<cpu numaid='0' arch='x86_64' vendor='GenuineIntel'/>", "<cpu numaid='0' arch='ppc64'/>"}) {
    std::string text = fragment;
    text.replace(text.size() - 2, 2, "><pci busid='0000:01:00.0' class='0x030200'><gpu dev='0' sm='80'/></pci></cpu>");
    readings.emplace_back(fragment, read_wiring("<system>" + text + "</system>", "f"));
  }
  for (const auto& [name, reading] : readings) {
    if (devices_of(reading.wiring, DeviceKind::kHost).size() != 1 || devices_of(reading.wiring, DeviceKind::kGpu).empty()) continue;
    const NcclXml xml = write_nccl_xml(reading);
    const auto archs = values(xml.text, "cpu", "arch");
    for (std::size_t i = 0; i < archs.size(); ++i) {
      EXPECT_NE(archs[i], "none") << name;
      if (archs[i] != "x86_64") continue;
      for (const char* attribute : {"vendor", "familyid", "modelid"}) EXPECT_NE(values(xml.text, "cpu", attribute)[i], "none") << name << ": " << attribute;
    }
    EXPECT_EQ(xml.text.find("assumed=") != std::string::npos, mentions(xml, "assumed, as of")) << name;
  }
  EXPECT_GT(readings.size(), 20U);
}

TEST(WriteNcclXml, WhatIsAssumedOfACpuIsReadAsUnknown) {
  const char* text =
      "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
      "GPU0\t X \tSYS\t0-3,8\t0\n"
      "GPU1\tSYS\t X \t4-7\t1\n";
  const Reading reading = read_wiring(text, "f");
  const NcclXml xml = write_nccl_xml(reading);
  EXPECT_EQ(values(xml.text, "cpu", "assumed"), (std::vector<std::string>{"arch vendor familyid modelid", "arch vendor familyid modelid"}));
  EXPECT_EQ(values(xml.text, "cpu", "affinity"), (std::vector<std::string>{"0000010f", "000000f0"}));  // CPUs 0-3 and 8; 4-7
  const Reading again = read_wiring(xml.text, "again");
  EXPECT_EQ(field::device(again, "numa0").model, "");
  EXPECT_EQ(field::device(again, "numa0").cpus, "0-3,8");
  for (const Link& link : again.wiring.links) {
    EXPECT_TRUE(link.kind != LinkKind::kSockets || link.provenance == Provenance::kAssumed) << link.source;
  }
  const Reading half = read_wiring("<system><cpu numaid='0' arch='x86_64' vendor='GenuineIntel'><pci busid='0000:01:00.0' class='0x030200'><gpu dev='0'/></pci></cpu></system>", "f");
  const NcclXml filled = write_nccl_xml(half);
  EXPECT_EQ(values(filled.text, "cpu", "assumed"), std::vector<std::string>{"familyid modelid"});
  EXPECT_EQ(values(filled.text, "cpu", "familyid"), std::vector<std::string>{"6"});  // as all servers of Intel's
  EXPECT_EQ(field::device(read_wiring(filled.text, "g"), "numa0").model, "x86_64 GenuineIntel");
}

TEST(WriteNcclXml, DevicesOfOneNodeThatStateDifferentCpusGetAllOfThem) {
  const NcclXml xml = write_nccl_xml(read_wiring("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPHB\t0-1\t0\nGPU1\tPHB\t X \t2-3\t0\n", "f"));
  EXPECT_EQ(values(xml.text, "cpu", "affinity"), std::vector<std::string>{"0000000f"}) << xml.text;
  EXPECT_TRUE(mentions(xml, "0-1; 2-3"));
}

TEST(WriteNcclXml, GraceIsAnArchitectureWithoutFamily) {
  const NcclXml xml = write_nccl_xml(read_shipped("gb200-nvl72").value());
  EXPECT_EQ(values(xml.text, "cpu", "arch"), (std::vector<std::string>{"arm64", "arm64"}));
  for (const char* attribute : {"vendor", "familyid", "modelid", "assumed"}) EXPECT_EQ(values(xml.text, "cpu", attribute), (std::vector<std::string>{"none", "none"}));
  EXPECT_TRUE(mentions(xml, "written as arm64"));
  EXPECT_FALSE(mentions(xml, "family"));
}

TEST(ReadJson, GivesTheVeryReading) {
  WIREWISE_NEEDS_FIELD();
  const std::vector<std::string> folders{"ncclxml", "topo"};
  int read = 0;
  for (const std::string& folder : folders) {
    for (const std::string& file : field::files(folder)) {
      const Reading reading = read_wiring(*field::text(file), file);
      const std::string text = write_json(reading);
      const Reading again = read_wiring(text, "dump");
      EXPECT_EQ(write_json(again), text) << file;
      ASSERT_EQ(again.wiring.links.size(), reading.wiring.links.size()) << file;
      for (std::size_t i = 0; i < again.wiring.links.size(); ++i) {
        const Link &a = again.wiring.links[i], &b = reading.wiring.links[i];
        EXPECT_EQ(a.beta, b.beta) << file;
        EXPECT_EQ(a.alpha, b.alpha) << file;
        EXPECT_EQ(a.spec, b.spec) << file;
        EXPECT_EQ(std::tie(a.from, a.to, a.kind, a.provenance, a.source, a.lanes, a.generation), std::tie(b.from, b.to, b.kind, b.provenance, b.source, b.lanes, b.generation));
      }
      for (std::size_t i = 0; i < again.wiring.devices.size(); ++i) {
        const Device &a = again.wiring.devices[i], &b = reading.wiring.devices[i];
        EXPECT_EQ(std::tie(a.name, a.kind, a.host, a.numa, a.level, a.placed, a.pci, a.model, a.cpus, a.rack, a.memory, a.nvls),
                  std::tie(b.name, b.kind, b.host, b.numa, b.level, b.placed, b.pci, b.model, b.cpus, b.rack, b.memory, b.nvls));
      }
      ++read;
    }
  }
  EXPECT_GT(read, 0);
}

TEST(ReadJson, KeepsRanksNetworksAndOddFigures) {
  Reading reading;
  Link network = assumed_network();
  network.beta = 1.1772342342342342e9;
  network.alpha = 9.6000000000000013e-6;
  network.spec = 3;
  reading.wiring = wire_hosts({0, 1, 0, 1, 2}, network);
  reading.format = Format::kClusterToml;
  reading.wiring.devices[0].memory = 1ULL << 40U;
  reading.wiring.devices[0].rack = "r\"1";
  const Reading again = read_wiring(write_json(reading), "dump");
  EXPECT_EQ(again.format, Format::kClusterToml);
  EXPECT_EQ(again.wiring.rank_device, reading.wiring.rank_device);
  EXPECT_EQ(again.wiring.devices[0].memory, reading.wiring.devices[0].memory);
  EXPECT_EQ(again.wiring.devices[0].rack, "r\"1");
  for (std::size_t i = 0; i < again.wiring.links.size(); ++i) {
    EXPECT_EQ(again.wiring.links[i].beta, reading.wiring.links[i].beta);
    EXPECT_EQ(again.wiring.links[i].alpha, reading.wiring.links[i].alpha);
    EXPECT_EQ(again.wiring.links[i].spec, reading.wiring.links[i].spec);
  }
}

TEST(ReadJson, RefusesWhatIsNotADump) {
  EXPECT_EQ(field::refusal("{\n \"format\": \"nvidia-smi topo\",\n \"devices\": [").substr(0, 6), "f:3:14");
  EXPECT_NE(field::refusal("{\"format\":\"wirewise JSON\",\"devices\":[],\"linkz\":[]}").find("linkz"), std::string::npos);
  EXPECT_NE(field::refusal("{}").find("no devices"), std::string::npos);
  EXPECT_NE(field::refusal("{\"format\":\"wirewise JSON\",\"devices\":[{\"name\":\"a\",\"kind\":\"host\",\"host_index\":0}],\"links\":[{\"from\":0,\"to\":1}]}").find("links[0]"), std::string::npos);
  EXPECT_NE(field::refusal("{\"format\":\"wirewise JSON\",\"devices\":[{\"name\":\"a\",\"kind\":\"gpu\",\"host_index\":3}]}").find("hosts"), std::string::npos);
  EXPECT_NE(field::refusal("{\"devices\":" + std::string(1000, '[')).find("deeper"), std::string::npos);
}

}  // namespace
}  // namespace wirewise
