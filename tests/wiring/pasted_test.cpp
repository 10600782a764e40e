// Outputs as people pass them on: quoted, fenced, prefixed, mixed with prose, out of old and new versions.
#include "wirewise/wiring/pasted.h"

#include <gtest/gtest.h>

#include "wiring/reader_fuzz.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/nccl_log.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/relation.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

using field::fact;

constexpr std::string_view kMatrix =
    "        GPU0    GPU1    GPU2    CPU Affinity    NUMA Affinity\n"
    "GPU0     X      NV4     SYS     0-11            0\n"
    "GPU1    NV4      X      SYS     0-11            0\n"
    "GPU2    SYS     SYS      X      12-23           1\n";

/// Each line of `text` behind `start`.
std::string each_behind(std::string_view text, const std::string& start) {
  std::string made;
  for (const TextLine& line : text_lines(text)) made += start + line.text + "\n";
  return made;
}

std::string relation(const Reading& reading, const char* a, const char* b) {
  const Relations relations(reading.wiring);
  return name_of(relations.between(find_device(reading.wiring, a, 0), find_device(reading.wiring, b, 0)));
}

void expect_matrix(const Reading& reading) {
  EXPECT_EQ(reading.format, Format::kNvidiaTopo);
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "NV4");
  EXPECT_EQ(relation(reading, "GPU0", "GPU2"), "SYS");
  const int gpu = find_device(reading.wiring, "GPU2", 0);
  ASSERT_GE(gpu, 0);
  EXPECT_EQ(reading.wiring.devices[static_cast<std::size_t>(gpu)].numa, 1);
}

