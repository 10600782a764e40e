// wirewise bench --fit as a user runs it on one host: what it writes, and what it refuses before anything is measured.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/program.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {
namespace {

using testing_support::Program;

const std::map<std::string, std::string> kNoLauncher{
    {"RANK", ""}, {"WORLD_SIZE", ""}, {"LOCAL_RANK", ""}, {"LOCAL_WORLD_SIZE", ""}, {"SLURM_PROCID", ""}, {"OMPI_COMM_WORLD_RANK", ""}};

class BenchFit : public testing::Test {
 protected:
  BenchFit() {
    std::string name = (std::filesystem::temp_directory_path() / "wirewise-fit-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~BenchFit() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string at(const std::string& name) const { return (folder_ / name).string(); }
  static std::string text_of(const std::string& file) {
    std::ifstream in(file);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  std::filesystem::path folder_;
};

TEST_F(BenchFit, MakesADescriptionOfTheHostWithItsRanksCores) {
  Program program({"bench", "--fit", at("c.toml"), "--ranks", "3", "--sizes", "8,1K,64K,1M", "--json"}, kNoLauncher);
  ASSERT_EQ(program.wait(), 0) << program.err();
  const auto line = nlohmann::json::parse(program.out());
  EXPECT_EQ(line["class"], "shared memory");
  EXPECT_EQ(line["sizes"], (std::vector<int>{8, 1024, 65536, 1 << 20}));
  EXPECT_TRUE(line["saved"].get<bool>());
  const Reading reading = read_cluster(text_of(at("c.toml")), "c.toml");
  EXPECT_EQ(devices_of(reading.wiring, DeviceKind::kCpu).size(), 3U);
  for (const Link& link : reading.wiring.links) {
    EXPECT_EQ(link.provenance, Provenance::kMeasured);
    EXPECT_NEAR(link.beta / 1e9 / line["beta_GBps"].get<double>(), 1, 1e-3);
    EXPECT_NEAR(link.alpha * 1e6, line["alpha_us"].get<double>(), 1e-3 * line["alpha_us"].get<double>());
  }
  // Nothing else lies there.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()), 1);
}

TEST_F(BenchFit, MistakesAreOneLineAndExitTwoBeforeAnyRankStarts) {
  std::ofstream(at("matrix.txt")) << "\tGPU0\tGPU1\nGPU0\tX\tNV1\nGPU1\tNV1\tX\n";
  std::ofstream(at("broken.toml")) << "[[host]\n";
  std::ofstream(at("list.toml")) << "measured = [{ class = \"10 GbE\", beta_GBps = 1 }]\n[[host]]\ntemplate = \"workstation-10gbe\"\n";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--fit", at("new")}, "ends in .toml"},
      {{"--fit", at("nowhere/c.toml")}, "there is no folder"},
      {{"--fit", at("matrix.txt")}, "no description of a cluster but nvidia-smi topo"},
      {{"--fit", at("broken.toml")}, "broken.toml:1:"},
      {{"--fit", at("list.toml")}, "by hand"},
      {{"--fit", at("c.toml"), "--op", "all_reduce"}, "--op is of collectives"},
      {{"--fit", at("c.toml"), "--cold"}, "--cold is of collectives"},
      {{"--fit", at("c.toml"), "--ranks", "1"}, "one rank has no links"},
      {{"--fit", at("c.toml"), "--sizes", "8"}, "two sizes"},
  };
  for (const auto& [arguments, expected] : cases) {
    std::vector<std::string> all{"bench"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    Program program(all, kNoLauncher);
    EXPECT_EQ(program.wait(), 2) << expected;
    EXPECT_NE(program.err().find(expected), std::string::npos) << program.err();
    EXPECT_TRUE(program.out().empty()) << program.out();
  }
  EXPECT_FALSE(std::filesystem::exists(at("c.toml")));
}

}  // namespace
}  // namespace wirewise
