// What is written in a form and read back is the same machine: random ones (the seed is printed), those that ship, those of the field, and
// descriptions by hand with all that a description can say.
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "wiring/field.h"
#include "wiring/random_wiring.h"
#include "wiring/same_wiring.h"
#include "wirewise/wiring/cluster_file.h"
#include "wirewise/wiring/path.h"
#include "wirewise/wiring/write.h"

namespace wirewise {
namespace {

int rounds() { return std::getenv("WIREWISE_FULL") != nullptr ? 3000 : 150; }

auto all_of(const Link& l) { return std::make_tuple(l.from, l.to, l.kind, l.alpha, l.beta, l.provenance, l.source, l.lanes, l.generation, l.spec); }

Reading random_reading(unsigned seed, int hosts, bool figures) {
  Reading reading;
  reading.format = Format::kClusterToml;
  reading.wiring = same::RandomWiring(seed).make(hosts, figures);
  reading.facts = {{"cluster", "name", "a \"name\"\t", 0}, {"cluster", "about", "", 0}, {"cluster", "source", "here", 0}, {"cluster", "source", "there \\ é", 0}, {"GPU0", "x", "y\n", 0}};
  reading.facts.erase(reading.facts.begin() + 1);
  reading.partial = seed % 3 == 0;
  return reading;
}

TEST(RoundTrip, RandomMachinesAsCluster) {
  for (unsigned seed = 1; seed <= static_cast<unsigned>(rounds()); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Reading before = random_reading(seed, 1 + static_cast<int>(seed % 4), seed % 2 == 0);
    const std::string text = write_cluster(before);
    const Reading after = read_cluster(text, "written.toml");
    // The graph's order is hosts, each with its devices, then what is outside: as random machines are made.
    same::expect_equal_facts(before, after, text);
    if (::testing::Test::HasFailure()) return;
    ASSERT_EQ(write_cluster(after), text);
    std::map<decltype(all_of(before.wiring.links.front())), int> links;
    for (const Link& link : before.wiring.links) ++links[all_of(link)];
    for (const Link& link : after.wiring.links) --links[all_of(link)];
    for (const auto& [link, count] : links) ASSERT_EQ(count, 0) << text;
    ASSERT_EQ(before.wiring.rank_device, after.wiring.rank_device);
    for (std::size_t i = 0; i < before.wiring.devices.size(); ++i) ASSERT_EQ(same::parts(before.wiring.devices[i]), same::parts(after.wiring.devices[i])) << text;
    const Paths was(before.wiring), is(after.wiring);
    const auto gpus = devices_of(before.wiring, DeviceKind::kGpu);
    for (std::size_t i = 1; i < gpus.size(); ++i) {
      const auto a = was.find(gpus[0], gpus[i]), b = is.find(gpus[0], gpus[i]);
      ASSERT_EQ(a.has_value(), b.has_value());
      if (!a) continue;
      EXPECT_EQ(a->bandwidth, b->bandwidth);
      EXPECT_EQ(a->provenance, b->provenance);
    }
  }
}

TEST(RoundTrip, RandomMachinesAsJson) {
  for (unsigned seed = 1; seed <= static_cast<unsigned>(rounds()); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Reading before = random_reading(seed, 1 + static_cast<int>(seed % 4), true);
    const Reading after = read_json(write_json(before), "written");
    same::expect_equal(before.wiring, after.wiring, "json");
    same::expect_equal_facts(before, after, "json");
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(RoundTrip, RandomHostsAsNcclXml) {
  int written = 0;
  for (unsigned seed = 1; seed <= static_cast<unsigned>(rounds()); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Reading before = random_reading(seed, 1 + static_cast<int>(seed % 3), seed % 2 == 0);
    const auto hosts = devices_of(before.wiring, DeviceKind::kHost);
    for (std::size_t host = 0; host < hosts.size(); ++host) {
      const NcclXml xml = write_nccl_xml(before, before.wiring.devices[static_cast<std::size_t>(hosts[host])].name);
      ASSERT_EQ(write_nccl_xml(before, before.wiring.devices[static_cast<std::size_t>(hosts[host])].name).text, xml.text);
      const Reading after = read_nccl_xml(xml.text, "written.xml");
      ASSERT_EQ(same::relations(before.wiring, static_cast<int>(host)), same::relations(after.wiring, 0)) << xml.text;
      EXPECT_TRUE(after.notes.empty()) << after.notes.front().text << "\n" << xml.text;
      // Nothing that was known is lost, and nothing that was made up is where machines have devices.
      for (DeviceKind kind : {DeviceKind::kGpu, DeviceKind::kNic}) {
        const auto was = devices_of(before.wiring, kind, static_cast<int>(host)), is = devices_of(after.wiring, kind, 0);
        ASSERT_EQ(was.size(), is.size());
        for (std::size_t i = 0; i < was.size(); ++i) {
          const Device &a = before.wiring.devices[static_cast<std::size_t>(was[i])], &b = after.wiring.devices[static_cast<std::size_t>(is[i])];
          EXPECT_EQ(a.name, b.name);
          if (a.pci.empty()) EXPECT_EQ(b.pci.substr(0, 2), "f0") << xml.text;
          else EXPECT_EQ(a.pci, b.pci);
        }
      }
      ++written;
    }
  }
  EXPECT_GT(written, rounds());
}

TEST(RoundTrip, ShippedMachinesInEveryForm) {
  for (const ShippedMachine& machine : shipped_machines()) {
    SCOPED_TRACE(machine.name);
    const Reading before = read_shipped(machine.name).value();
    const Reading toml = read_cluster(write_cluster(before), "written.toml");
    same::expect_equal(before.wiring, toml.wiring, "cluster");
    same::expect_equal_facts(before, toml, "cluster");
    EXPECT_EQ(write_cluster(toml), write_cluster(before));
    EXPECT_EQ(field::fact(toml, "cluster", "about"), machine.about);
    const Reading json = read_json(write_json(before), "written.json");
    same::expect_equal(before.wiring, json.wiring, "json");
    EXPECT_EQ(write_json(json), write_json(before));
    for (const int host : devices_of(before.wiring, DeviceKind::kHost)) {
      const Device& one = before.wiring.devices[static_cast<std::size_t>(host)];
      if (one.host > 1) break;
      const NcclXml xml = write_nccl_xml(before, one.name);
      const Reading after = read_nccl_xml(xml.text, "written.xml");
      EXPECT_EQ(same::relations(before.wiring, one.host), same::relations(after.wiring, 0)) << xml.text;
      EXPECT_TRUE(after.notes.empty()) << after.notes.front().text;
      EXPECT_EQ(xml.text.find(" />"), std::string::npos);
      EXPECT_NE(xml.notes.front().find("made up"), std::string::npos);
    }
  }
}

/// All that a description can say.
constexpr const char* kPod = R"(
name = "pod \"one\""
about = "two kinds of hosts"
source = ["here", "there"]
[[template]]
name = "box"
model = "a box"
[template.gpus]
count = 2
pcie = 4
pci = ["0000:01:00.0", "0000:02:00.0"]
[[template.nics]]
link = "25 GbE"
pcie = 3
lanes = 8
names = ["eth0"]
[[template.numa]]
cpus = "0-7"
memory_gib = 64.5
[[template.bridge]]
gpus = [0, 1]
nics = [0]
[[host]]
template = "hgx-h100"
names = "gpu[01-06]"
per_rack = 2
out = "gpu04"
[[host]]
template = "box"
literal_names = ["a, b", "c[1]"]
rack = "r9"
[[host]]
template = "gb200-nvl72"
count = 3
prefix = "tray"
[[override]]
hosts = "gpu02"
gpus_out = [5]
nics_out = [5]
link = "InfiniBand HDR"
[network]
link = "InfiniBand NDR"
nics = 4
[[level]]
hosts = 4
switches = 2
oversubscription = 2
[[level]]
groups = 2
uplinks = 3
uplink = "InfiniBand XDR"
[[level]]
switches = 2
[[measured]]
class = "InfiniBand NDR"
hosts = "gpu[01-02]"
beta_GBps = 46.123456789012345
alpha_us = 2.4000000001
source = "link bench"
between = "rank 0 and rank 2"
date = "2026-11-30"
sizes = [8, 1024]
residual_percent = 4.25
)";

TEST(RoundTrip, ADescriptionByHandKeepsAllThatItSays) {
  const Reading before = read_cluster(kPod, "pod.toml");
  const std::string text = write_cluster(before);
  const Reading after = read_cluster(text, "written.toml");
  same::expect_equal(before.wiring, after.wiring, text);
  same::expect_equal_facts(before, after, text);
  EXPECT_EQ(write_cluster(after), text);
  EXPECT_EQ(field::fact(after, "cluster", "name"), "pod \"one\"");
  EXPECT_EQ(field::fact(after, "cluster", "hosts taken out"), "1");
  EXPECT_EQ(field::fact(after, "measured InfiniBand NDR of gpu[01-02]", "between"), "rank 0 and rank 2");
  EXPECT_EQ(field::fact(after, "measured InfiniBand NDR of gpu[01-02]", "sizes"), "8, 1024");
  EXPECT_EQ(field::fact(after, "measured InfiniBand NDR of gpu[01-02]", "off by"), "4.25 %");
  int measured = 0;
  for (const Link& link : after.wiring.links) {
    if (link.provenance != Provenance::kMeasured) continue;
    EXPECT_EQ(link.beta, 46.123456789012345e9);
    EXPECT_EQ(link.source, "InfiniBand NDR, link bench");
    ++measured;
  }
  EXPECT_EQ(measured, 2 * 4);  // gpu02 has HDR
  EXPECT_EQ(read_json(write_json(before), "j").facts.size(), before.facts.size());
  EXPECT_NE(field::refusal("[[host]]\ntemplate = \"dgx-1\"\n[[rank]]\non = [\"node0\", \"GPU9\"]\n").find("GPU9"), std::string::npos);
  EXPECT_NE(field::refusal("switch = [{ name = \"s\", kind = \"switch\" }]\nlink = [{ a = \"s\", b = \"node0\", kind = \"ethernet\", beta_GBps = 1, beta_Bps = 2 }]\n[[host]]\ntemplate = \"dgx-1\"\n").find("either beta_GBps or beta_Bps"),
            std::string::npos);
}

TEST(RoundTrip, SeveralHostsAskForOne) {
  const Reading pod = read_cluster(kPod, "pod.toml");
  try {
    (void)write_nccl_xml(pod);
    FAIL() << "written";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    EXPECT_NE(std::string(error.remedy()).find("--host gpu01"), std::string::npos) << error.remedy();
  }
  EXPECT_THROW((void)write_nccl_xml(pod, "gpu04"), Error);  // taken out
  const Reading one = read_nccl_xml(write_nccl_xml(pod, "gpu02").text, "x");
  EXPECT_EQ(field::count(one, DeviceKind::kGpu), 7U);
  EXPECT_EQ(field::fact(one, "NIC0", "speed"), "200000 Mbit/s");
  EXPECT_EQ(field::device(one, "GPU0").model, "NVIDIA sm_90");
  EXPECT_EQ(field::relation(one, "GPU0", "GPU1"), "NV18");
  const Reading tray = read_nccl_xml(write_nccl_xml(pod, "tray8").text, "x");
  EXPECT_EQ(field::relation(tray, "GPU0", "GPU3"), "NV18");  // by NVSwitches outside of it
}

TEST(RoundTrip, JsonHasTheKeysThatScriptsDependOn) {
  for (const char* name : {"dgx-a100", "2x-workstation-10gbe", "512-h100", "gb200-nvl72-rack"}) {
    const Reading reading = read_shipped(name).value();
    const nlohmann::json json = nlohmann::json::parse(write_json(reading));
    std::size_t ends = 0;
    for (const auto& device : json.at("devices")) {
      for (const char* key : {"name", "kind", "host", "numa", "pci"}) ASSERT_TRUE(device.contains(key)) << name << ": " << device;
      ASSERT_TRUE(device["name"].is_string() && device["kind"].is_string());
      ASSERT_TRUE(device["host"].is_string() || (device["kind"] == "switch" || device["kind"] == "nvswitch")) << device;
      ASSERT_TRUE(device["numa"].is_null() || device["numa"].is_number_integer());
      ends += device["kind"] == "gpu" || device["kind"] == "nic" ? 1 : 0;
    }
    for (const auto& pair : json.at("pairs")) {
      for (const char* key : {"a", "b", "connection", "bandwidth_GBps", "provenance"}) ASSERT_TRUE(pair.contains(key)) << name << ": " << pair;
      ASSERT_GT(pair["bandwidth_GBps"].get<double>(), 0) << pair;
      ASSERT_TRUE(pair["provenance"] == "spec" || pair["provenance"] == "assumed") << pair;
    }
    // Each pair once; of large clusters those of each host.
    const auto hosts = static_cast<std::size_t>(hosts_of(reading.wiring)), each = ends / hosts;
    EXPECT_EQ(json["pairs"].size(), ends > 160 ? hosts * (each * (each - 1) / 2) : ends * (ends - 1) / 2) << name;
  }
  Reading odd = read_shipped("dgx-1").value();
  odd.wiring.devices[1].name = "a\xff";
  odd.wiring.devices[2].name = "a\xfe";
  const Reading again = read_json(write_json(odd), "j");
  EXPECT_NE(again.wiring.devices[1].name, again.wiring.devices[2].name);
}

TEST(RoundTrip, AddressesThatAreMadeUpFollowTheTree) {
  const std::string xml = write_nccl_xml(read_shipped("dgx-1").value()).text;
  const Reading reading = read_nccl_xml(xml, "x");
  EXPECT_EQ(field::device(reading, "switch0").pci, "f000:01:00.0");  // bus 2 is the switch's own
  EXPECT_EQ(field::device(reading, "GPU0").pci, "f000:03:00.0");
  EXPECT_EQ(field::device(reading, "NIC0").pci, "f000:05:00.0");
  EXPECT_EQ(field::device(reading, "switch1").pci, "f000:06:00.0");
  EXPECT_EQ(field::device(reading, "GPU4").pci, "f001:03:00.0");  // another root complex
  EXPECT_NE(xml.find("<cpu numaid=\"0\" affinity=\"0fffff00,000fffff\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"79\">"), std::string::npos) << xml;
  EXPECT_NE(xml.find("<net name=\"NIC0\" dev=\"0\" speed=\"100000\"/>"), std::string::npos);
  EXPECT_NE(write_nccl_xml(read_shipped("dgx-a100").value()).text.find("<nvlink target=\"fffffff:ffff:ff\" count=\"12\" tclass=\"0x068000\"/>"), std::string::npos);
}

TEST(RoundTrip, FilesOfTheFieldInEveryForm) {
  WIREWISE_NEEDS_FIELD();
  int read = 0, written = 0;
  for (const char* folder : {"topo", "ncclxml", "slurm", "smi", "nccltests"}) {
    for (const std::string& file : field::files(folder)) {
      Reading before;
      try {
        before = read_wiring(*field::text(file), file);
      } catch (const Error&) {
        continue;  // refused, as others' tests state
      }
      SCOPED_TRACE(file);
      ++read;
      const Reading json = read_json(write_json(before), "written.json");
      same::expect_equal(before.wiring, json.wiring, "json");
      same::expect_equal_facts(before, json, "json");
      EXPECT_EQ(write_json(json), write_json(before));
      if (hosts_of(before.wiring) == 0) continue;
      const Reading toml = read_cluster(write_cluster(before), "written.toml");
      same::expect_equal_facts(before, toml, "cluster");
      EXPECT_EQ(write_cluster(toml), write_cluster(before));
      if (devices_of(before.wiring, DeviceKind::kGpu).empty() && devices_of(before.wiring, DeviceKind::kNic).empty()) continue;
      const std::string name = before.wiring.devices[static_cast<std::size_t>(devices_of(before.wiring, DeviceKind::kHost)[0])].name;
      const NcclXml xml = write_nccl_xml(before, name);
      EXPECT_EQ(same::relations(before.wiring, 0), same::relations(read_nccl_xml(xml.text, "written.xml").wiring, 0)) << xml.text;
      ++written;
    }
  }
  EXPECT_GT(read, 60);
  EXPECT_GT(written, 40);
}

}  // namespace
}  // namespace wirewise
