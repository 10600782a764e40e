// What is written in a form and read back is the same machine: random ones (the seed is printed), those that ship, those of the field, and
// descriptions by hand with all that a description can say.
#include <map>
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
    std::map<std::tuple<int, int, double, std::string>, int> links;
    for (const Link& link : before.wiring.links) ++links[{link.from, link.to, link.beta, link.source}];
    for (const Link& link : after.wiring.links) --links[{link.from, link.to, link.beta, link.source}];
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

TEST(RoundTrip, FilesOfTheFieldInEveryForm) {
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
  if (read == 0) GTEST_SKIP() << "../shared/field isn't there";
  EXPECT_GT(read, 60);
  EXPECT_GT(written, 40);
}

}  // namespace
}  // namespace wirewise
