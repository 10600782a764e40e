// A rank's place in the numbers that its host's software counts by.
#include "wirewise/plan/rank_places.h"

#include <gtest/gtest.h>

#include "wirewise/wiring/cluster_file.h"

namespace wirewise {
namespace {

/// The GPUs' numbers on a host with GPUs at these addresses, without some of them.
std::vector<int> numbers(const std::string& addresses, const std::string& out = "") {
  std::string text = "[[template]]\nname = \"x\"\n[[template.gpus]]\ncount = 4\n" + (addresses.empty() ? "" : "pci = [" + addresses + "]\n") +
                     "[[template.bridge]]\ngpus = [0, 1, 2, 3]\n[[host]]\ntemplate = \"x\"\n";
  if (!out.empty()) text += "[[override]]\nhosts = \"node0\"\ngpus_out = [" + out + "]\n";
  const Wiring wiring = read_cluster(text, "c.toml").wiring;
  std::vector<int> found;
  for (const RankPlace& place : rank_places(wiring, devices_of(wiring, DeviceKind::kGpu))) found.push_back(place.gpu);
  return found;
}

// CUDA_DEVICE_ORDER=PCI_BUS_ID goes with the numbers.
TEST(RankPlaces, GpusAreNumberedByPciAddressWhateverTheirNamesSay) {
  EXPECT_EQ(numbers(R"("0000:81:00.0", "0000:01:00.0", "0000:C1:00.0", "0000:41:00.0")"), (std::vector<int>{2, 0, 3, 1}));
  EXPECT_EQ(numbers(R"("0000:01:00.0", "0000:41:00.0", "0000:81:00.0", "0000:c1:00.0")"), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(numbers(R"("0000:0A:00.0", "0000:0b:00.0", "0000:0C:00.0", "0001:0a:00.0")"), (std::vector<int>{0, 1, 2, 3}));
}

TEST(RankPlaces, GpusThatAreLeftOutKeepTheirNumbers) {
  EXPECT_EQ(numbers("", "0, 2"), (std::vector<int>{1, 3}));
  EXPECT_EQ(numbers(R"("0000:01:00.0", "0000:41:00.0", "0000:81:00.0", "0000:c1:00.0")", "0, 2"), (std::vector<int>{1, 3}));
}

}  // namespace
}  // namespace wirewise
