// nvidia-smi topo -m as people post it.
#include "wirewise/wiring/reading.h"

#include <gtest/gtest.h>

#include "wirewise/wiring/relation.h"

namespace wirewise {
namespace {

std::string relation(const Reading& reading, const char* a, const char* b) {
  return name_of(Relations(reading.wiring).between(find_device(reading.wiring, a), find_device(reading.wiring, b)));
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
  EXPECT_FALSE(reading.partial);
  EXPECT_TRUE(reading.notes.empty());
  EXPECT_EQ(relation(reading, "GPU0", "GPU1"), "NV4");
  EXPECT_EQ(relation(reading, "GPU0", "mlx5_0"), "PIX");
  EXPECT_EQ(relation(reading, "GPU1", "mlx5_0"), "PXB");
  EXPECT_EQ(relation(reading, "GPU2", "mlx5_0"), "SYS");
  EXPECT_EQ(reading.wiring.devices[static_cast<std::size_t>(find_device(reading.wiring, "mlx5_0"))].numa, 0);
  EXPECT_EQ(reading.wiring.devices[static_cast<std::size_t>(find_device(reading.wiring, "GPU2"))].cpus, "32-63");
}

TEST(ReadNvidiaTopo, NamesThePlaceOfAnUnknownWord) {
  try {
    (void)read_wiring("GPU0 GPU1 CPU Affinity\nGPU0 X FOO 0-3\nGPU1 FOO X 0-3\n", "pasted");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    EXPECT_EQ(std::string(error.sentence()).substr(0, 12), "pasted:2:8: ");
  }
}

}  // namespace
}  // namespace wirewise
