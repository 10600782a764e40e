// wirewise place as a user runs it, on a description written here and on a cluster that the program brings along.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>

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

// A published model has 32 layers of 32 heads; sequences are the preset's own.
TEST_F(Place, LeavesHostsOutByNameOrAsSlurmWritesThem) {
  const auto hosts_without = [](const std::string& exclude) {
    Program program({"place", "--cluster", "512-h100", "--mesh", "dp=16", "--exclude", exclude, "--json"});
    EXPECT_EQ(program.wait(), 0) << program.err();
    std::set<std::string> hosts;
    const auto json = nlohmann::json::parse(program.out());
    for (const auto& rank : json["ranks"]) hosts.insert(rank["host"].get<std::string>());
    return hosts;
  };
  EXPECT_EQ(hosts_without("node0"), (std::set<std::string>{"node1", "node2"}));
  EXPECT_EQ(hosts_without("node0,node2"), (std::set<std::string>{"node1", "node3"}));
  EXPECT_EQ(hosts_without("node[0-7,9]"), (std::set<std::string>{"node8", "node10"}));
}

// Three fast hosts and one behind 10 GbE. All four are asked for, so the order that is compared with lies on all four too.
TEST_F(Place, ComparesWithOrdersOnAsManyHosts) {
  const std::string cluster = (folder_ / "uneven.toml").string();
  std::ofstream(cluster) << "[[host]]\ntemplate = \"dgx-a100\"\ncount = 3\n[[host]]\ntemplate = \"4x3090\"\nnames = \"slow\"\n";
  Program program({"place", "--cluster", cluster, "--mesh", "dp=4,tp=4", "--nodes", "4", "--json"});
  ASSERT_EQ(program.wait(), 0) << program.err();
  const auto json = nlohmann::json::parse(program.out());
  EXPECT_LE(json["communication_s"].get<double>(), json["linear_s"].get<double>());
  EXPECT_LE(json["communication_s"].get<double>(), json["random_s"].get<double>());
  EXPECT_NE(program.err().find("uneven.toml: note: no [network] is described"), std::string::npos) << program.err();  // what topo says of the file
}

// With a model the ranks follow from the hosts: as many on each as the smallest of them holds.
TEST_F(Place, AModelsRanksFitOnTheSmallestHost) {
  const std::string cluster = (folder_ / "uneven.toml").string();
  std::ofstream(cluster) << "[[host]]\ntemplate = \"dgx-a100\"\ncount = 3\n[[host]]\ntemplate = \"4x3090\"\nnames = \"slow\"\n[network]\n";
  const auto ranks = [&](const std::string& nodes) {
    Program program({"place", "--cluster", cluster, "--model", "llama-3-8b", "--nodes", nodes, "--json"});
    EXPECT_EQ(program.wait(), 0) << program.err();
    return nlohmann::json::parse(program.out())["ranks"].size();
  };
  EXPECT_EQ(ranks("3"), 24U);
  EXPECT_EQ(ranks("4"), 16U);
  Program program({"place", "--cluster", cluster, "--model", "llama-3-8b", "--nodes", "5"});
  EXPECT_EQ(program.wait(), 2);
  EXPECT_NE(program.err().find("--nodes 5: only 4 hosts have free devices."), std::string::npos) << program.err();
}

TEST_F(Place, SaysWhereAnOrderCantCommunicate) {
  const std::string cluster = (folder_ / "apart.toml").string();
  std::ofstream(cluster) << "[[template]]\nname = \"x\"\n[template.gpus]\ncount = 4\n[[template.bridge]]\ngpus = [0, 1, 2, 3]\n[[host]]\ntemplate = \"x\"\ncount = 2\n";
  Program program({"place", "--cluster", cluster, "--mesh", "dp=4"});
  ASSERT_EQ(program.wait(), 0) << program.err();
  EXPECT_NE(program.out().find("never ends: no links join"), std::string::npos) << program.out();
  EXPECT_EQ(program.out().find("inf"), std::string::npos) << program.out();
  EXPECT_NE(program.err().find("note: no host has a NIC, so no network joins them."), std::string::npos) << program.err();
}

