// topology.conf of trees, blocks and rings, and scontrol's print of it.
#include "wirewise/wiring/reading.h"

#include <gtest/gtest.h>

#include "wiring/reader_fuzz.h"
#include "wirewise/wiring/path.h"

namespace wirewise {
namespace {

using field::noted;
using field::refusal;

const Device& switch_named(const Wiring& wiring, std::string_view name) {
  const int index = find_device(wiring, name, -1);
  EXPECT_GE(index, 0) << name;
  return wiring.devices.at(static_cast<std::size_t>(std::max(0, index)));
}

int host_named(const Wiring& wiring, std::string_view name) {
  for (int host : devices_of(wiring, DeviceKind::kHost)) {
    if (wiring.devices[static_cast<std::size_t>(host)].name == name) return host;
  }
  return -1;
}

/// The names of what hangs on a device, one space between.
std::string neighbours(const Wiring& wiring, int of, DeviceKind kind) {
  std::string names;
  for (const Link& link : wiring.links) {
    const Device& to = wiring.devices[static_cast<std::size_t>(link.to)];
    if (link.from == of && to.kind == kind) names += (names.empty() ? "" : " ") + to.name;
  }
  return names;
}

std::string above(const Wiring& wiring, std::string_view host) { return neighbours(wiring, host_named(wiring, host), DeviceKind::kSwitch); }

TEST(ReadSlurmConf, ContinuedLinesAreOne) {
  const Reading reading = read_wiring("# tree\nswitchname=top SWITCHES=leaf[1-2] # spine\nSwitchName=leaf1 \\\n  Nodes=n[1-2],\\\nn4\nSwitchName = leaf2 Nodes = \"n3\"", "t");
  EXPECT_EQ(reading.format, Format::kSlurmConf);
  EXPECT_FALSE(reading.partial);
  EXPECT_TRUE(reading.notes.empty());
  const Wiring& wiring = reading.wiring;
  EXPECT_EQ(devices_of(wiring, DeviceKind::kHost).size(), 4U);
  EXPECT_EQ(switch_named(wiring, "top").level, 1);
  EXPECT_EQ(switch_named(wiring, "leaf1").level, 0);
  EXPECT_EQ(above(wiring, "n4"), "leaf1");
  EXPECT_EQ(above(wiring, "n3"), "leaf2");
  const Paths paths(wiring);
  EXPECT_EQ(paths.find(host_named(wiring, "n1"), host_named(wiring, "n2"))->links.size(), 2U);
  EXPECT_EQ(paths.find(host_named(wiring, "n1"), host_named(wiring, "n3"))->links.size(), 4U);
  for (const Link& link : wiring.links) EXPECT_EQ(link.provenance, Provenance::kAssumed);
}

TEST(ReadSlurmConf, WhatSlurmRefusesIsRefusedWithItsPlace) {
  EXPECT_EQ(refusal("SwitchName=a Nodes=n[1-\n").substr(0, 23), "f:1:21: the bracket is ");
  EXPECT_EQ(refusal("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n").substr(0, 40), "f:2:12: the switch a stands there twice;");
  EXPECT_EQ(refusal("SwitchName=a Switches=a\n"), "f:1:23: the switch a is below itself.");
  EXPECT_NE(refusal("SwitchName=a Switches=b\nSwitchName=b Switches=c\nSwitchName=c Switches=a\n").find("is below itself"), std::string::npos);
  EXPECT_EQ(refusal("SwitchName=a Switches=b Nodes=n1\nSwitchName=b Nodes=n2\n").substr(0, 29), "f:1:12: the switch a has both");
  EXPECT_EQ(refusal("SwitchName=a Node=n1\n"), "f:1:14: Node is no key of topology.conf.");
  EXPECT_EQ(refusal("SwitchName=a Nodes=n1\nNodes=n2\n").substr(0, 30), "f:2:1: a line can't start with");
  EXPECT_NE(refusal("SwitchName=a Nodes=n[0-2000000000]\n").find("more than"), std::string::npos);
  EXPECT_NE(refusal("BlockName=a Nodes=n1\nBlockSizes=8,x\n").find("f:2:14: x is no block size"), std::string::npos);
  EXPECT_NE(refusal("SwitchName=\n").find("has no value"), std::string::npos);
}

TEST(ReadSlurmConf, WhatSlurmWarnsOfIsNoted) {
  const Reading twice = read_wiring("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[2-3]\nSwitchName=c Switches=a,b\n", "t");
  EXPECT_TRUE(noted(twice, "n2 is also in the switch a"));
  EXPECT_EQ(above(twice.wiring, "n2"), "a b");
  const Reading missing = read_wiring("SwitchName=top Switches=leaf[1-3]\nSwitchName=leaf1 Nodes=n1\n", "t");
  EXPECT_TRUE(noted(missing, "no line describes leaf2, leaf3, below top"));
  EXPECT_TRUE(missing.partial);
  const Reading apart = read_wiring("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2\n", "t");
  EXPECT_TRUE(noted(apart, "nothing joins the switches a, b"));
  EXPECT_FALSE(Paths(apart.wiring).find(host_named(apart.wiring, "n1"), host_named(apart.wiring, "n2")));
  EXPECT_TRUE(noted(read_wiring("SwitchName=n1 Nodes=n1\nInclude other.conf\n", "t"), "includes another"));
  const Reading cut = read_wiring("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n3,n[4-", "t");
  EXPECT_TRUE(cut.partial);
  EXPECT_EQ(above(cut.wiring, "n3"), "b");
}

TEST(ReadSlurmConf, UplinksCarryTheHostsBelow) {
  const Reading reading = read_wiring("SwitchName=s1 Switches=l\nSwitchName=s2 Switches=l\nSwitchName=l Nodes=n[1-8]\n", "t");
  const double host = assumed_network().beta;
  const int leaf = find_device(reading.wiring, "l", -1);
  for (const Link& link : reading.wiring.links) {
    const DeviceKind other = reading.wiring.devices[static_cast<std::size_t>(link.to)].kind;
    if (link.from != leaf) continue;
    EXPECT_DOUBLE_EQ(link.beta, other == DeviceKind::kHost ? host : 4 * host);
  }
}

TEST(ReadSlurmConf, TheFieldsFilesAreWhatTheySay) {
  WIREWISE_NEEDS_FIELD();
  const auto read = [](const std::string& name) { return field::read("slurm/" + name); };
  const auto hosts = [](const Reading& reading) { return devices_of(reading.wiring, DeviceKind::kHost).size(); };
  const auto switches = [](const Reading& reading) { return devices_of(reading.wiring, DeviceKind::kSwitch).size(); };

  const Reading tree = read("01-tree-man-dev-switches.conf");
  EXPECT_EQ(hosts(tree), 18U);
  EXPECT_EQ(switches(tree), 4U);
  EXPECT_EQ(above(tree.wiring, "dev11"), "s1");
  EXPECT_EQ(switch_named(tree.wiring, "s3").level, 1);
  EXPECT_TRUE(tree.notes.empty());

  const Reading blocks = read("02-block-man.conf");
  EXPECT_EQ(hosts(blocks), 128U);
  EXPECT_EQ(blocks.wiring.devices[static_cast<std::size_t>(host_named(blocks.wiring, "node97"))].rack, "block4");
  EXPECT_EQ(blocks.facts.front().value, "30,120");
  EXPECT_FALSE(noted(blocks, "power of two"));

  const Reading rings = read("03-ring-man.conf");
  EXPECT_EQ(hosts(rings), 16U);
  EXPECT_EQ(switches(rings), 0U);
  EXPECT_EQ(neighbours(rings.wiring, host_named(rings.wiring, "node01"), DeviceKind::kHost), "node02 node08");
  EXPECT_TRUE(noted(rings, "what joins the rings"));

  const Reading superpod = read("04-superpod-selene-like-noncontiguous.conf");
  EXPECT_EQ(above(superpod.wiring, "n019"), "s0");
  EXPECT_EQ(above(superpod.wiring, "dgx-n017"), "s1");
  EXPECT_EQ(above(superpod.wiring, "dgx-n051"), "s2 s4");  // in two leaves
  EXPECT_TRUE(noted(superpod, "dgx-n051 is also in the switch s2"));
  EXPECT_TRUE(noted(superpod, "nothing joins the switches"));

  const Reading puppet = read("05-puppet-comments-mixed-prefixes-no-root.conf");
  EXPECT_EQ(hosts(puppet), 39U);
  EXPECT_EQ(above(puppet.wiring, "xf11id-srv2"), "s1");
  EXPECT_TRUE(noted(puppet, "nothing joins the switches s0, s1, s2, s3"));

  const Reading single = read("06-single-node-no-newline.conf");
  EXPECT_EQ(hosts(single), 1U);
  EXPECT_EQ(above(single.wiring, "slurm_node1"), "SwitchBidon");
  EXPECT_FALSE(single.partial);

  const Reading oci = read("07-topograph-oci-3tier-comments.conf");
  EXPECT_EQ(hosts(oci), 96U);
  EXPECT_EQ(switches(oci), 19U);
  EXPECT_EQ(above(oci.wiring, "srv5208"), "switch.1.10");
  EXPECT_EQ(switch_named(oci.wiring, "switch.3.1").level, 2);
  EXPECT_EQ(switch_named(oci.wiring, "switch.2.6").level, 1);

  const Reading nvl = read("08-topograph-block-nvl.conf");
  EXPECT_EQ(hosts(nvl), 96U);
  EXPECT_EQ(nvl.wiring.devices[static_cast<std::size_t>(host_named(nvl.wiring, "srv6208"))].rack, "rack62");

  const Reading guid = read("09-ib-guid-switch-names-noncontiguous.conf");
  EXPECT_EQ(hosts(guid), 2U + 11U + 18U);
  EXPECT_EQ(above(guid.wiring, "a06-p1-dgx-02-c18"), "S-2c5eab0300b87a80");
  EXPECT_EQ(switch_named(guid.wiring, "S-2c5eab0300b87b40").level, 2);

  const Reading fat = read("10-fat-tree-leaf-under-two-spines.conf");
  EXPECT_EQ(hosts(fat), 64U);
  EXPECT_EQ(neighbours(fat.wiring, find_device(fat.wiring, "leaf1", -1), DeviceKind::kSwitch), "spine1 spine2");
  EXPECT_TRUE(noted(fat, "leaf3, leaf4"));
  EXPECT_FALSE(noted(fat, "nothing joins"));

  EXPECT_EQ(switch_named(read("11-cn-blog-leaf-spine-core.conf").wiring, "core").level, 2);

  const Reading shown = read("12-scontrol-show-topology-with-level.txt");
  EXPECT_EQ(hosts(shown), 2U);
  EXPECT_EQ(above(shown.wiring, "worker-1"), "leaf02");
  EXPECT_EQ(switch_named(shown.wiring, "root").level, 1);

  const Reading orphan = read("13-orphan-switch-no-topology.conf");
  EXPECT_EQ(above(orphan.wiring, "node31"), "no-topology");
  EXPECT_TRUE(noted(orphan, "nothing joins the switches no-topology, switch.3.1"));

  const Reading speed = read("14-linkspeed.conf");
  ASSERT_EQ(speed.facts.size(), 1U);
  EXPECT_EQ(speed.facts[0].subject + " " + speed.facts[0].value, "leaf-a 100G");
  EXPECT_TRUE(noted(speed, "no whole number"));
  EXPECT_EQ(above(speed.wiring, "node010"), "leaf-a");
}

TEST(ReadSlurmConf, SurvivesAnyText) {
  std::vector<std::string> samples = fuzz::with_field({}, "slurm", ".conf");
  samples.push_back("SwitchName=top Switches=leaf[1-2]\nSwitchName=leaf1 Level=0 \\\n Nodes=n[01-03,7]\nSwitchName=leaf2 Nodes=\"n4\" LinkSpeed=100\n");
  samples.push_back("BlockName=b1 Nodes=n[1-4]\nBlockName=b2 Nodes=n[5-8]\nBlockSizes=4,8\nRingName=r Nodes=m[1-5]\n");
  fuzz::run_reader(samples, [](const std::string& text) { return read_slurm_conf(text, "fuzz"); });
}

}  // namespace
}  // namespace wirewise
