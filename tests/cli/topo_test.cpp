// wirewise topo of what comes in from a pipe.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "wirewise/wiring/formats.h"

namespace wirewise {
namespace {

using testing_support::Program;

TEST(Topo, StandardInputIsReadAsAFileIs) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string text = "gpu1: GPU 0: NVIDIA H100 (UUID: GPU-a)\ngpu2: GPU 0: NVIDIA H100 (UUID: GPU-b)\n";
  ASSERT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::close(ends[1]);
  const int saved = ::dup(0);
  ::dup2(ends[0], 0);
  ::close(ends[0]);
  Program program({"topo", "--from", "-"});
  ::dup2(saved, 0);
  ::close(saved);
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_NE(program.out().find("gpu2\n"), std::string::npos) << program.out();
  EXPECT_NE(program.err().find("standard input: note: how the hosts are joined"), std::string::npos) << program.err();
}

TEST(Topo, HelpListsEveryFormat) {
  Program program({"topo", "--help"});
  EXPECT_EQ(program.wait(), 0) << program.err();
  for (int i = 0; i < static_cast<int>(Format::kThisMachine); ++i) {
    const auto format = static_cast<Format>(i);
    EXPECT_NE(printed_by(format), "unknown") << name_of(format);
    EXPECT_NE(program.out().find("\n  " + std::string(printed_by(format)) + "\n"), std::string::npos) << name_of(format);
  }
}

TEST(Topo, NoBytesAreRefused) {
  for (const char* sizes : {"0", "1M,0"}) {
    Program program({"topo", "--from", "dgx-a100", "--bytes", sizes});
    EXPECT_EQ(program.wait(), 2) << program.out();
    EXPECT_NE(program.err().find("--bytes 0"), std::string::npos) << program.err();
  }
}

TEST(Topo, JsonSaysWhichTimesAreLowerBounds) {
  for (const auto& [machine, at_least] : {std::pair{"hgx-h100", true}, std::pair{"dgx-a100", false}}) {
    Program program({"topo", "--from", machine, "--bytes", "1M", "--json"});
    ASSERT_EQ(program.wait(), 0) << program.err();
    const auto json = nlohmann::json::parse(program.out());
    ASSERT_EQ(json["all_reduce"].size(), 1U);
    EXPECT_EQ(json["all_reduce"][0]["at_least"], at_least) << machine;
    EXPECT_EQ(json["all_reduce"][0]["bytes"], 1 << 20);
  }
}

}  // namespace
}  // namespace wirewise