// The NIC of rail 0 is out on one of two hosts, which share the other seven leaves.
TEST_F(Place, RailsOfAGroupAreOneLeafToSlurmAndKueue) {
  const std::string cluster = (folder_ / "rails.toml").string();
  std::ofstream(cluster) << "[[host]]\ntemplate = \"hgx-h100\"\ncount = 4\n[[override]]\nhosts = \"node1\"\nnics_out = 0\n[network]\nrails = true\n[[level]]\nhosts = 2\n[[level]]\n";
  Program two({"place", "--cluster", cluster, "--mesh", "dp=2,tp=8", "--exclude", "node[2-3]", "--emit", "slurm"});
  ASSERT_EQ(two.wait(), 0) << two.err();
  EXPECT_NE(two.out().find("--nodes=2 --ntasks=16 --switches=1 "), std::string::npos) << two.out();
  Program four({"place", "--cluster", cluster, "--mesh", "dp=4,tp=8", "--emit", "slurm"});
  ASSERT_EQ(four.wait(), 0) << four.err();
  EXPECT_NE(four.out().find("--nodes=4 --ntasks=32 --switches=2 "), std::string::npos) << four.out();
  Program jobset({"place", "--cluster", cluster, "--mesh", "dp=2,tp=8", "--exclude", "node[2-3]", "--emit", "jobset"});
  ASSERT_EQ(jobset.wait(), 0) << jobset.err();
  EXPECT_NE(jobset.out().find("podset-required-topology"), std::string::npos) << jobset.out();
}

TEST_F(Place, NamesWhatTookTheGpusAway) {
  const std::string cluster = (folder_ / "mixed.toml").string();
  std::ofstream(cluster) << "[[template]]\nname = \"login\"\n[[template.nics]]\nlink = \"10 GbE\"\n[[template.bridge]]\nnics = [0]\n"
                            "[[host]]\ntemplate = \"login\"\nnames = \"login1\"\n[[host]]\ntemplate = \"4x3090\"\nnames = \"g[1-2]\"\n[network]\n";
  Program program({"place", "--cluster", cluster, "--mesh", "dp=2", "--exclude", "g[1-2]"});
  EXPECT_EQ(program.wait(), 2);
  EXPECT_NE(program.err().find("--exclude leaves out all hosts that have GPUs."), std::string::npos) << program.err();
}

TEST_F(Place, RefusesMeshesThatTheModelCantBeSpreadOver) {
  const std::vector<std::pair<std::string, std::string>> cases{{"pp=64", "pp 64 is more stages than the model has layers, 32."},
                                                               {"tp=3,dp=2", "tp 3 doesn't divide the model's heads, 32. Legal: 1, 2, 4, 8, 16, 32."},
                                                               {"cp=7", "cp 7 doesn't divide train.sequence, "}};
  for (const auto& [mesh, expected] : cases) {
    Program program({"place", "--cluster", "512-h100", "--model", "llama-3-8b", "--mesh", mesh});
    EXPECT_EQ(program.wait(), 2) << mesh;
    EXPECT_NE(program.err().find(expected), std::string::npos) << program.err();
  }
  Program legal({"place", "--cluster", "512-h100", "--model", "llama-3-8b", "--mesh", "pp=32,tp=8,cp=2", "--json"});
  EXPECT_EQ(legal.wait(), 0) << legal.err();
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

/// What a phase sends, and where that is from.
std::pair<double, std::string> sends(const nlohmann::json& json, const std::string& name) {
  for (const auto& phase : json["traffic"]) {
    if (phase["name"] == name) return {phase["bytes"].get<double>(), phase["from"].get<std::string>()};
  }
  ADD_FAILURE() << "no traffic of " << name;
  return {};
}

TEST_F(Place, TrafficOfAConfigurationIsThatOfItsSchedule) {
  // GPT-2's 124,439,808 parameters in 12 blocks, embedding and head. DDP: an all-reduce of all in float32, whatever rounds to shards adds.
  const std::vector<std::string> config{"--model", "gpt2", "--set", "train.sequence=512", "--set", "train.micro_batch=2", "--set", "train.accumulation=3",
                                        "--set", "strategy.param_dtype=\"bfloat16\"", "--set", "strategy.reduce_dtype=\"float32\""};
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> all{"place", "--from", file(), "--json"};
    all.insert(all.end(), config.begin(), config.end());
    all.insert(all.end(), more.begin(), more.end());
    Program program(all);
    EXPECT_EQ(program.wait(), 0) << program.err();
    return nlohmann::json::parse(program.out());
  };
  const double parameters = 124439808;
  auto json = run({"--set", "strategy.name=ddp"});
  EXPECT_EQ(json["ranks"].size(), 8U);  // as many as devices
  auto [bytes, from] = sends(json, "dp_shard");
  EXPECT_EQ(from, "the step's schedule");
  EXPECT_NEAR(bytes, 2 * 7.0 / 8 * parameters * 4, 1e-3 * bytes);
  // ZeRO-3: gathered in bfloat16 for forward and backward of each of 3 micro-batches, reduced once in float32.
  std::tie(bytes, from) = sends(run({"--set", "strategy.name=zero3", "--ranks", "4"}), "dp_shard");
  EXPECT_GT(bytes, 3.0 / 4 * parameters * (3 * 2 * 2 * 0.7 + 4));  // embedding and head need fewer
  EXPECT_LT(bytes, 3.0 / 4 * parameters * (3 * 2 * 2 + 4) * 1.001);
  // Degrees that can't be trained yet: 4 all-reduces a block of 2 * 512 * 3 tokens of 768 numbers of 2 bytes; data parallelism of half the parameters.
  json = run({"--set", "strategy.name=ddp", "--mesh", "dp=4,tp=2"});
  EXPECT_EQ(sends(json, "tp").second, "the model's size");
  EXPECT_NEAR(sends(json, "tp").first, 12 * 4 * 2 * 0.5 * (2.0 * 512 * 3 * 768 * 2), 1);
  EXPECT_EQ(sends(json, "dp_shard").second, "the step's schedule");
  EXPECT_NEAR(sends(json, "dp_shard").first, 2 * 3.0 / 4 * parameters * 4 / 2, 1e-3 * parameters);
  EXPECT_EQ(sends(run({"--mesh", "dp=4,tp=2", "--traffic", "tp=5G"}), "tp"), (std::pair<double, std::string>{5 * 1024.0 * 1024 * 1024, "--traffic"}));
}

