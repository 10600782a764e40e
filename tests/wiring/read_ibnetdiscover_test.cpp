// Fabrics as ibnetdiscover prints them.
#include <gtest/gtest.h>

#include "wiring/reader_fuzz.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {
namespace {

const char* const kSmall =
    "vendid=0x2c9\nswitchguid=0x1(1)\nSwitch\t40 \"S-0001\"\t\t# \"leaf one\" enhanced port 0 lid 3 lmc 0\n"
    "[1]\t\"H-00a1\"[1](00a1) \t\t# \"node1 mlx5_0\" lid 4 4xHDR\n[2]\t\"H-00a2\"[1](00a2) \t\t# \"node1 mlx5_1\" lid 5 2xHDR\n[9]\t\"S-0002\"[7]\t\t# \"spine\" lid 9 4xNDR\n\n"
    "switchguid=0x2(2)\nSwitch\t40 \"S-0002\"\t\t# \"spine\" base port 0 lid 9 lmc 0\n[7]\t\"S-0001\"[9]\t\t# \"leaf one\" lid 3 4xNDR\n\n"
    "caguid=0xa1\nCa\t1 \"H-00a1\"\t\t# \"node1 mlx5_0\"\n[1](00a1) \t\"S-0001\"[1]\t\t# lid 4 lmc 0 \"leaf one\" lid 3 4xHDR\n\n"
    "caguid=0xa2\nCa\t1 \"H-00a2\"\t\t# \"node1 mlx5_1\"\n[1](00a2) \t\"S-0001\"[2]\t\t# lid 5 lmc 0 \"leaf one\" lid 3 2xHDR\n";

std::size_t cables(const Reading& reading) {
  return static_cast<std::size_t>(std::count_if(reading.wiring.links.begin(), reading.wiring.links.end(), [](const Link& link) { return link.kind == LinkKind::kInfiniband; })) / 2;
}

TEST(ReadIbnetdiscover, EachCableOnceWithItsWidthTimesSpeed) {
  const Reading reading = read_wiring(kSmall, "t");
  EXPECT_EQ(reading.format, Format::kIbnetdiscover);
  EXPECT_FALSE(reading.partial);
  EXPECT_EQ(cables(reading), 3U);
  EXPECT_EQ(devices_of(reading.wiring, DeviceKind::kHost).size(), 1U);
  const int first = find_device(reading.wiring, "mlx5_0"), second = find_device(reading.wiring, "mlx5_1"), leaf = find_device(reading.wiring, "S-0001", -1), spine = find_device(reading.wiring, "S-0002", -1);
  ASSERT_TRUE(first >= 0 && second >= 0 && leaf >= 0 && spine >= 0);
  EXPECT_EQ(reading.wiring.devices[static_cast<std::size_t>(leaf)].level, 0);
  EXPECT_EQ(reading.wiring.devices[static_cast<std::size_t>(spine)].level, 1);
  for (const Link& link : reading.wiring.links) {
    if (link.to != leaf) continue;
    EXPECT_DOUBLE_EQ(link.spec, link.from == first ? 25e9 : link.from == second ? 12.5e9 : 50e9);
    EXPECT_EQ(link.provenance, Provenance::kDriver);
  }
}

TEST(ReadIbnetdiscover, RefusalsNameThePlace) {
  const std::string head = "Switch\t40 \"S-0001\"\t# \"a\"\n";
  EXPECT_EQ(field::refusal(head + "[1]\tH-00a1\n").substr(0, 25), "f:2:1: this is no port: [");
  EXPECT_NE(field::refusal(head + "[1] \"S-2\"[1] # \"b\" lid 1 4xHDR\n[1] \"S-3\"[1] # \"c\" lid 1 4xHDR\n").find("f:3:1: port 1 stands there twice"), std::string::npos);
  EXPECT_NE(field::refusal(head + head).find("f:2:11: S-0001 is described twice"), std::string::npos);
  EXPECT_TRUE(read_wiring(head + "[1] \"S-2\"[1] # \"b\" lid 1 4xHDR\n[2] \"S-", "t").partial);
}

TEST(ReadIbnetdiscover, ACableBackToItsOwnSwitchJoinsNothing) {
  const Reading reading = read_wiring("Switch\t40 \"S-0001\"\t# \"a\"\n[1] \"S-0001\"[2] # \"a\" lid 1 4xHDR\n[3] \"S-0002\"[1] # \"b\" lid 2 4xHDR\n\nSwitch\t40 \"S-0002\"\t# \"b\"\n[1] \"S-0001\"[3] # \"a\" lid 1 4xHDR\n", "f");
  EXPECT_EQ(cables(reading), 1U);
  EXPECT_TRUE(field::noted(reading, "back to it"));
  EXPECT_FALSE(reading.partial);
}

TEST(ReadIbnetdiscover, TheFieldsFabricIsCutAtLine200) {
  WIREWISE_FIELD(reading, "slurm/ibnetdiscover-real-fabric-head200.out");
  EXPECT_TRUE(reading.partial);
  EXPECT_EQ(cables(reading), 166U - 4U);  // 4 lead to reduction nodes, which sit in the switches
  EXPECT_EQ(devices_of(reading.wiring, DeviceKind::kSwitch).size(), 5U + 9U);
  EXPECT_EQ(devices_of(reading.wiring, DeviceKind::kNic).size(), 91U - 4U);
  EXPECT_EQ(reading.wiring.devices[static_cast<std::size_t>(find_device(reading.wiring, "S-2c5eab0300b87b40", -1))].level, 0);
  EXPECT_EQ(reading.wiring.devices[static_cast<std::size_t>(find_device(reading.wiring, "S-2c5eab0300c26280", -1))].level, 1);
  const int nic = find_device(reading.wiring, "mlx5_5", 0);
  ASSERT_GE(nic, 0);  // racka08-node04-c01's
  int leaves = 0, spines = 0;
  for (const Link& link : reading.wiring.links) {
    if (link.kind != LinkKind::kInfiniband) continue;
    EXPECT_DOUBLE_EQ(link.spec, 50e9);  // 4xNDR
    if (link.from == nic) ++leaves;
    if (link.from == find_device(reading.wiring, "S-2c5eab0300b87b40", -1) && link.to == find_device(reading.wiring, "S-2c5eab0300c26280", -1)) ++spines;
  }
  EXPECT_EQ(leaves, 1);
  EXPECT_EQ(spines, 2);  // ports 35 and 36
}

TEST(ReadIbnetdiscover, SurvivesAnyText) {
  std::vector<std::string> samples = fuzz::with_field({}, "slurm", "ibnetdiscover");
  samples.emplace_back(kSmall);
  fuzz::run_reader(samples, [](const std::string& text) { return read_ibnetdiscover(text, "fuzz"); }, 1000);
}

}  // namespace
}  // namespace wirewise