std::string refusal(std::string_view text) {
  try {
    (void)read_wiring(text, "t");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::vector<std::string> hosts(const Reading& reading) {
  std::vector<std::string> names;
  for (const int host : devices_of(reading.wiring, DeviceKind::kHost)) names.push_back(reading.wiring.devices[static_cast<std::size_t>(host)].name);
  return names;
}

TEST(Pasted, QuotesLabelsAndTimesAreNoPartOfTheText) {
  for (const char* start : {"> ", "> > ", "+", "[trainer-0] ", "gpu7: ", "[1,0]<stdout>:", "2031-02-03T04:05:06.789Z ", "2031-02-03 04:05:06,789 ", "2031-02-03T04:05:06Z gpu7: "}) {
    SCOPED_TRACE(start);
    expect_matrix(read_wiring(each_behind(kMatrix, start), "t"));
  }
  // Places stay those of the text as it was given.
  EXPECT_NE(refusal("> GPU0 GPU1\n> GPU0 X NV2\n> GPU1 OH X\n").find("t:3:8:"), std::string::npos);
}

TEST(Pasted, FencesAndProse) {
  const std::string nodes = "SwitchName=leaf0 Nodes=n[0-3]\nSwitchName=leaf1 Nodes=n[4-7]\nSwitchName=top Switches=leaf[0-1]\n";
  EXPECT_EQ(hosts(read_wiring("We have a tree like this\n```\n" + nodes + "```\nand jobs are slow.\n", "t")).size(), 8U);
  EXPECT_EQ(hosts(read_wiring("We have a tree like this\n```conf\n" + nodes, "t")).size(), 8U);   // its end is missing
  EXPECT_EQ(hosts(read_wiring(nodes + "```\n", "t")).size(), 8U);                                // its begin
  EXPECT_EQ(hosts(read_wiring("[ops@head ~]$ scontrol show topology\n" + nodes + "[ops@head ~]$ \n", "t")).size(), 8U);
  EXPECT_NE(refusal("We have a tree like this\n" + nodes).find("t:1:1: We has no value"), std::string::npos);  // what is prose is anyone's guess
}

TEST(Pasted, MarkdownTablesAndHeadsBehindTheirCommand) {
  std::string table;
  for (const TextLine& line : text_lines(kMatrix)) {
    table += "|";
    for (const Word& word : words_of(line)) table += " " + word.text + (word.text == "CPU" || word.text == "NUMA" ? "" : " |");
    table += "\n";
    if (line.number == 1) table += "|---|---|---|:-:|---|\n";
  }
  expect_matrix(read_wiring("What we see:\n\n" + table, "t"));
  expect_matrix(read_wiring("nvidia-smi topo -m " + std::string(kMatrix.substr(8)), "t"));
}

TEST(Pasted, EntitiesAndProseRoundXml) {
  const std::string xml =
      "<system version=\"1\">\n  <cpu numaid=\"1\" affinity=\"f0\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"106\">\n"
      "    <pci busid=\"0000:41:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"8\">\n      <gpu dev=\"0\" sm=\"86\"/>\n    </pci>\n  </cpu>\n</system>\n";
  std::string escaped = xml;
  for (const auto& [from, to] : {std::pair{"<", "&lt;"}, std::pair{">", "&gt;"}, std::pair{"\"", "&quot;"}}) {
    for (std::size_t at = escaped.find(from); at != std::string::npos; at = escaped.find(from, at + 4)) escaped.replace(at, 1, to);
  }
  for (const std::string& text : {xml, escaped, "This is the dump:\n\n" + xml, "root@box:/tmp# cat topo.txt\n" + xml,
                                 "bash -c \"cat > /opt/topo.xml\" <<'EOF'\n" + xml + "EOF\n\nbash -c \"cat > /opt/graph.xml\" <<'EOF'\n<graphs version=\"1\">\n</graphs>\nEOF\n"}) {
    const Reading reading = read_wiring(text, "t");
    const int gpu = find_device(reading.wiring, "GPU0", 0);
    ASSERT_GE(gpu, 0) << text;
    EXPECT_EQ(reading.wiring.devices[static_cast<std::size_t>(gpu)].pci, "0000:41:00.0");
  }
}

TEST(Pasted, Utf16OfWindowsShells) {
  std::string wide = "\xff\xfe";
  for (const char c : std::string("GPU 0: NVIDIA RTX A2000 (UUID: GPU-1)\r\n")) wide += {c, '\0'};
  const Reading reading = read_wiring(wide, "t");
  EXPECT_EQ(reading.format, Format::kNvidiaList);
  EXPECT_EQ(reading.wiring.devices[1].model, "NVIDIA RTX A2000");
  EXPECT_EQ(utf8_of("\xff\xfe\x2d\x4e"
                    "A\0"
                    "\xe9\0"),
            "\xe4\xb8\xad");  // the literal ends at its zero byte
}

TEST(Pasted, LinesLeftOutMakeItPartial) {
  for (const char* gap : {"...", "......", "[...]", "<...>", "\xe2\x80\xa6"}) EXPECT_TRUE(is_gap(gap)) << gap;
  for (const char* line : {"", "..", ".", "a...", "0"}) EXPECT_FALSE(is_gap(line)) << line;
  const Reading reading = read_wiring("GPU 0: NVIDIA X (UUID: GPU-1)\n   Link 0: 25 GB/s\n...\n", "t");
  EXPECT_TRUE(reading.partial);
}

TEST(Pasted, OtherToolsOutputsAreNamed) {
  EXPECT_NE(refusal("mlx5_3 port 1 ==> ib3 (Up)\n").find("ibstat"), std::string::npos);
  EXPECT_NE(refusal("GPU Topology Information\n").find("topo -m"), std::string::npos);
  EXPECT_NE(refusal("n:1:2 [0] NCCL INFO Using network IB\n").find("doctor nccl"), std::string::npos);
  EXPECT_NE(refusal("Please help, it is slow.\n").find("none of the formats"), std::string::npos);
}

TEST(Pasted, SurvivesAnyText) {
  const std::vector<std::string> samples{each_behind(kMatrix, "2031-02-03T04:05:06Z gpu7: "), "prose\n```diff\n+" + each_behind(kMatrix, "+") + "```\n<details>\n", "x@y:~# z\n&lt;system version=&quot;1&quot;&gt;\n",
                                         "| GPU0 | GPU1 |\n|---|---|\n| GPU0 | X |\n", "NodeName=a[1-3] Gres=gpu:8 \\\n  CPUs=4\n", std::string("\xff\xfeG\0P\0", 6)};
  fuzz::run(samples, {"```", "> ", "+", "|", "&lt;", "\xff\xfe", "GPU0", "NodeName=", "[1-", "...", "root@h:~# "}, [](const std::string& text) {
    const std::string bare = unpasted(text);
    EXPECT_EQ(std::count(bare.begin(), bare.end(), '\n'), std::count(text.begin(), text.end(), '\n'));  // places hold
    EXPECT_LE(utf8_of(text).size(), 2 * text.size());
    (void)read_wiring(text, "fuzz");
  });
}

TEST(OldAndNew, NodesOfGraceAreThoseOfItsCpus) {
  const Reading reading = read_wiring(
      "        GPU0    GPU1    GPU2    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
      "GPU0     X      NV18    NV18    0-71            0,4-6           4\n"
      "GPU1    NV18     X      NV18    0-71            0,4-6           12\n"
      "GPU2    NV18    NV18     X      72-143          1,20-22         20\n",
      "t");
  for (const auto& [name, numa] : {std::pair{"GPU0", 0}, std::pair{"GPU1", 0}, std::pair{"GPU2", 1}}) {
    EXPECT_EQ(reading.wiring.devices[static_cast<std::size_t>(find_device(reading.wiring, name, 0))].numa, numa) << name;
  }
  EXPECT_EQ(fact(reading, "GPU1", "NUMA node of its memory"), "12");
  EXPECT_EQ(fact(reading, "GPU1", "NUMA affinity"), "0,4-6");
}

TEST(OldAndNew, NvlinksFarEnds) {
  const std::string one = "GPU 0: NVIDIA H200 (UUID: GPU-a)\n  Link 0: Remote Device 00000000:0A:00.0: Link 4\n  Link 1: Remote Device 00000000:0B:00.0: Link 9\n  Link 2: Remote Device 00000000:0B:00.0: Link 8\n";
  const Reading alone = read_wiring(one, "t");
  EXPECT_TRUE(devices_of(alone.wiring, DeviceKind::kNvSwitch).empty());
  EXPECT_EQ(fact(alone, "GPU0", "NVLinks to 00000000:0B:00.0"), "2");
  const Reading both = read_wiring(one + "GPU 1: NVIDIA H200 (UUID: GPU-b)\n  Link 0: Remote Device 00000000:0A:00.0: Link 1\n  Link 1: Remote Device 00000000:0B:00.0: Link 2\n  Link 2: Remote Device 00000000:0B:00.0: Link 3\n", "t");
  ASSERT_EQ(devices_of(both.wiring, DeviceKind::kNvSwitch).size(), 1U);
  EXPECT_EQ(relation(both, "GPU0", "GPU1"), "NV3");
  // Two GPUs joined directly: each leads to the other.
  const Reading pair = read_wiring("GPU 0: A (UUID: a)\n  Link 0: Remote Device 00000000:02:00.0: Link 0\nGPU 1: A (UUID: b)\n  Link 0: Remote Device 00000000:01:00.0: Link 0\n", "t");
  EXPECT_TRUE(devices_of(pair.wiring, DeviceKind::kNvSwitch).empty());
  const Reading able = read_wiring("GPU 0: A (UUID: a)\n  Link 3, P2P is supported: true\n  Link 3, SLI is supported: false\n", "t");
  EXPECT_EQ(fact(able, "GPU0", "NVLink 3 P2P is supported"), "true");
}

TEST(OldAndNew, DevinfoWithoutALinkLayer) {
  const auto text = [](const std::string& name, const char* lid) {
    return "hca_id: " + name + "\n  transport: InfiniBand (0)\n  phys_port_cnt: 1\n    port: 1\n      state: PORT_ACTIVE (4)\n      active_mtu: 2048 (4)\n      port_lid: " + std::string(lid) + "\n";
  };
  EXPECT_EQ(fact(read_wiring(text("mlx4_0", "17"), "t"), "mlx4_0 port 1", "link layer"), "InfiniBand");
  EXPECT_EQ(fact(read_wiring(text("mlx4_0", "0"), "t"), "mlx4_0 port 1", "link layer"), "Ethernet (RoCE)");
  const Reading soft = read_wiring(text("rxe1", "0"), "t");
  EXPECT_FALSE(soft.partial);
  ASSERT_FALSE(soft.notes.empty());
  EXPECT_NE(soft.notes[0].text.find("software"), std::string::npos);
}

TEST(OldAndNew, LscpuInOtherLanguages) {
  for (const char* text : {"NUMA-Knoten: 2\nNUMA-Knoten0 CPU(s): 0-3\nNUMA-Knoten1 CPU(s): 4-7\nModellname: Toaster 9\n",
                           "NUMA \u8282\u70b9\uff1a 2\nNUMA \u8282\u70b90 CPU\uff1a 0-3\nNUMA \u8282\u70b91 CPU\uff1a 4-7\n\u578b\u53f7\u540d\u79f0\uff1a Toaster 9\n",
                           "N\u0153ud(s) NUMA : 2\nN\u0153ud NUMA 0 de processeur(s) : 0-3\nN\u0153ud NUMA 1 de processeur(s) : 4-7\nNom de mod\u00e8le : Toaster 9\n"}) {
    SCOPED_TRACE(text);
    const Reading reading = read_wiring(text, "t");
    EXPECT_EQ(reading.format, Format::kLscpu);
    EXPECT_FALSE(reading.partial);
    const int node = find_device(reading.wiring, "numa1", 0);
    ASSERT_GE(node, 0);
    EXPECT_EQ(reading.wiring.devices[static_cast<std::size_t>(node)].cpus, "4-7");
    EXPECT_EQ(reading.wiring.devices[0].model, "Toaster 9");
  }
  EXPECT_TRUE(read_wiring("NUMA-Knoten: 2\nNUMA-Knoten0 CPU(s): 0-3\n", "t").partial);
  EXPECT_NE(refusal("NUMA node0 CPU(s): 0-x\n").find("t:1:20: 0-x is no list of CPUs"), std::string::npos);
}

TEST(OldAndNew, AQueryEndsWhereOtherTextBegins) {
  const std::string rows = "index, name, pci.bus_id\n0, NVIDIA X, 00000000:41:00.0\n1, NVIDIA X, 00000000:42:00.0\n";
  for (const char* behind : {"```\n", "\n41:00.0 VGA compatible controller: NVIDIA, a card\n", "=== DRIVER ===\nKernel driver, nvidia\n"}) {
    const Reading reading = read_wiring(rows + behind, "t");
    EXPECT_EQ(devices_of(reading.wiring, DeviceKind::kGpu).size(), 2U) << behind;
  }
  // The command above it has the same words.
  for (const char* command : {"nvidia-smi --query-gpu=index,name,pci.bus_id --format=csv\n", "me@box:~$ nvidia-smi --query-gpu=index,name,pci.bus_id --format=csv\n"}) {
    EXPECT_EQ(devices_of(read_wiring(command + rows, "t").wiring, DeviceKind::kGpu).size(), 2U) << command;
  }
  const Reading bare = read_wiring("GeForce GTX 1070, 8119, GPU-1\n", "t");
  EXPECT_EQ(bare.wiring.devices[1].model, "GeForce GTX 1070");
  EXPECT_NE(refusal(rows + "2, NVIDIA X\n").find("t:4:1: the row has 2 cells, the head 3"), std::string::npos);
}

TEST(OldAndNew, GroupedFabricsHaveHeads) {
  const Reading reading = read_wiring(
      "Non-Chassis Nodes\n\nSwitch 8 \"S-00a1\" # \"leaf one\" base port 0 lid 2 lmc 0\n[1] \"H-00b1\"[1](b2) # \"node1 mlx5_0\" lid 5 4xEDR\n[2][ext 7] \"H-00c1\"[1](c2) # \"node2 mlx5_0\" lid 6 4xEDR\n", "t");
  EXPECT_EQ(hosts(reading), (std::vector<std::string>{"node1", "node2"}));
}

TEST(OldAndNew, FragmentsOfOneMachineAreOneHost) {
  const Reading reading = read_wiring(
      "<nvlink target=\"0000:0a:00.0\" count=\"4\" tclass=\"0x068000\"/>\n</gpu>\n</pci>\n</cpu>\n"
      "<cpu host_hash=\"0xab\" numaid=\"1\" affinity=\"f0\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"175\" modelid=\"17\">\n"
      "<pci busid=\"0000:21:00.0\" class=\"0x030200\"><gpu dev=\"1\" sm=\"80\"/></pci>\n</cpu>\n</system>\n",
      "t");
  EXPECT_EQ(hosts(reading).size(), 1U);
  EXPECT_EQ(devices_of(reading.wiring, DeviceKind::kGpu).size(), 2U);
}

TEST(OldAndNew, HostFilesOfHorovodAndMpich) {
  const Reading list = read_wiring("alpha:4,beta:2\n", "t");
  EXPECT_EQ(hosts(list), (std::vector<std::string>{"alpha", "beta"}));
  EXPECT_EQ(fact(list, "alpha", "slots"), "4");
  EXPECT_EQ(fact(list, "beta", "slots"), "2");
  EXPECT_NE(refusal("alpha:4,beta slots=2\n"), "accepted");
  const Reading hydra = read_wiring("alpha:2 binding=user:0,4 ifhn=ib1\nbeta ifhn=ib1\n", "t");
  EXPECT_EQ(hosts(hydra), (std::vector<std::string>{"alpha", "beta"}));
  EXPECT_EQ(fact(hydra, "alpha", "also stated"), "binding=user:0,4 ifhn=ib1");
}

TEST(OldAndNew, NodesOfSlurmConf) {
  const Reading reading = read_wiring(
      "ClusterName=lab\nNodeName=DEFAULT Sockets=2\nNodeName=gpu[01-02] Gres=gpu:h100:8 CPUs=96 \\\n  State=UNKNOWN # new\nnodename=login1 CPUs=8\nPartitionName=all Nodes=ALL\n", "t");
  EXPECT_EQ(reading.format, Format::kSlurmNodes);
  EXPECT_EQ(hosts(reading), (std::vector<std::string>{"gpu01", "gpu02", "login1"}));
  EXPECT_EQ(fact(reading, "gpu[01-02]", "Gres"), "gpu:h100:8");
  EXPECT_EQ(fact(reading, "gpu[01-02]", "State"), "UNKNOWN");
  const Reading shown = read_wiring("NodeName=a1 Arch=x86_64 CoresPerSocket=32 \n   CPUAlloc=0 CPUTot=64\n   Gres=gpu:4\n\nNodeName=a2 Arch=x86_64\n   Gres=gpu:2\n", "t");
  EXPECT_EQ(fact(shown, "a1", "Gres"), "gpu:4");
  EXPECT_EQ(fact(shown, "a2", "Gres"), "gpu:2");
  EXPECT_EQ(refusal("NodeName=a[1-\n"), "t:1:11: the bracket is never closed. A list looks like n[001-003,7],login.");
  EXPECT_NE(refusal("NodeName=a1\nNodeName=a1\n").find("t:2:10: a1 is described twice"), std::string::npos);
}

TEST(NcclDialects, TreesBefore25AndRcclsEnds) {
  const NcclLog old = read_nccl_log("h:1:9 [0] NCCL INFO Trees [0] 4->5->-1/-1/-1\nh:2:8 [1] NCCL INFO Trees [0] -1->4->5/-1/-1\n", "t");
  EXPECT_TRUE(old.notes.empty());
  ASSERT_EQ(old.communicators.size(), 1U);
  const auto& tree = old.communicators[0].trees.at(0);
  EXPECT_EQ(tree.at(5).up, 4);
  EXPECT_TRUE(tree.at(5).down.empty());
  EXPECT_EQ(tree.at(4).down, (std::vector<int>{5}));
  const NcclLog rccl = read_nccl_log("h:1:9 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 comm 0x7a nRanks 02 busId c3000\n", "t");
  EXPECT_TRUE(rccl.notes.empty());
  EXPECT_EQ(rccl.communicators[0].trees.at(0).at(0).down, (std::vector<int>{1}));
}

TEST(NcclDialects, PrefixesCutToTheDevice) {
  const NcclLog log = read_nccl_log(
      "[0] NCCL INFO [Rank 0] ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x9 - Init START\n"
      "[1] NCCL INFO [Rank 1] ncclCommInitRank comm 0x2 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 1c000 commId 0x9 - Init START\n"
      "[0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n",
      "t");
  ASSERT_EQ(log.communicators.size(), 1U);
  EXPECT_EQ(log.communicators[0].ranks.size(), 2U);
  EXPECT_EQ(log.communicators[0].ranks.at(1).device, 1);
}

TEST(NcclDialects, ArrowsOutOfAWebPage) {
  const NcclLog log = read_nccl_log("box:7:8 [1] NCCL INFO Channel 03/0 : 1[1] -&gt; 0[0] via SHM/direct/direct\n", "t");
  ASSERT_EQ(log.communicators.size(), 1U);
  EXPECT_EQ(log.communicators[0].links.count({1, 0}), 1U);
}

TEST(NcclDialects, SizesInLinesOfTheTopology) {
  const NcclLog log = read_nccl_log("[3] box:7:8 [1] NCCL INFO comm 0x5 rank 3 nRanks 12 nNodes 3 localRanks 4 localRank 3 MNNVL 0\n", "t");
  ASSERT_EQ(log.communicators.size(), 1U);
  EXPECT_EQ(log.communicators[0].size, 12);
  EXPECT_EQ(log.communicators[0].ranks.at(3).device, 1);
}

TEST(NcclDialects, AMessageBrokenOffGoesOnBelow) {
  const NcclLog log = read_nccl_log(
      "box:1:5 [0] NCCL INFO Using network IB\nbox:2:6 [1] NCCL INFO box:1:5 [0] NCCL INFO Ring 02 : 0[0] -> 1[1] via P2P/IPC\nRing 02 : 1[1] -> 0[0] via direct shared memory\n", "t");
  ASSERT_EQ(log.communicators.size(), 1U);
  const auto& links = log.communicators[0].links;
  ASSERT_EQ(links.count({1, 0}), 1U);
  EXPECT_EQ(links.at({1, 0}).begin()->first, "direct shared memory");
}

}  // namespace
}  // namespace wirewise
