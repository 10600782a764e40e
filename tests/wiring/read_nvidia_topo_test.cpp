// nvidia-smi topo -m as people post it: what a person sees in each file, and dialects by hand.
#include "wiring/field.h"

namespace wirewise {
namespace {

using field::count;
using field::device;
using field::fact;
using field::noted;
using field::refusal;
using field::relation;

/// Relations of a row with all columns, as the file prints them.
void expect_row(const Reading& reading, const std::string& row, const std::vector<std::string>& columns, const std::vector<std::string>& cells) {
  ASSERT_EQ(columns.size(), cells.size());
  for (std::size_t i = 0; i < columns.size(); ++i) EXPECT_EQ(relation(reading, row, columns[i]), cells[i]) << row << " " << columns[i];
}

std::vector<std::string> gpus(int from, int to) {
  std::vector<std::string> names;
  for (int i = from; i < to; ++i) names.push_back("GPU" + std::to_string(i));
  return names;
}

void expect_all(const Reading& reading, const std::vector<std::string>& names, const std::string& what) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_EQ(relation(reading, names[i], names[j]), what) << names[i] << " " << names[j];
  }
}

void expect_near(const Reading& reading, const std::vector<std::string>& names, int numa, const std::string& cpus) {
  for (const std::string& name : names) {
    EXPECT_EQ(device(reading, name).numa, numa) << name;
    EXPECT_EQ(device(reading, name).cpus, cpus) << name;
  }
}

void expect_clean(const Reading& reading) {
  EXPECT_FALSE(reading.partial);
  for (const Note& note : reading.notes) ADD_FAILURE() << note.line << ": " << note.text;
}

TEST(ReadNvidiaTopo, TreeSaysWhatTheMatrixSays) {
  const Reading reading = read_wiring(
      "\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
      "GPU0\t X \tNV4\tSYS\tPIX\t0-31\t0\t\tN/A\n"
      "GPU1\tNV4\t X \tSYS\tPXB\t0-31\t0\t\tN/A\n"
      "GPU2\tSYS\tSYS\t X \tSYS\t32-63\t1\t\tN/A\n"
      "NIC0\tPIX\tPXB\tSYS\t X \t\t\t\t\n"
      "\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n",
      "pasted");
  expect_clean(reading);
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "NV4");
  EXPECT_EQ(relation(reading, "GPU0", "mlx5_0"), "PIX");
  EXPECT_EQ(relation(reading, "GPU1", "mlx5_0"), "PXB");
  EXPECT_EQ(relation(reading, "GPU2", "mlx5_0"), "SYS");
  EXPECT_EQ(device(reading, "mlx5_0").numa, 0);
  EXPECT_EQ(device(reading, "GPU2").cpus, "32-63");
}

TEST(ReadNvidiaTopo, OneGpuFourNicsMangled) {
  WIREWISE_FIELD(reading, "topo/1gpu-4nic-mangled-mixed-tabs.txt");
  expect_clean(reading);
  expect_row(reading, "GPU0", {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}, {"SYS", "SYS", "NODE", "NODE"});
  expect_row(reading, "mlx5_1", {"mlx5_0", "mlx5_2"}, {"PIX", "SYS"});
  EXPECT_EQ(relation(reading, "mlx5_2", "mlx5_3"), "PIX");
  expect_near(reading, {"GPU0"}, 1, "64-127,192-255");
  EXPECT_EQ(device(reading, "mlx5_2").numa, 1);
  EXPECT_EQ(device(reading, "mlx5_0").numa, -1);
}

TEST(ReadNvidiaTopo, PairsOfGpus) {
  struct Case {
    const char *file, *relation, *cpus;
    int numa;
  };
  for (const Case& one : {Case{"topo/2gpu-2080ti-nv2-short-legend.txt", "NV2", "0-3", 0}, Case{"topo/2gpu-5090-phb.txt", "PHB", "0-63", 0},
                          Case{"topo/2gpu-nv2-desktop-numaid.txt", "NV2", "0-23", 0}, Case{"topo/2gpu-nv2-numa-na-stas.txt", "NV2", "0-23", -1},
                          Case{"topo/2gpu-rtxpro6000-node-no-legend.txt", "NODE", "0-31", 0}}) {
    WIREWISE_FIELD(reading, one.file);
    SCOPED_TRACE(one.file);
    expect_clean(reading);
    EXPECT_EQ(count(reading, DeviceKind::kGpu), 2U);
    EXPECT_EQ(count(reading, DeviceKind::kNic), 0U);
    EXPECT_EQ(relation(reading, "GPU0", "GPU1"), one.relation);
    expect_near(reading, gpus(0, 2), one.numa, one.cpus);
  }
}

