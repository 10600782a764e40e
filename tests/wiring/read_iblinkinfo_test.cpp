// iblinkinfo, under heads and in lines.
#include <gtest/gtest.h>

#include "wiring/field.h"
#include "wiring/posted_samples.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {
namespace {

using field::fact;
using field::noted;
using field::refusal;

/// The bandwidth of the cable between a host's adapter and a switch; 0: there is none.
double cable(const Reading& reading, const std::string& host, const std::string& name, const std::string& to) {
  for (const Link& link : reading.wiring.links) {
    const Device& from = reading.wiring.devices[static_cast<std::size_t>(link.from)];
    const Device& end = reading.wiring.devices[static_cast<std::size_t>(link.to)];
    const bool own = host.empty() ? from.host == -1 : from.host >= 0 && reading.wiring.devices[static_cast<std::size_t>(devices_of(reading.wiring, DeviceKind::kHost)[static_cast<std::size_t>(from.host)])].name == host;
    if (own && from.name == name && end.name == to && end.host == -1) return link.spec;
  }
  return 0;
}

TEST(ReadIblinkinfo, SwitchesAdaptersAndCables) {
  const Reading reading = read_wiring(posted::kIblinkinfo, "t");
  EXPECT_EQ(reading.format, Format::kIblinkinfo);
  EXPECT_EQ(hosts_of(reading.wiring), 3);
  EXPECT_EQ(field::count(reading, DeviceKind::kSwitch), 2U);
  EXPECT_DOUBLE_EQ(cable(reading, "node1", "mlx5_0", "S-0c42a103008d7a10"), 25e9);     // 4x HDR
  EXPECT_DOUBLE_EQ(cable(reading, "node2", "mlx5_0", "S-0c42a103008d7a10"), 12.5e9);   // 2x HDR
  EXPECT_DOUBLE_EQ(cable(reading, "node3", "mlx5_0", "S-0c42a103008d7a10"), 0);
  EXPECT_DOUBLE_EQ(cable(reading, "", "S-lid7", "S-0c42a103008d7a10"), 50e9);          // 4x NDR
  EXPECT_EQ(fact(reading, "cables", "4xHDR"), "1");  // each once, though both ends say it
  EXPECT_EQ(fact(reading, "MF0;leaf1:QM8700/U1", "ports Down/Polling"), "1");
  EXPECT_TRUE(noted(reading, "node2 mlx5_0 port 1 runs at 2xHDR and could be 4X"));
  EXPECT_TRUE(field::remedied(reading, "could be 4X"));
  EXPECT_TRUE(noted(reading, "node3 mlx5_0 port 1 is Down/Polling"));
  EXPECT_TRUE(reading.partial);  // the spine is named, but not described
  for (const int at : devices_of(reading.wiring, DeviceKind::kSwitch)) {
    const Device& device = reading.wiring.devices[static_cast<std::size_t>(at)];
    EXPECT_EQ(device.level, device.name == "S-lid7" ? 1 : 0);
  }
}

TEST(ReadIblinkinfo, LinesSayTheSame) {
  const Reading reading = read_wiring(posted::kIblinkinfoLines, "t");
  EXPECT_EQ(reading.format, Format::kIblinkinfo);
  EXPECT_FALSE(reading.partial);
  EXPECT_EQ(hosts_of(reading.wiring), 2);
  EXPECT_DOUBLE_EQ(cable(reading, "node1", "mlx5_0", "S-0c42a103008d7a10"), 25e9);
  EXPECT_DOUBLE_EQ(cable(reading, "node2", "mlx5_0", "S-0c42a103008d7a10"), 12.5e9);
  EXPECT_TRUE(noted(reading, "could be 4X"));
}

TEST(ReadIblinkinfo, WithoutHeadsAsGrepLeavesIt) {
  const Reading reading = read_wiring(
      "      0x00000000000000a1      4    1[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       2   17[  ] \"MF0;SB7700:MSB7700/U1\" ( )\n"
      "           2   17[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       4    1[  ] \"n02 HCA-1\" ( )\n",
      "t");
  EXPECT_EQ(field::count(reading, DeviceKind::kSwitch), 1U);
  EXPECT_DOUBLE_EQ(cable(reading, "n02", "HCA-1", "S-lid2"), 12.5e9);
  EXPECT_FALSE(reading.partial);
}

TEST(ReadIblinkinfo, PortsThatNoManagerBroughtUpAndAdaptersOfOneName) {
  const Reading reading = read_wiring(
      "CA: localhost HCA-1:\n  0x00000000000000a1 4 1[  ] ==( 4X 10.0 Gbps Initialize/ LinkUp)==> 5 1[  ] \"localhost HCA-1\" ( )\n"
      "CA: localhost HCA-1:\n  0x00000000000000b1 5 1[  ] ==( 4X 10.0 Gbps Initialize/ LinkUp)==> 4 1[  ] \"localhost HCA-1\" ( )\n",
      "t");
  EXPECT_TRUE(field::remedied(reading, "no subnet manager has brought it up"));
  EXPECT_TRUE(noted(reading, "another adapter calls itself localhost HCA-1"));
  EXPECT_EQ(field::count(reading, DeviceKind::kNic), 2U);
  EXPECT_EQ(fact(reading, "cables", "4xQDR"), "1");
}

TEST(ReadIblinkinfo, RefusesWithThePlace) {
  EXPECT_NE(refusal("CA: a mlx5_0:\n  0x1 4 x[  ] ==( 4X 10.0 Gbps Active/ LinkUp)==> 5 1[  ] \"b\" ( )\n").find("f:2:15: this is no port"), std::string::npos);
  EXPECT_NE(refusal("Switch: 0x2 leaf:\n 2 1[  ] ==( Down/ Polling)==> [  ] \"\" ( )\n 2 1[  ] ==( Down/ Polling)==> [  ] \"\" ( )\n").find("f:3: port 1 of leaf stands there twice; the first is line 2"), std::string::npos);
  EXPECT_TRUE(read_wiring(std::string(posted::kIblinkinfoLines) + "0x0c42a103008d7a10 \"leaf\" 2 9[  ] ==( 4X", "t").partial);
}

}  // namespace
}  // namespace wirewise
