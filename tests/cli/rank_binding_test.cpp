// Which CPUs and memory ranks get on machines that this one isn't: a kernel's files in a folder.
#include "wirewise/cli/rank_binding.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

namespace wirewise {
namespace {

namespace fs = std::filesystem;

class Machine {
 public:
  Machine() {
    std::string name = (fs::temp_directory_path() / "wirewise-numa-XXXXXX").string();
    root = mkdtemp(name.data());
  }
  ~Machine() { fs::remove_all(root); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  void file(const std::string& path, const std::string& text) const {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text << "\n";
  }
  void node(int number, const std::string& cpus) const { file("sys/devices/system/node/node" + std::to_string(number) + "/cpulist", cpus); }
  void gpu(const std::string& address, int node) const {
    file("sys/bus/pci/devices/" + address + "/class", "0x030200");
    file("sys/bus/pci/devices/" + address + "/vendor", "0x10de");
    file("sys/bus/pci/devices/" + address + "/numa_node", std::to_string(node));
  }
  fs::path root;
};

std::vector<int> range(int first, int last) {
  std::vector<int> numbers(static_cast<std::size_t>(last - first + 1));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

TEST(RankBinding, RanksFollowTheirGpusToTheirNodes) {
  const Machine machine;
  machine.node(0, "0-3,8-11");
  machine.node(1, "4-7,12-15");
  machine.gpu("0000:07:00.0", 1);
  machine.gpu("0000:3b:00.0", 0);
  machine.gpu("0000:88:00.0", 1);
  machine.file("sys/bus/pci/devices/0000:01:00.0/class", "0x020000");  // a NIC
  const auto bound = bind_ranks(host_cpus(machine.root, range(0, 15), nullptr), 3);
  EXPECT_EQ(bound[0].cpus, range(4, 7));
  EXPECT_EQ(bound[0].memory_node, 1);
  EXPECT_EQ(bound[1].cpus, (std::vector<int>{0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(bound[1].memory_node, 0);
  EXPECT_EQ(bound[2].cpus, range(12, 15));
  const auto chosen = bind_ranks(host_cpus(machine.root, range(0, 15), "1,0"), 2);
  EXPECT_EQ(chosen[0].memory_node, 0);
  EXPECT_EQ(chosen[1].memory_node, 1);
}

TEST(RankBinding, NodesWithoutCpusHoldNoRank) {
  // As a Grace Hopper machine shows it: GPUs' memory is nodes of its own, and the GPUs belong to them.
  const Machine machine;
  machine.node(0, "0-3");
  machine.node(1, "");
  machine.node(2, "4-7");
  machine.node(3, "");
  machine.gpu("0009:01:00.0", 1);
  machine.gpu("0019:01:00.0", 3);
  machine.file("sys/devices/system/node/has_memory", "0-3");
  const HostCpus host = host_cpus(machine.root, range(0, 7), nullptr);
  ASSERT_EQ(host.nodes.size(), 2U);
  const auto bound = bind_ranks(host, 2);
  EXPECT_EQ(bound[0].cpus, range(0, 3));
  EXPECT_EQ(bound[0].memory_node, 0);
  EXPECT_EQ(bound[1].cpus, range(4, 7));
  EXPECT_EQ(bound[1].memory_node, 2);
}

TEST(RankBinding, OnlyCpusAndMemoryThatMayBeUsed) {
  const Machine machine;
  machine.node(0, "0-7");
  machine.node(1, "8-15");
  machine.file("proc/self/status", "Name:\tx\nMems_allowed_list:\t1");
  const auto bound = bind_ranks(host_cpus(machine.root, {2, 3, 8, 9, 10, 11}, nullptr), 3);
  EXPECT_EQ(bound[0].cpus, (std::vector<int>{2, 3}));
  EXPECT_EQ(bound[0].memory_node, -1);
  EXPECT_EQ(bound[1].cpus, (std::vector<int>{8, 9}));
  EXPECT_EQ(bound[1].memory_node, 1);
  EXPECT_EQ(bound[2].cpus, (std::vector<int>{10, 11}));
  const Machine bare;  // a node whose memory is all elsewhere
  bare.node(0, "0-1");
  bare.file("sys/devices/system/node/has_memory", "1");
  EXPECT_EQ(bind_ranks(host_cpus(bare.root, {0, 1}, nullptr), 1)[0].memory_node, -1);
}

TEST(RankBinding, WithoutNodesRanksShareTheCpus) {
  const Machine machine;
  const auto bound = bind_ranks(host_cpus(machine.root, {0, 1, 2, 5, 7}, nullptr), 2);
  EXPECT_EQ(bound[0].cpus, (std::vector<int>{0, 1}));
  EXPECT_EQ(bound[1].cpus, (std::vector<int>{2, 5}));
  EXPECT_EQ(bound[0].memory_node, -1);
}

TEST(RankBinding, FewerRanksThanNodesGetSeveral) {
  const Machine machine;
  for (int n = 0; n < 4; ++n) machine.node(n, std::to_string(n) + "," + std::to_string(n + 4));  // numbered across sockets
  const auto bound = bind_ranks(host_cpus(machine.root, range(0, 7), nullptr), 2);
  EXPECT_EQ(bound[0].cpus, (std::vector<int>{0, 4, 1, 5}));
  EXPECT_EQ(bound[1].cpus, (std::vector<int>{2, 6, 3, 7}));
  EXPECT_EQ(bound[0].memory_node, -1);
}

TEST(RankBinding, ManyRanksOnASmallNodeStillGetACpuEach) {
  const Machine machine;
  machine.node(0, "0");
  machine.node(1, "1-7");
  for (int g = 0; g < 4; ++g) machine.gpu("0000:0" + std::to_string(g) + ":00.0", 0);
  const auto bound = bind_ranks(host_cpus(machine.root, range(0, 7), nullptr), 4);
  for (const RankBinding& one : bound) EXPECT_FALSE(one.cpus.empty());
}

TEST(RankBinding, NoTwoRanksShareACore) {
  const Machine machine;
  machine.node(0, "0-3,8-11");
  machine.node(1, "4-7,12-15");
  for (int cpu = 0; cpu < 16; ++cpu) machine.file("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list", std::to_string(cpu % 8) + "," + std::to_string(cpu % 8 + 8));
  const auto four = bind_ranks(host_cpus(machine.root, range(0, 15), nullptr), 4);
  EXPECT_EQ(four[0].cpus, (std::vector<int>{0, 8, 1, 9}));
  EXPECT_EQ(four[1].cpus, (std::vector<int>{2, 10, 3, 11}));
  EXPECT_EQ(four[2].cpus, (std::vector<int>{4, 12, 5, 13}));
  const auto six = bind_ranks(host_cpus(machine.root, range(0, 15), nullptr), 6);
  EXPECT_EQ(six[0].cpus, (std::vector<int>{0, 8}));
  EXPECT_EQ(six[2].cpus, (std::vector<int>{2, 10}));
  // More ranks than cores: a thread each.
  const auto all = bind_ranks(host_cpus(machine.root, range(0, 15), nullptr), 16);
  EXPECT_EQ(all[0].cpus, std::vector<int>{0});
  EXPECT_EQ(all[15].cpus, std::vector<int>{15});
  // Threads that may not be used aren't.
  EXPECT_EQ(bind_ranks(host_cpus(machine.root, {0, 1, 8}, nullptr), 2)[0].cpus, (std::vector<int>{0, 8}));
}

}  // namespace
}  // namespace wirewise
