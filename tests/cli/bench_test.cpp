// `wirewise bench` as a program: its JSON, its table, mistakes, and ranks of a launcher.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/program.h"

namespace wirewise::bench {
namespace {

using testing_support::Program;

const std::map<std::string, std::string> kNoLauncher{{"RANK", ""}, {"WORLD_SIZE", ""}, {"LOCAL_RANK", ""}, {"LOCAL_WORLD_SIZE", ""}};

TEST(BenchCommand, JsonHasTheContractsKeysAndNothingElseOnStandardOutput) {
  Program program({"bench", "--ranks", "2", "--op", "all_reduce,broadcast,barrier", "--sizes", "8,64K", "--dtype", "bfloat16", "--iters", "2", "--warmup", "0", "--json"},
                  kNoLauncher);
  ASSERT_EQ(program.wait(), 0) << program.err();
  const std::set<std::string> keys{"op",     "size",   "count",  "dtype",      "redop",      "root",  "inplace",
                                   "time_us", "p50_us", "p99_us", "algbw_GBps", "busbw_GBps", "wrong", "limit_fraction"};
  std::vector<std::string> cases;
  for (std::size_t at = 0; at < program.out().size();) {
    const std::size_t end = program.out().find('\n', at);
    const auto line = nlohmann::json::parse(program.out().substr(at, end - at));
    at = end + 1;
    std::set<std::string> found;
    for (const auto& [key, value] : line.items()) found.insert(key);
    EXPECT_EQ(found, keys);
    EXPECT_EQ(line.at("wrong"), 0);
    EXPECT_TRUE(line.at("inplace").is_boolean());
    EXPECT_NEAR(line.at("algbw_GBps").get<double>(), line.at("size").get<double>() / line.at("time_us").get<double>() / 1e3, 1e-9);
    cases.push_back(line.at("op").get<std::string>() + " " + std::to_string(line.at("size").get<int>()) + " " + std::to_string(line.at("count").get<int>()) + " " +
                    line.at("redop").get<std::string>() + " " + std::to_string(line.at("root").get<int>()) + (line.at("inplace").get<bool>() ? " in" : " out"));
  }
  EXPECT_EQ(cases, (std::vector<std::string>{"all_reduce 8 4 sum -1 out", "all_reduce 8 4 sum -1 in", "all_reduce 65536 32768 sum -1 out",
                                             "all_reduce 65536 32768 sum -1 in", "broadcast 8 4 none 0 in", "broadcast 65536 32768 none 0 in", "barrier 0 0 none -1 out"}));
}

TEST(BenchCommand, TheTableHasARowASizeAndAFooter) {
  Program program({"bench", "--ranks", "1", "--op", "all_gather", "--sizes", "64", "--iters", "1", "--cold"}, kNoLauncher);
  ASSERT_EQ(program.wait(), 0) << program.err();
  for (const char* text : {"# 1 ranks", "past the last-level cache", "#wrong", "          64           16  float32   none   -1 ", "# Out of bounds values : 0 OK",
                           "# Avg bus bandwidth    : "}) {
    EXPECT_NE(program.out().find(text), std::string::npos) << text << " in\n" << program.out();
  }
}

TEST(BenchCommand, MistakesAreOneLineAndExitTwoBeforeAnyRankStarts) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes{
      {{"--op", "allreduce"}, "Did you mean all_reduce?"},
      {{"--sizes", "8:4"}, "ends before it begins"},
      {{"--dtype", "float33"}, "Did you mean float32?"},
      {{"--redop", "summ"}, "Did you mean sum?"},
      {{"--redop", "band"}, "doesn't exist"},
      {{"--root", "2"}, "none of the 2 ranks"},
      {{"--iters", "0"}, "--iters"},
      {{"--device", "cuda"}, "--device cuda"},
      {{"--device", "tpu"}, "unknown device"},
      {{"--ranks", "0"}, "--ranks"},
  };
  for (const auto& [arguments, says] : mistakes) {
    std::vector<std::string> words{"bench"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    Program program(words, kNoLauncher);
    EXPECT_EQ(program.wait(), 2) << says;
    EXPECT_EQ(program.err().rfind("error: ", 0), 0U) << program.err();
    EXPECT_EQ(std::count(program.err().begin(), program.err().end(), '\n'), 1) << program.err();
    EXPECT_NE(program.err().find(says), std::string::npos) << program.err();
    EXPECT_EQ(program.out(), "");
  }
}

TEST(BenchCommand, RanksAreTheLaunchersWhereThereIsOne) {
  Program program({"bench", "--ranks", "3"}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(program.wait(), 2);
  EXPECT_NE(program.err().find("--ranks 3 differs from the 2 ranks that torchrun started"), std::string::npos) << program.err();
}

// 192.0.2.0/24 is kept for documentation, so no interface has it.
TEST(BenchCommand, RankZeroMustRunWhereMasterAddrIs) {
  Program program({"bench", "--op", "all_reduce", "--sizes", "8"}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}, {"MASTER_ADDR", "192.0.2.77"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(program.wait(), 2);
  for (const char* part : {"192.0.2.77:29500", "no interface", "Rank 0 must run on the host that MASTER_ADDR names"}) EXPECT_NE(program.err().find(part), std::string::npos) << program.err();
}

}  // namespace
}  // namespace wirewise::bench
