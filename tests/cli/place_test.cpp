// wirewise place as a user runs it, on a description written here and on a cluster that the program brings along.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "cli/program.h"

namespace wirewise {
namespace {

using testing_support::Program;

constexpr const char* kCubeMesh =
    "\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\n"
    "GPU0\tX\tNV1\tNV1\tNV2\tNV2\tSYS\tSYS\tSYS\n"
    "GPU1\tNV1\tX\tNV2\tNV1\tSYS\tNV2\tSYS\tSYS\n"
    "GPU2\tNV1\tNV2\tX\tNV2\tSYS\tSYS\tNV1\tSYS\n"
    "GPU3\tNV2\tNV1\tNV2\tX\tSYS\tSYS\tSYS\tNV1\n"
    "GPU4\tNV2\tSYS\tSYS\tSYS\tX\tNV1\tNV1\tNV2\n"
    "GPU5\tSYS\tNV2\tSYS\tSYS\tNV1\tX\tNV2\tNV1\n"
    "GPU6\tSYS\tSYS\tNV1\tSYS\tNV1\tNV2\tX\tNV2\n"
    "GPU7\tSYS\tSYS\tSYS\tNV1\tNV2\tNV1\tNV2\tX\n";

class Place : public testing::Test {
 protected:
  Place() {
    std::string name = (std::filesystem::temp_directory_path() / "wirewise-place-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    std::ofstream(file()) << kCubeMesh;
  }
  ~Place() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string file() const { return (folder_ / "topo.txt").string(); }
  std::filesystem::path folder_;
};

TEST_F(Place, TellsWhereRanksLieAndAgainstWhat) {
  Program program({"place", "--from", file(), "--mesh", "dp=2,tp=4", "--traffic", "tp=10G,dp=1G", "--json"});
  ASSERT_EQ(program.wait(), 0) << program.err();
  const auto json = nlohmann::json::parse(program.out());
  ASSERT_EQ(json["ranks"].size(), 8U);
  EXPECT_TRUE(json["exact"].get<bool>());
  EXPECT_LE(json["communication_s"].get<double>(), json["linear_s"].get<double>());
  EXPECT_LT(json["communication_s"].get<double>(), json["random_s"].get<double>());
  for (int group = 0; group < 2; ++group) {
    std::set<int> quads;
    for (int r = 0; r < 4; ++r) quads.insert(json["ranks"][static_cast<std::size_t>(4 * group + r)]["gpu"].get<int>() / 4);
    EXPECT_EQ(quads.size(), 1U) << program.out();
  }
}

TEST_F(Place, EmitsForEachLauncher) {
  for (const char* kind : {"torchrun", "slurm", "slurm-hostfile", "rankfile", "jobset", "env", "json"}) {
    Program program({"place", "--from", file(), "--mesh", "dp=2,tp=4", "--emit", kind});
    EXPECT_EQ(program.wait(), 0) << kind << program.err();
    EXPECT_FALSE(program.out().empty()) << kind;
  }
}

TEST_F(Place, KnowsTheClustersOfTheProgram) {
  Program program({"place", "--cluster", "512-h100", "--mesh", "pp=2,dp=32,tp=8", "--json"});
  ASSERT_EQ(program.wait(), 0) << program.err();
  const auto json = nlohmann::json::parse(program.out());
  std::set<std::string> hosts;
  for (std::size_t r = 0; r < 8; ++r) hosts.insert(json["ranks"][r]["host"].get<std::string>());
  EXPECT_EQ(hosts.size(), 1U);
  EXPECT_LT(2 * json["communication_s"].get<double>(), json["random_s"].get<double>());
}

TEST_F(Place, RefusesWithTheRemedy) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--mesh", "tp=16"}, "don't fit on 8 devices"},        {{"--mesh", "pt=2"}, "Did you mean"},
      {{"--mesh", "tp=8", "--exclude", "host1"}, "host0"},    {{"--mesh", "tp=8", "--traffic", "tp"}, "names no size"},
      {{"--mesh", "tp=8", "--traffic", "cp=1G"}, "above 1"},  {{"--mesh", "tp=8", "--nodes", "3"}, "divides the ranks"},
      {{"--mesh", "tp=8", "--exclude", "host0"}, "no GPUs"},  {{"--mesh", "tp=8", "--cluster", "512-h100"}, "Give either"},
  };
  for (const auto& [arguments, text] : cases) {
    std::vector<std::string> all{"place", "--from", file()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    Program program(all);
    EXPECT_EQ(program.wait(), 2) << text;
    EXPECT_NE(program.err().find(text), std::string::npos) << text << " in " << program.err();
  }
}

}  // namespace
}  // namespace wirewise
