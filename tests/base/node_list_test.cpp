// Slurm's bracketed lists, against the field's own and the expansions that stand beside them.
#include "wirewise/base/node_list.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"

namespace wirewise {
namespace {

TEST(ExpandNodeList, ReadsWhatSlurmWrites) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(expand_node_list(""), Names{});
  EXPECT_EQ(expand_node_list("login"), Names{"login"});
  EXPECT_EQ(expand_node_list("n[001-003,7],login"), (Names{"n001", "n002", "n003", "n7", "login"}));
  EXPECT_EQ(expand_node_list("r[1-2]n[08-10]x"), (Names{"r1n08x", "r1n09x", "r1n10x", "r2n08x", "r2n09x", "r2n10x"}));
  EXPECT_EQ(expand_node_list("gpu-801,gpu-869,gpu-583"), (Names{"gpu-801", "gpu-869", "gpu-583"}));
}

TEST(ExpandNodeList, RefusesWhatSlurmNeverWrites) {
  for (const char* text :
       {",", "a,", ",a", "a,,b", "n[", "n[]", "n[a]", "n[3-1]", "n]", "n[1-99999999999]", "n[1-1000000][1-1000000]", "n[-1]"}) {
    EXPECT_THROW((void)expand_node_list(text), Error) << text;
  }
}


TEST(ExpandNodeList, EveryLineOfTheFieldHolds) {
  const std::filesystem::path field = WIREWISE_SOURCE_DIR "/../shared/field";
  if (!std::filesystem::is_directory(field)) GTEST_SKIP() << "../shared/field isn't there";
  std::ifstream file(field / "slurm/nodelists.tsv");
  ASSERT_TRUE(file);
  int lines = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    const auto cells = split(line, '\t');
    ASSERT_GE(cells.size(), 2U) << line;
    ++lines;
    const std::string& expected = cells[1];
    if (expected.rfind("REFUSE", 0) == 0) {
      EXPECT_THROW((void)expand_node_list(cells[0]), Error) << cells[0];
      continue;
    }
    const auto names = expand_node_list(cells[0]);
    if (expected.front() == '<') {  // "<18+18+…=57 names …>"
      EXPECT_EQ(names.size(), std::stoul(expected.substr(expected.find('=') + 1))) << cells[0];
    } else if (expected.rfind("1 name", 0) == 0) {
      EXPECT_EQ(names.size(), 1U) << cells[0];
    } else {
      EXPECT_EQ(names, split(expected, ' ')) << cells[0];
    }
    EXPECT_EQ(expand_node_list(compress_node_list(names)), names) << cells[0];
  }
  EXPECT_EQ(lines, 25);
}

TEST(ExpandNodeList, FaultsNameTheirColumn) {
  const auto offset = [](std::string_view list) {
    std::vector<std::string> names;
    const auto fault = expand_node_list(list, names);
    return fault ? static_cast<long>(fault->offset) : -1L;
  };
  EXPECT_EQ(offset("a,b"), -1);
  EXPECT_EQ(offset("a,,b"), 2);
  EXPECT_EQ(offset("a,"), 1);
  EXPECT_EQ(offset("n[1-3,x]"), 6);
  EXPECT_EQ(offset("ab,n[1"), 4);
  EXPECT_EQ(offset("n[2,5-4]"), 4);
  EXPECT_EQ(offset("n]"), 1);
  EXPECT_EQ(offset("n[[1]]"), 2);
  EXPECT_EQ(offset("n[1-2000000000]"), 2);
}

TEST(ExpandNodeList, LimitHoldsOverTheWholeList) {
  std::vector<std::string> names;
  EXPECT_FALSE(expand_node_list("n[1-5],m[1-5]", names, 10));
  names.clear();
  EXPECT_TRUE(expand_node_list("n[1-5],m[1-6]", names, 10));
  names.clear();
  EXPECT_TRUE(expand_node_list("n[1-4][1-3]", names, 10));
  names.clear();
  EXPECT_TRUE(expand_node_list(std::string(300, 'a'), names));
  EXPECT_TRUE(expand_node_list("n[" + std::string(30, '0') + "1]", names));
}

TEST(CompressNodeList, WritesRangesAsSlurmDoes) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(compress_node_list(Names{}), "");
  EXPECT_EQ(compress_node_list(Names{"login"}), "login");
  EXPECT_EQ(compress_node_list(Names{"n001", "n002", "n003", "n7", "login"}), "n[001-003,7],login");
  EXPECT_EQ(compress_node_list(Names{"n9", "n10", "n11"}), "n[9-11]");
  EXPECT_EQ(compress_node_list(Names{"801", "869", "583", "752"}), "[801,869,583,752]");  // their order is the ranks'
  EXPECT_EQ(compress_node_list(Names{"r1n1x", "r1n2x", "r2n1x"}), "r1n[1-2]x,r2n1x");
  EXPECT_EQ(compress_node_list(Names{"n1", "n01"}), "n[1,01]");
  for (const char* name : {"", "a b", "a,b", "a[1]"}) EXPECT_THROW((void)compress_node_list(Names{name}), Error) << name;
}

TEST(CompressNodeList, ExpansionGivesTheNamesBack) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> names;
    unsigned number = random() % 12;
    for (unsigned i = random() % 9; i > 0; --i) {
      number = random() % 3 == 0 ? random() % 120 : number + 1;
      std::string digits = std::to_string(number);
      if (random() % 2 == 0 && digits.size() < 3) digits.insert(0, 3 - digits.size(), '0');
      names.push_back((random() % 5 == 0 ? "m" : random() % 9 == 0 ? "r1-" : "n") + digits + (random() % 7 == 0 ? "-ib" : ""));
    }
    EXPECT_EQ(expand_node_list(compress_node_list(names)), names) << "seed 7, round " << round << ": " << compress_node_list(names);
  }
}

}  // namespace
}  // namespace wirewise