TEST(ReadNvidiaTopo, PairsOfGpusWithNics) {
  {
    WIREWISE_FIELD(reading, "topo/2gpu-4090-2nic-hand-edited.txt");
    expect_clean(reading);
    expect_row(reading, "GPU0", {"GPU1", "NIC0", "NIC1"}, {"NODE", "NODE", "NODE"});
    EXPECT_EQ(relation(reading, "NIC0", "NIC1"), "PIX");
    EXPECT_EQ(device(reading, "NIC1").numa, 0);
  }
  WIREWISE_FIELD(reading, "topo/2gpu-nv1-mlx5-phb-old-legend.txt");
  expect_clean(reading);
  expect_row(reading, "GPU1", {"GPU0", "mlx5_0"}, {"NV1", "PHB"});
  expect_near(reading, gpus(0, 2), -1, "0-7");
}

TEST(ReadNvidiaTopo, ThreeAndFourGpus) {
  {
    WIREWISE_FIELD(reading, "topo/3gpu-a6000-nv4-bridge-plus-node.txt");
    expect_clean(reading);
    EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "NV4");
    expect_row(reading, "GPU2", {"GPU0", "GPU1"}, {"NODE", "NODE"});
    expect_near(reading, gpus(0, 3), 0, "0-31,64-95");
  }
  {
    WIREWISE_FIELD(reading, "topo/4gpu-node-only-0-119.txt");
    expect_clean(reading);
    expect_all(reading, gpus(0, 4), "NODE");
    expect_near(reading, gpus(0, 4), 0, "0-119");
  }
  WIREWISE_FIELD(reading, "topo/4gpu-v100-nv1-nv2-mlx5-no-numa.txt");
  expect_clean(reading);
  expect_row(reading, "GPU0", {"GPU1", "GPU2", "GPU3", "mlx5_0"}, {"NV1", "NV1", "NV2", "SYS"});
  expect_row(reading, "GPU2", {"GPU1", "GPU3", "mlx5_0"}, {"NV2", "NV2", "SYS"});
  EXPECT_EQ(count(reading, DeviceKind::kNvSwitch), 0U);
}

TEST(ReadNvidiaTopo, EightBehindNvswitches) {
  for (const auto& [file, what] : {std::pair{"topo/8gpu-a100-reformatted-narrow-stas.txt", "NV12"}, std::pair{"topo/8gpu-h100-reformatted-narrow-stas.txt", "NV18"}}) {
    WIREWISE_FIELD(reading, file);
    expect_clean(reading);
    expect_all(reading, gpus(0, 8), what);
    EXPECT_EQ(count(reading, DeviceKind::kNvSwitch), 1U);
    const bool a100 = std::string(what) == "NV12";
    expect_near(reading, gpus(0, 4), 0, a100 ? "0-23" : "0-51");
    expect_near(reading, gpus(4, 8), 1, a100 ? "24-47" : "52-103");
  }
}

TEST(ReadNvidiaTopo, EightOverPcie) {
  {
    WIREWISE_FIELD(reading, "topo/8gpu-pcie-cloud-node-sys.txt");
    expect_clean(reading);
    expect_all(reading, gpus(0, 4), "NODE");
    expect_all(reading, gpus(4, 8), "NODE");
    expect_row(reading, "GPU3", gpus(4, 8), {"SYS", "SYS", "SYS", "SYS"});
    expect_near(reading, gpus(0, 4), 0, "0-31,64-95");
    expect_near(reading, gpus(4, 8), 1, "32-63,96-123");
  }
  WIREWISE_FIELD(reading, "topo/8gpu-pix-node-axolotl536.txt");
  expect_clean(reading);
  expect_all(reading, gpus(0, 4), "PIX");
  expect_all(reading, gpus(4, 8), "PIX");
  expect_row(reading, "GPU0", gpus(4, 8), {"NODE", "NODE", "NODE", "NODE"});
  expect_near(reading, gpus(0, 8), 0, "0-23,48-71");
}

