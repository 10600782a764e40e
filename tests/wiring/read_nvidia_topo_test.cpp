// nvidia-smi topo -m by hand: dialects of terminals, rows that were wrapped, several hosts, mistakes and contradictions.
#include "wiring/topo_rows.h"

namespace wirewise {
namespace {

using field::count;
using field::device;
using field::expect_clean;
using field::expect_near;
using field::expect_row;
using field::fact;
using field::gpus;
using field::noted;
using field::refusal;
using field::relation;

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
  WIREWISE_NEEDS_FIELD();
  int tried = 0;
  for (const char* file : {"topo/dgx1-v100-msccl-tabs.txt", "topo/v100-sxm2-32gb-x8-nic0-numaid.txt", "topo/8gpu-pcie-cloud-node-sys.txt", "topo/8gpu-h100-reformatted-narrow-stas.txt"}) {
    const auto text = field::text(file);
    ASSERT_TRUE(text) << file;
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