TEST_F(Place, ReadsTheConfigurationThatTrainReads) {
  std::ofstream(folder_ / "train.toml") << "[model]\npreset = \"gpt2\"\n[train]\nsequence = 128\nglobal_batch = 16\nmicro_batch = 1\n[strategy]\nname = \"zero1\"\n";
  Program program({"place", "--from", file(), "--config", (folder_ / "train.toml").string()});
  ASSERT_EQ(program.wait(), 0) << program.err();
  EXPECT_NE(program.out().find("a rank sends in a step, dp_shard: "), std::string::npos) << program.out();
  EXPECT_NE(program.out().find("of the step's schedule"), std::string::npos) << program.out();
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--zero", "1"}, "--set strategy.zero=1"}, {{"--set", "train.global_batch=15"}, "15"},         {{"--set", "model.presett=\"x\""}, "model.preset"},
      {{"--set", "strategy.tp=3"}, "--mesh"},     {{"--mesh", "dp=8", "--ranks", "8"}, "Leave --ranks out"}};
  for (const auto& [arguments, text] : cases) {
    std::vector<std::string> all{"place", "--from", file(), "--config", (folder_ / "train.toml").string()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    Program refused(all);
    EXPECT_EQ(refused.wait(), 2) << text << refused.out();
    EXPECT_NE(refused.err().find(text), std::string::npos) << text << " in " << refused.err();
  }
}

TEST_F(Place, RefusesWithTheRemedy) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--mesh", "tp=16"}, "don't fit on 8 devices"},        {{"--mesh", "pt=2"}, "Did you mean"},
      {{"--mesh", "tp=8", "--exclude", "host1"}, "host0"},    {{"--mesh", "tp=8", "--traffic", "tp"}, "names no size"},
      {{"--mesh", "tp=8", "--traffic", "cp=1G"}, "above 1"},  {{"--mesh", "tp=8", "--nodes", "3"}, "divides the ranks"},
      {{"--mesh", "tp=8", "--exclude", "host0"}, "leaves out all hosts"},
      {{"--mesh", "tp=8", "--exclude", "host[0"}, "--exclude host[0: "}, {{"--mesh", "tp=8", "--exclude", "host1,,host2"}, "--exclude host1,,host2: "},
      {{"--mesh", "dp=8", "--traffic", "dp=1G,dp_shard=2G"}, "--traffic says dp_shard twice"},  {{"--mesh", "tp=8", "--cluster", "512-h100"}, "Give either"},
      {{}, "--config"},                                       {{"--mesh", "tp=8", "--ranks", "8"}, "--ranks goes with"},
      {{"--mesh", "tp=8", "--order", "linear", "--nodes", "1"}, "--order linear takes the devices as they come"},
      {{"--mesh", "tp=8", "--image", "train:1"}, "--image goes with --emit jobset"},
      {{"--mesh", "tp=8", "--emit", "env", "--topology-level", "rack"}, "--topology-level goes with --emit jobset"},
  };
  for (const auto& [arguments, text] : cases) {
    std::vector<std::string> all{"place", "--from", file()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    Program program(all);
    EXPECT_EQ(program.wait(), 2) << text;
    EXPECT_NE(program.err().find(text), std::string::npos) << text << " in " << program.err();
  }
}