TEST(ReadNvidiaTopo, Dgx1IsAHybridCubeMesh) {
  WIREWISE_FIELD(reading, "topo/dgx1-v100-msccl-tabs.txt");
  expect_clean(reading);
  expect_row(reading, "GPU0", gpus(1, 8), {"NV1", "NV1", "NV2", "NV2", "SYS", "SYS", "SYS"});
  expect_row(reading, "GPU5", gpus(0, 5), {"SYS", "NV2", "SYS", "SYS", "NV1"});
  expect_row(reading, "GPU0", {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}, {"PIX", "PHB", "SYS", "SYS"});
  expect_row(reading, "GPU6", {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}, {"SYS", "SYS", "PHB", "PIX"});
  expect_row(reading, "mlx5_0", {"mlx5_1", "mlx5_2"}, {"PHB", "SYS"});
  expect_near(reading, gpus(0, 4), -1, "0-19,40-59");
  expect_near(reading, gpus(4, 8), -1, "20-39,60-79");
}

TEST(ReadNvidiaTopo, EightV100WithOneNic) {
  {
    WIREWISE_FIELD(reading, "topo/v100-sxm2-16gb-x8-mlx5_0-spaces.txt");
    expect_clean(reading);
    expect_row(reading, "mlx5_0", gpus(0, 5), {"NODE", "NODE", "PIX", "PIX", "SYS"});
    EXPECT_EQ(relation(reading, "GPU2", "GPU6"), "NV1");
    expect_near(reading, gpus(4, 8), -1, "12-23,36-47");
  }
  WIREWISE_FIELD(reading, "topo/v100-sxm2-32gb-x8-nic0-numaid.txt");
  expect_clean(reading);
  expect_row(reading, "NIC0", gpus(0, 5), {"NODE", "NODE", "NODE", "NODE", "SYS"});
  expect_row(reading, "GPU3", gpus(4, 8), {"SYS", "SYS", "SYS", "NV1"});
  EXPECT_EQ(device(reading, "NIC0").numa, 0);
  expect_near(reading, gpus(0, 4), 0, "0-19,40-59");
  expect_near(reading, gpus(4, 8), 1, "20-39,60-79");
}

TEST(ReadNvidiaTopo, OneGpuAlone) {
  WIREWISE_FIELD(reading, "topo/single-gpu-dgx-spark-gb10.txt");
  expect_clean(reading);
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 1U);
  expect_near(reading, {"GPU0"}, 0, "0-19");
}

TEST(ReadNvidiaTopo, DgxA100OfWhichFourRowsAreThere) {
  WIREWISE_FIELD(reading, "topo/dgx-a100-40gb-12nic-nccl1505-first-rows.txt");
  EXPECT_TRUE(reading.partial);
  EXPECT_TRUE(noted(reading, "rows are missing: GPU4, GPU5, GPU6, GPU7, NIC0"));
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 8U);
  EXPECT_EQ(count(reading, DeviceKind::kNic), 12U);
  EXPECT_EQ(relation(reading, "GPU0", "GPU7"), "NV12");
  expect_row(reading, "GPU1", {"NIC0", "NIC1", "NIC2"}, {"PXB", "PXB", "SYS"});
  expect_row(reading, "GPU2", {"NIC1", "NIC2", "NIC3", "NIC11"}, {"SYS", "PXB", "PXB", "SYS"});
  expect_near(reading, gpus(0, 2), 3, "48-63,176-191");
  expect_near(reading, gpus(2, 4), 1, "16-31,144-159");
  EXPECT_EQ(device(reading, "NIC0").numa, 3);
  EXPECT_EQ(device(reading, "GPU5").numa, -1);
  EXPECT_EQ(relation(reading, "NIC8", "NIC9"), "?");  // no row speaks of it
}

