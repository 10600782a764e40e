// What ibstat and ibv_devinfo say of a host's adapters.
#include <gtest/gtest.h>

#include "wiring/reader_fuzz.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {
namespace {

using field::fact;

/// Kind and Gbit/s of the network that a NIC leads to; "none" where it leads to none.
std::string network(const Reading& reading, std::string_view nic) {
  const int index = find_device(reading.wiring, nic);
  for (const Link& link : reading.wiring.links) {
    if (link.from == index && link.kind != LinkKind::kPcie) return std::string(name_of(link.kind)) + " " + std::to_string(static_cast<int>(link.spec * 8 / 1e9 + 0.5)) + " " + std::string(name_of(link.provenance));
  }
  return "none";
}

TEST(ReadIbstat, RefusesWhatIsNoRateAndSaysWhere) {
  try {
    (void)read_wiring("CA 'a'\n  Port 1:\n\tState: Active\n\tRate: fast\n", "t");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.sentence(), "t:4:8: fast is no rate in Gbit/s.");
  }
  EXPECT_THROW((void)read_wiring("CA 'a'\nCA 'a'\n", "t"), Error);
}

TEST(ReadIbstat, ACutFileIsPartial) {
  const Reading reading = read_wiring("CA 'a'\n  CA type: MT4129\n  Port 1:\n\tState: Acti", "t");
  EXPECT_TRUE(reading.partial);
  EXPECT_FALSE(read_wiring("CA 'a'\n  Port 1:\n\tState: Active\n\tRate: 2.5\n\tLink layer: InfiniBand\n", "t").partial);
}

TEST(ReadIbstat, TheFieldsAdapters) {
  WIREWISE_NEEDS_FIELD();
  const Reading roce = field::read("smi/ibstat-cx7-roce-400.txt");
  EXPECT_EQ(roce.format, Format::kIbstat);
  EXPECT_EQ(network(roce, "mlx5_0"), "ethernet 400 driver");
  EXPECT_EQ(fact(roce, "mlx5_0 port 1", "link layer"), "Ethernet (RoCE)");
  EXPECT_EQ(fact(roce, "mlx5_0", "firmware"), "28.39.1002");
  EXPECT_TRUE(roce.notes.empty());

  const Reading down = field::read("smi/ibstat-cx7-down-rate40-eth.txt");
  EXPECT_EQ(network(down, "mlx5_0"), "none");
  EXPECT_EQ(fact(down, "mlx5_0 port 1", "state"), "Down");
  ASSERT_EQ(down.notes.size(), 1U);
  EXPECT_NE(down.notes[0].text.find("mlx5_0 port 1 is down"), std::string::npos);

  const Reading two = field::read("smi/ibstat-cx8-down-and-cx7-rate100-spaces.txt");
  EXPECT_EQ(devices_of(two.wiring, DeviceKind::kNic).size(), 2U);
  EXPECT_EQ(network(two, "mlx5_1"), "none");
  EXPECT_EQ(network(two, "mlx5_2"), "infiniband 100 driver");
  EXPECT_EQ(fact(two, "mlx5_1", "type"), "MT4131");

  EXPECT_EQ(network(field::read("smi/ibstat-mlx4-fdr56.txt"), "mlx4_0"), "infiniband 56 driver");
}

TEST(ReadIbvDevinfo, RateIsWidthTimesSpeed) {
  const Reading reading = read_wiring("hca_id:\tm\n\tport:\t1\n\t\tstate:\tPORT_ACTIVE (4)\n\t\tactive_width:\t4X (2)\n\t\tactive_speed:\t50.0 Gbps (64)\n\t\tlink_layer:\tInfiniBand\n", "t");
  EXPECT_EQ(network(reading, "m"), "infiniband 200 driver");
  EXPECT_FALSE(reading.partial);
}

TEST(ReadIbvDevinfo, TheFieldsDevices) {
  WIREWISE_NEEDS_FIELD();
  const Reading azure = field::read("smi/ibv_devinfo-azure-vf-plus-mana.txt");
  EXPECT_EQ(devices_of(azure.wiring, DeviceKind::kNic).size(), 2U);
  EXPECT_TRUE(azure.partial);  // cut within mlx5_1
  EXPECT_EQ(fact(azure, "mlx5_0", "firmware"), "20.31.1014");
  EXPECT_EQ(fact(azure, "mlx5_0 port 1", "active MTU"), "4096");
  EXPECT_EQ(network(azure, "mlx5_0"), "infiniband 100 assumed");

  const Reading active = field::read("smi/ibv_devinfo-cx6-ib-active.txt");
  EXPECT_FALSE(active.partial);
  EXPECT_EQ(fact(active, "mlx5_0 port 1", "state"), "PORT_ACTIVE");

  const Reading down = field::read("smi/ibv_devinfo-port-down-eth-plus-iwarp.txt");
  EXPECT_EQ(network(down, "mlx5_0"), "none");
  EXPECT_EQ(fact(down, "mlx5_0 port 1", "active MTU"), "1024");
  EXPECT_EQ(fact(down, "cxgb4_0", "transport"), "iWARP");
  EXPECT_TRUE(down.partial);  // cxgb4_0 stops at its firmware
}

TEST(ReadIbstat, SurvivesAnyText) {
  std::vector<std::string> samples = fuzz::with_field({}, "smi", "ibstat");
  samples.push_back("CA 'a'\n\tCA type: MT1\n\tPort 1:\n\t\tState: Active\n\t\tRate: 400\n\t\tLink layer: Ethernet\nCA 'b'\n");
  fuzz::run_reader(samples, [](const std::string& text) { return read_ibstat(text, "fuzz"); });
}

TEST(ReadIbvDevinfo, SurvivesAnyText) {
  std::vector<std::string> samples = fuzz::with_field({}, "smi", "ibv_devinfo");
  samples.push_back("hca_id:\tm\n\tfw_ver:\t1\n\tport:\t1\n\t\tstate:\tPORT_ACTIVE (4)\n\t\tactive_width:\t4X (2)\n\t\tactive_speed:\t50.0 Gbps (64)\n\t\tlink_layer:\tInfiniBand\n");
  fuzz::run_reader(samples, [](const std::string& text) { return read_ibv_devinfo(text, "fuzz"); });
}

}  // namespace
}  // namespace wirewise
