// A graph written as NCCL's topology file is read back to the same graph; and our own dump to the very same reading.
#include "wirewise/wiring/write.h"

#include <map>

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
  const std::vector<std::string> files = field::files("ncclxml");
  if (files.empty()) GTEST_SKIP() << "../shared/field isn't there";
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

TEST(ReadJson, GivesTheVeryReading) {
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
  if (read == 0) GTEST_SKIP() << "../shared/field isn't there";
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