TEST(ReadNvidiaTopo, Dgx2CutWithinALineOfCpus) {
  WIREWISE_FIELD(reading, "topo/dgx2-16gpu-10nic-nccltests78-truncated.txt");
  EXPECT_TRUE(reading.partial);
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 16U);
  EXPECT_EQ(count(reading, DeviceKind::kNic), 10U);
  EXPECT_EQ(relation(reading, "GPU0", "GPU15"), "NV6");
  EXPECT_EQ(relation(reading, "GPU14", "GPU15"), "NV6");  // through the NVSwitches
  expect_row(reading, "GPU2", {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_4"}, {"PXB", "PIX", "NODE", "SYS"});
  expect_row(reading, "GPU4", {"mlx5_0", "mlx5_2", "mlx5_3"}, {"NODE", "PIX", "PXB"});
  expect_near(reading, gpus(0, 4), -1, "0-23,48-71");
  EXPECT_EQ(device(reading, "GPU4").cpus, "");  // "0-23,4" is no whole list
  EXPECT_TRUE(noted(reading, "0-23,4 may be cut off"));
}

TEST(ReadNvidiaTopo, H100WhoseLastRowsAreMissing) {
  WIREWISE_FIELD(reading, "topo/h100-8gpu-9nic-nccl1453-last-rows-missing.txt");
  EXPECT_TRUE(reading.partial);
  EXPECT_TRUE(noted(reading, "rows are missing: NIC6, NIC7, NIC8."));
  EXPECT_TRUE(noted(reading, "cut off after its name"));
  expect_all(reading, gpus(0, 8), "NV18");
  const std::vector<std::string> nearest{"NIC8", "NIC7", "NIC6", "NIC5", "NIC4", "NIC3", "NIC2", "NIC1"};
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(relation(reading, "GPU" + std::to_string(i), nearest[static_cast<std::size_t>(i)]), "PIX");
    EXPECT_EQ(relation(reading, "GPU" + std::to_string(i), "NIC0"), "SYS");
  }
  expect_near(reading, gpus(0, 4), 0, "0-79");
  expect_near(reading, gpus(4, 8), 1, "80-159");
  EXPECT_EQ(device(reading, "NIC8").numa, 0);
  EXPECT_EQ(relation(reading, "NIC7", "NIC8"), "NODE");  // both are PIX to GPUs of node 0
}

TEST(ReadNvidiaTopo, EightWithMlx4Truncated) {
  WIREWISE_FIELD(reading, "topo/8gpu-mlx4-k8s53497-trailing-spaces-truncated.txt");
  EXPECT_TRUE(reading.partial);
  EXPECT_TRUE(noted(reading, "rows are missing: GPU5, GPU6, GPU7, mlx4_0."));
  expect_row(reading, "GPU0", {"GPU1", "GPU2", "GPU4", "mlx4_0"}, {"PIX", "PHB", "SYS", "PHB"});
  expect_row(reading, "GPU4", {"GPU5", "GPU6", "GPU7", "mlx4_0"}, {"PIX", "PHB", "PHB", "SYS"});
  expect_near(reading, gpus(0, 4), -1, "0-9,20-29");
}

TEST(ReadNvidiaTopo, CollectEnvWithTrimmedHeader) {
  WIREWISE_FIELD(reading, "topo/vllm-collectenv-trimmed-header-truncated.txt");
  EXPECT_TRUE(reading.partial);
  EXPECT_TRUE(noted(reading, "rows are missing: GPU7."));
  EXPECT_TRUE(noted(reading, "the row of GPU6 ends before the column of GPU7"));
  expect_row(reading, "GPU0", gpus(1, 5), {"PIX", "PXB", "PXB", "SYS"});
  expect_row(reading, "GPU4", gpus(5, 8), {"PIX", "PXB", "PXB"});
  expect_near(reading, gpus(0, 6), -1, "0-95");
}

TEST(ReadNvidiaTopo, PeerAccess) {
  {
    WIREWISE_FIELD(reading, "topo/2gpu-3090-p2p-rw-ok.txt");
    EXPECT_EQ(fact(reading, "GPU0-GPU1", "peer access"), "OK");
    EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "?");
  }
  {
    WIREWISE_FIELD(reading, "topo/2gpu-5090-p2p-rw-gns.txt");
    EXPECT_EQ(fact(reading, "GPU1-GPU0", "peer access"), "GNS");
  }
  WIREWISE_FIELD(reading, "topo/p2p-r-8xh100-ok.txt");
  EXPECT_EQ(reading.facts.size(), 56U);
  EXPECT_EQ(fact(reading, "GPU7-GPU3", "peer access"), "OK");
  EXPECT_EQ(count(reading, DeviceKind::kGpu), 8U);
}

TEST(ReadNvidiaTopo, EveryFileOfTheFieldIsRead) {
  for (const std::string& file : field::files("topo")) EXPECT_NO_THROW((void)read_wiring(*field::text(file), file)) << file;
}

// Dialects that no file has.

constexpr const char* kMatrix =
    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\n"
    "GPU0\t X \tNV4\tPIX\t0-31\t0\n"
    "GPU1\tNV4\t X \tNODE\t0-31\t0\n"
    "NIC0\tPIX\tNODE\t X \t\t\n";

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) text.replace(at, what.size(), with);
  return text;
}

