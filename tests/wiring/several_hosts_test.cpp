// One command's output of several hosts: labels before lines, in any order, and heads before blocks.
#include "wirewise/wiring/several_hosts.h"

#include <gtest/gtest.h>

#include <random>

#include "wiring/field.h"
#include "wiring/posted_samples.h"
#include "wirewise/wiring/host_texts.h"
#include "wirewise/wiring/text_lines.h"
#include "wirewise/wiring/write.h"

namespace wirewise {
namespace {

using field::fact;
using field::noted;
using field::refusal;

constexpr std::string_view kBridged =
    "        GPU0    GPU1    CPU Affinity    NUMA Affinity\n"
    "GPU0     X      NV4     0-11            0\n"
    "GPU1    NV4      X      0-11            0\n";
constexpr std::string_view kApart =
    "        GPU0    GPU1    CPU Affinity    NUMA Affinity\n"
    "GPU0     X      SYS     0-11            0\n"
    "GPU1    SYS      X      12-23           1\n";

std::vector<std::string> labelled(std::string_view text, const std::string& label) {
  std::vector<std::string> lines;
  for (const TextLine& line : text_lines(text)) lines.push_back(label + line.text + "\n");
  return lines;
}

std::string mixed(std::vector<std::vector<std::string>> hosts, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  for (;;) {
    std::erase_if(hosts, [](const auto& lines) { return lines.empty(); });
    if (hosts.empty()) return text;
    auto& lines = hosts[random() % hosts.size()];
    text += lines.front();
    lines.erase(lines.begin());
  }
}

std::vector<std::string> hosts(const Reading& reading) {
  std::vector<std::string> names;
  for (const int host : devices_of(reading.wiring, DeviceKind::kHost)) names.push_back(reading.wiring.devices[static_cast<std::size_t>(host)].name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string relation(const Reading& reading, const std::string& host, const char* a, const char* b) {
  for (const int at : devices_of(reading.wiring, DeviceKind::kHost)) {
    const Device& device = reading.wiring.devices[static_cast<std::size_t>(at)];
    if (device.name == host) return name_of(Relations(reading.wiring).between(find_device(reading.wiring, a, device.host), find_device(reading.wiring, b, device.host)));
  }
  return "no such host";
}

TEST(SeveralHosts, LinesOfHostsBetweenEachOther) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const Reading reading = read_wiring(mixed({labelled(kBridged, "gpu1: "), labelled(kApart, "gpu2: "), labelled(kBridged, "gpu10.lab: ")}, seed), "t");
    EXPECT_EQ(hosts(reading), (std::vector<std::string>{"gpu1", "gpu10.lab", "gpu2"}));
    EXPECT_EQ(relation(reading, "gpu1", "GPU0", "GPU1"), "NV4");
    EXPECT_EQ(relation(reading, "gpu10.lab", "GPU0", "GPU1"), "NV4");
    EXPECT_EQ(relation(reading, "gpu2", "GPU0", "GPU1"), "SYS");
    EXPECT_TRUE(noted(reading, "how the hosts are joined isn't said"));
  }
}

TEST(SeveralHosts, APartThatIsCutOffMakesTheWholePartial) {
  const std::string cut = "        GPU0    GPU1    CPU Affinity    NUMA Affinity\nGPU0     X      NV4     0-11            0\n";
  EXPECT_FALSE(read_wiring(mixed({labelled(kBridged, "gpu1: "), labelled(kApart, "gpu2: ")}, 1), "t").partial);
  EXPECT_TRUE(read_wiring(mixed({labelled(cut, "gpu1: "), labelled(kApart, "gpu2: ")}, 1), "t").partial);
  EXPECT_TRUE(read_wiring(mixed({labelled(kBridged, "gpu1: "), labelled(cut, "gpu2: ")}, 1), "t").partial);
}

TEST(SeveralHosts, WhatIsWrongWithMoreThanOneIsSaidOnceWithItsRemedy) {
  Reading of_one = read_wiring("GPU 0: NVIDIA H100 (UUID: GPU-a)\n", "t");
  of_one.notes.push_back({0, 0, "the clock is wrong.", "Set it."});
  std::string text;
  for (const char* name : {"n1", "n2"}) {
    of_one.wiring.devices[0].name = name;
    text += std::string(name) + ": " + write_json(of_one) + "\n";
  }
  const Reading reading = read_wiring(text, "t");
  ASSERT_EQ(hosts(reading), (std::vector<std::string>{"n1", "n2"}));
  EXPECT_TRUE(field::remedied(reading, "n1, n2: the clock is wrong."));
}

TEST(SeveralHosts, TasksOfSrunAndRanksOfMpirun) {
  for (const auto& [first, second] : {std::pair{" 0: ", "12: "}, std::pair{"[1,0]<stdout>:", "[1,12]<stdout>:"}}) {
    const Reading reading = read_wiring(mixed({labelled(kBridged, first), labelled(kApart, second)}, 7), "t");
    EXPECT_EQ(hosts(reading), (std::vector<std::string>{"task0", "task12"})) << first;
    EXPECT_EQ(relation(reading, "task12", "GPU0", "GPU1"), "SYS");
    EXPECT_TRUE(noted(reading, "labels are numbers of tasks"));
  }
}

TEST(SeveralHosts, BlocksOfDshbakAndClush) {
  const std::string rule = "---------------\n";
  const Reading reading = read_wiring("$ clush -bw gpu[1-4] nvidia-smi topo -m\n" + rule + "gpu[1-3] (3)\n" + rule + std::string(kBridged) + rule + "gpu4\n" + rule + std::string(kApart), "t");
  EXPECT_EQ(hosts(reading), (std::vector<std::string>{"gpu1", "gpu2", "gpu3", "gpu4"}));
  EXPECT_EQ(relation(reading, "gpu3", "GPU0", "GPU1"), "NV4");
  EXPECT_EQ(relation(reading, "gpu4", "GPU0", "GPU1"), "SYS");
}

TEST(SeveralHosts, HeadsOfAnsible) {
  const Reading reading = read_wiring(
      "a1 | CHANGED | rc=0 >>\n" + std::string(kBridged) + "a2 | UNREACHABLE! => {\n    \"changed\": false\n}\na3 | FAILED | rc=127 >>\nno such command\na4 | SUCCESS | rc=0 >>\n" + std::string(posted::kNvidiaReport), "t");
  EXPECT_EQ(hosts(reading), (std::vector<std::string>{"a1", "a4"}));
  EXPECT_TRUE(reading.partial);
  EXPECT_TRUE(noted(reading, "a2: what it printed"));
  EXPECT_TRUE(noted(reading, "a3: what it printed"));
  EXPECT_EQ(fact(reading, "a4 GPU0", "ECC"), "Enabled");
  EXPECT_EQ(fact(reading, "a4", "driver"), "535.104.05");
  EXPECT_TRUE(noted(reading, "a4: GPU0 is divided by MIG"));
}

TEST(SeveralHosts, NetworksThatHostsNameAlikeAreOne) {
  const auto ibstat = [](const char* guid) { return "CA 'mlx5_0'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Active\n\t\tRate: 400\n\t\tLink layer: InfiniBand\n\t\tPort GUID: " + std::string(guid) + "\n"; };
  const Reading reading = read_wiring(mixed({labelled(ibstat("0x1"), "n1: "), labelled(ibstat("0x2"), "n2: ")}, 3), "t");
  EXPECT_EQ(hosts(reading), (std::vector<std::string>{"n1", "n2"}));
  EXPECT_EQ(field::count(reading, DeviceKind::kSwitch), 1U);
  EXPECT_EQ(field::count(reading, DeviceKind::kNic), 2U);
  EXPECT_EQ(fact(reading, "n2 mlx5_0 port 1", "state"), "Active");
  EXPECT_FALSE(noted(reading, "how the hosts are joined"));
}

TEST(SeveralHosts, DevicesThatAreCalledAsTheirHost) {
  const std::string ibstat = "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tRate: 400\n\t\tLink layer: InfiniBand\n";
  const Reading reading = read_wiring(mixed({labelled(ibstat, "mlx5_0: "), labelled(ibstat, "n2: ")}, 5), "t");
  EXPECT_EQ(hosts(reading), (std::vector<std::string>{"mlx5_0", "n2"}));
  EXPECT_GE(find_device(reading.wiring, "mlx5_0'", 0) + find_device(reading.wiring, "mlx5_0'", 1), 0);
  EXPECT_EQ(field::count(reading, DeviceKind::kNic), 2U);
}

TEST(SeveralHosts, PlacesAreThoseOfTheWholeText) {
  const std::string text = mixed({labelled(kBridged, "gpu1: "), labelled("GPU0 GPU1\nGPU0 X WHAT\nGPU1 WHAT X\n", "gpu2: ")}, 1);
  const Reading reading = read_wiring(text, "t");
  EXPECT_EQ(hosts(reading), (std::vector<std::string>{"gpu1"}));
  EXPECT_TRUE(noted(reading, "t (gpu2):2:8: WHAT is no connection"));
  const std::vector<HostText> parts = host_texts(text);
  ASSERT_EQ(parts.size(), 2U);
  const auto lines = text_lines(text);
  for (const HostText& part : parts) {
    const auto own = text_lines(part.text);
    ASSERT_EQ(own.size(), part.lines.size());
    for (std::size_t i = 0; i < own.size(); ++i) EXPECT_TRUE(lines[static_cast<std::size_t>(part.lines[i]) - 1].text.ends_with(own[i].text));
  }
}

TEST(SeveralHosts, OtherTextsAreLeftAlone) {
  for (const std::string_view text : {posted::kNvidiaReport, posted::kNvidiaXml, posted::kRocmTopo, posted::kIblinkinfo, posted::kHwloc, posted::kNvidiaTable, kBridged}) EXPECT_TRUE(host_texts(text).empty());
  EXPECT_EQ(read_wiring("hca_id: mlx5_0\ntransport: InfiniBand (0)\nphys_port_cnt: 1\nport: 1\nstate: PORT_ACTIVE (4)\nlink_layer: InfiniBand\n", "t").format, Format::kIbvDevinfo);
}

TEST(SeveralHosts, OneHostsLabelIsItsName) {
  for (const char* label : {"node7: ", "gpu-3.lab: "}) {
    const Reading reading = read_wiring(mixed({labelled(kBridged, label)}, 1), "t");
    const std::string name = std::string(label).substr(0, std::string_view(label).size() - 2);
    ASSERT_EQ(devices_of(reading.wiring, DeviceKind::kHost).size(), 1U);
    EXPECT_NE(find_device(reading.wiring, name), -1) << name;
    EXPECT_TRUE(noted(reading, "all lines begin with " + name + ", which is taken for the host's name"));
    EXPECT_FALSE(reading.partial);
  }
  const Reading one = read_wiring(mixed({labelled(kBridged, "0: ")}, 1), "t");  // a task's number names nothing
  EXPECT_NE(find_device(one.wiring, "host0"), -1);
}

}  // namespace
}  // namespace wirewise