/// Hosts of two cores each, by 10 GbE; with `gpus` also as many GPUs on narrow PCIe.
std::string cores(int hosts, int gpus = 0) {
  std::string device = "{ name = \"c0\", kind = \"cpu\" }, { name = \"c1\", kind = \"cpu\" }, { name = \"eth0\", kind = \"nic\" }";
  std::string link = "{ b = \"c0\", kind = \"shared memory\", beta_GBps = 50 }, { b = \"c1\", kind = \"shared memory\", beta_GBps = 50 }, { b = \"eth0\", class = \"PCIe 3\", units = 8 }";
  for (int i = 0; i < gpus; ++i) {
    const std::string name = "\"GPU" + std::to_string(i) + "\"";
    device += ", { name = " + name + ", kind = \"gpu\" }";
    link += ", { b = " + name + ", class = \"PCIe 3\" }";
  }
  return "[network]\nlink = \"10 GbE\"\n[[template]]\nname = \"box\"\ndevice = [" + device + "]\nlink = [" + link + "]\n[[host]]\ntemplate = \"box\"\ncount = " + std::to_string(hosts) + "\n";
}

TEST_F(Place, CoresHaveRanksWhereThereAreNoGpus) {
  const auto devices = [&](int gpus) {
    const std::string cluster = (folder_ / "cores.toml").string();
    std::ofstream(cluster) << cores(2, gpus);
    Program program({"place", "--cluster", cluster, "--mesh", "dp=2", "--json"});
    EXPECT_EQ(program.wait(), 0) << program.err();
    std::set<std::string> names;
    const auto json = nlohmann::json::parse(program.out());
    for (const auto& rank : json["ranks"]) names.insert(rank["device"].get<std::string>());
    return names;
  };
  EXPECT_EQ(devices(0), (std::set<std::string>{"c0", "c1"}));
  EXPECT_EQ(devices(2), (std::set<std::string>{"GPU0", "GPU1"}));  // though a core reaches the other faster
}

// On one host ZeRO-3 gathers nothing: ranks share each parameter, and a rank sends its part of the gradients alone.
TEST_F(Place, TrafficIsThatOfTheHostsThatAreTaken) {
  const auto bytes = [&](int hosts, const std::vector<std::string>& more) {
    const std::string cluster = (folder_ / "cores.toml").string();
    std::ofstream(cluster) << cores(hosts);
    std::vector<std::string> command{"place", "--cluster", cluster, "--model", "gpt2", "--json"};
    command.insert(command.end(), more.begin(), more.end());
    Program program(command);
    EXPECT_EQ(program.wait(), 0) << program.err();
    return nlohmann::json::parse(program.out())["traffic"][0]["bytes"].get<double>();
  };
  EXPECT_EQ(bytes(2, {"--nodes", "1"}), bytes(1, {}));
  EXPECT_GT(bytes(2, {}), 2 * bytes(1, {}));
}

TEST_F(Place, NicsWithoutALinkAreNamed) {
  const std::string cluster = (folder_ / "cores.toml").string();
  std::ofstream(cluster) << cores(2).substr(cores(2).find("[[template]]"));
  Program program({"place", "--cluster", cluster, "--mesh", "dp=2"});
  EXPECT_EQ(program.wait(), 2) << program.out();
  EXPECT_NE(program.err().find("has NICs whose links to the network aren't described"), std::string::npos) << program.err();
}

TEST(PlaceOrder, TorchrunsRefusalNamesAWayThatWorks) {
  const std::vector<std::string> mesh{"place", "--cluster", "2x-workstation-10gbe", "--mesh", "dp=2,tp=2", "--emit", "torchrun"};
  Program refused(mesh);
  ASSERT_EQ(refused.wait(), 2) << refused.out();  // ZeRO-3 sends more than tp, so dp lies within hosts
  EXPECT_NE(refused.err().find("--order linear"), std::string::npos) << refused.err();
  std::vector<std::string> linear = mesh;
  linear.insert(linear.end(), {"--order", "linear"});
  Program done(linear);
  ASSERT_EQ(done.wait(), 0) << done.err();
  EXPECT_NE(done.out().find("exec torchrun --nnodes=2 --nproc-per-node=2"), std::string::npos) << done.out();
  Program json({"place", "--cluster", "2x-workstation-10gbe", "--mesh", "dp=2,tp=2", "--json", "--order", "linear"});
  ASSERT_EQ(json.wait(), 0) << json.err();
  const auto all = nlohmann::json::parse(json.out());
  EXPECT_EQ(all["communication_s"], all["linear_s"]);
  EXPECT_EQ(all["exact"], false);
  EXPECT_EQ(all["why"].size(), all["phases"].size() + 1) << json.out();  // of this order alone, and what the best takes
}

}  // namespace
}  // namespace wirewise