TEST(ReadNvidiaTopo, TerminalsDialects) {
  const std::string matrix = kMatrix;
  const std::vector<std::string> dialects{
      replaced(replaced(matrix, "\tGPU0\tGPU1", "\t\x1b[4mGPU0\tGPU1"), "NUMA Affinity\n", "NUMA Affinity\x1b[0m\n"),
      replaced(matrix, "\n", "\r\n"),
      "\xef\xbb\xbf" + matrix,
      replaced(matrix, "\t", " \xc2\xa0 "),
      "root@node-17:~# nvidia-smi topo -m\n" + matrix + "root@node-17:~# \n",
      "node17\n\n" + matrix + "\nLegend:\n  X = Self\n  NODE = Connection traversing PCIe as well as the interconnect between PCIe\nHost Bridges within a NUMA\nnode\n\n\nNIC Legend:\n\n  NIC0: NIC0\n",
      "GPU0 is the one that hangs:\n" + matrix,
  };
  for (const std::string& text : dialects) {
    SCOPED_TRACE(text);
    const Reading reading = read_wiring(text, "f");
    expect_clean(reading);
    EXPECT_EQ(count(reading, DeviceKind::kGpu), 2U);
    expect_row(reading, "GPU0", {"GPU1", "NIC0"}, {"NV4", "PIX"});
    EXPECT_EQ(relation(reading, "GPU1", "NIC0"), "NODE");
    expect_near(reading, gpus(0, 2), 0, "0-31");
  }
  const Reading old = read_wiring("\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\t X \tPHB\tSOC\t0-5\nGPU1\tPHB\t X \tSOC\t0-5\nGPU2\tSOC\tSOC\t X \t6-11\n", "f");
  expect_clean(old);
  expect_row(old, "GPU0", {"GPU1", "GPU2"}, {"PHB", "SYS"});
}

/// As a terminal of so many columns shows it; with or without the blanks at its right edge.
std::string wrapped(const std::string& text, std::size_t width, bool strip) {
  std::string out, line;
  const auto flush = [&] {
    do {
      std::string piece = line.substr(0, width);
      line.erase(0, piece.size());
      while (strip && !piece.empty() && piece.back() == ' ') piece.pop_back();
      out += piece + "\n";
    } while (!line.empty());
  };
  for (char c : text) {
    if (c == '\n') flush();
    else if (c == '\t') line.append(8 - line.size() % 8, ' ');
    else line += c;
  }
  return out;
}

TEST(ReadNvidiaTopo, RowsThatATerminalWrapped) {
  int tried = 0;
  for (const char* file : {"topo/dgx1-v100-msccl-tabs.txt", "topo/v100-sxm2-32gb-x8-nic0-numaid.txt", "topo/8gpu-pcie-cloud-node-sys.txt", "topo/8gpu-h100-reformatted-narrow-stas.txt"}) {
    const auto text = field::text(file);
    if (!text) GTEST_SKIP() << "../shared/field isn't there";
    const Reading whole = read_wiring(*text, file);
    for (std::size_t width = 41; width < 100; width += 1) {
      for (bool strip : {false, true}) {
        if (strip && text->find("Legend") == std::string::npos) continue;  // nothing shows how wide the terminal was
        const std::string narrow = wrapped(*text, width, strip);
        SCOPED_TRACE(std::string(file) + " at " + std::to_string(width));
        SCOPED_TRACE(narrow);
        ASSERT_EQ(refusal(narrow), "");
        const Reading reading = read_wiring(narrow, "f");
        const std::vector<std::string> names = gpus(0, 8);
        for (const std::string& row : names) {
          for (const std::string& column : names) ASSERT_EQ(relation(reading, row, column), relation(whole, row, column)) << row << column;
          ASSERT_EQ(device(reading, row).cpus, device(whole, row).cpus) << row;
          ASSERT_EQ(device(reading, row).numa, device(whole, row).numa) << row;
        }
        ASSERT_FALSE(reading.partial);
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 100);
}

TEST(ReadNvidiaTopo, SeveralHostsOneAfterTheOther) {
  const Reading two = read_wiring("node1:\n" + std::string(kMatrix) + "node2:\n" + replaced(replaced(kMatrix, "NV4", "PHB"), "NODE", "SYS"), "f");
  EXPECT_EQ(hosts_of(two.wiring), 2);
  EXPECT_TRUE(noted(two, "taken for another host, host1"));
  EXPECT_EQ(relation(two, "GPU0", "GPU1"), "NV4");
  const Relations relations(two.wiring);
  EXPECT_EQ(name_of(relations.between(find_device(two.wiring, "GPU0", 1), find_device(two.wiring, "GPU1", 1))), "PHB");
  // -p2p of the same GPUs is the same host's.
  const std::string access = "\tGPU0\tGPU1\n GPU0\tX\tCNS\n GPU1\tOK\tX\n\nLegend:\n  X = Self\n";
  for (const std::string& text : {kMatrix + ("\n" + access), access + "\n" + kMatrix, kMatrix + ("\n" + access) + access}) {
    const Reading one = read_wiring(text, "f");
    EXPECT_EQ(hosts_of(one.wiring), 1) << text;
    expect_clean(one);
    EXPECT_EQ(fact(one, "GPU0-GPU1", "peer access"), "CNS");
    EXPECT_EQ(relation(one, "GPU0", "GPU1"), "NV4");
  }
}

TEST(ReadNvidiaTopo, ListsOfCpusAreWholeOrLeftOut) {
  const std::string head = "\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\n";
  // Another row has the same list: it is whole.
  const Reading same = read_wiring(head + "GPU0\tX\tPIX\tSYS\t0-3\t0\nGPU1\tPIX\tX\tSYS\t0-3", "f");
  EXPECT_EQ(device(same, "GPU1").cpus, "0-3");
  // Its NUMA node stands behind it: it is whole.
  const Reading behind = read_wiring(head + "GPU0\tX\tPIX\tSYS\t0-3\t0\nGPU1\tPIX\tX\tSYS\t4-7\t0", "f");
  EXPECT_EQ(device(behind, "GPU1").cpus, "4-7");
  const Reading cut = read_wiring(head + "GPU0\tX\tPIX\tSYS\t0-3\t0\nGPU1\tPIX\tX\tSYS\t4-7", "f");
  EXPECT_EQ(device(cut, "GPU1").cpus, "");
  EXPECT_TRUE(noted(cut, "4-7 may be cut off"));
  const Reading odd = read_wiring("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tPIX\t0-\t0\nGPU1\tPIX\tX\t0-3\t0-1\n", "f");
  EXPECT_TRUE(noted(odd, "0- is no list of CPUs"));
  EXPECT_EQ(fact(odd, "GPU1", "NUMA affinity"), "0-1");
  EXPECT_EQ(device(odd, "GPU1").numa, device(odd, "GPU0").numa);
}

TEST(ReadNvidiaTopo, RefusesWithLineAndColumn) {
  EXPECT_EQ(refusal("GPU0 GPU1 CPU Affinity\nGPU0 X FOO 0-3\nGPU1 FOO X 0-3\n"), "f:2:8: FOO is no connection, in the row of GPU0 under GPU1.");
  EXPECT_EQ(refusal("\tGPU0\tGPU1\tGPU2\nGPU0\tX\t\tPIX\nGPU1\tPIX\tX\tPIX\nGPU2\tPIX\tPIX\tX\n"), "f:2:8: the cell of GPU0 under GPU1 is empty.");
  EXPECT_EQ(refusal("\tGPU0\tGPU1\nGPU0\tPIX\tX\nGPU1\tX\tPIX\n"), "f:2:6: GPU0 has PIX to itself, where X belongs.");
  EXPECT_EQ(refusal("\tGPU0\tGPU0\nGPU0\tX\tX\n"), "f:1:7: GPU0 heads two columns.");
  EXPECT_EQ(refusal("\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU0\tX\tPIX\n"), "f:3:1: a second row of GPU0; the first is line 2.");
  EXPECT_EQ(refusal("\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU2\tX\tPIX\n"), "f:3:1: the row of GPU2 has no column.");
  EXPECT_EQ(refusal("\tGPU0\tnuma0\nGPU0\tX\tPIX\n"), "f:1:7: numa0 names no GPU or NIC.");
  EXPECT_NE(refusal("GPU0 is slow\n").find("no line of column heads"), std::string::npos);
}

TEST(ReadNvidiaTopo, ContradictionsAreNoted) {
  const Reading both = read_wiring("\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU1\tSYS\tX\n", "f");
  EXPECT_TRUE(noted(both, "GPU1 to GPU0 is SYS here, and something else in line 2"));
  const Reading three = read_wiring("\tGPU0\tGPU1\tGPU2\nGPU0\tX\tPIX\tPIX\nGPU1\tPIX\tX\tSYS\nGPU2\tPIX\tSYS\tX\n", "f");
  EXPECT_TRUE(noted(three, "the matrix contradicts itself: GPU1 to GPU2 is SYS by itself, but PIX"));
}

}  // namespace
}  // namespace wirewise
