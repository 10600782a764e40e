// wirewise topo of what comes in from a pipe.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "wirewise/wiring/formats.h"

namespace wirewise {
namespace {

using testing_support::Program;

struct Printed {
  std::string out, err;
};

/// What `wirewise topo --from -` prints of a text.
Printed topo_of(const std::string& text) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  EXPECT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::close(ends[1]);
  const int saved = ::dup(0);
  ::dup2(ends[0], 0);
  ::close(ends[0]);
  Program program({"topo", "--from", "-"});
  ::dup2(saved, 0);
  ::close(saved);
  EXPECT_EQ(program.wait(), 0) << program.err();
  return {program.out(), program.err()};
}

TEST(Topo, StandardInputIsReadAsAFileIs) {
  const Printed printed = topo_of("gpu1: GPU 0: NVIDIA H100 (UUID: GPU-a)\ngpu2: GPU 0: NVIDIA H100 (UUID: GPU-b)\n");
  EXPECT_NE(printed.out.find("gpu2\n"), std::string::npos) << printed.out;
  EXPECT_NE(printed.err.find("standard input: note: how the hosts are joined"), std::string::npos) << printed.err;
}

TEST(Topo, WhatAFileLacksStandsBesideTheFigure) {
  const auto functions = [](const std::string& gpu) {
    std::string text = "<system><cpu numaid='0'>";
    for (const char* bus : {"01", "02"}) text += std::string("<pci busid='0000:") + bus + ":00.0' class='0x030200' link_speed='16.0 GT/s PCIe' link_width='16'>" + gpu + "</pci>";
    return text + "</cpu></system>";
  };
  const std::string without = "; without NVLinks, which the file leaves out)";
  EXPECT_NE(topo_of(functions("")).out.find(without), std::string::npos) << topo_of(functions("")).out;
  EXPECT_EQ(topo_of(functions("<gpu sm='80'/>")).out.find(without), std::string::npos);  // NCCL asked the driver: there are none
}

TEST(Topo, ARemedyFollowsItsNote) {
  const Printed printed = topo_of("index, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, pcie.link.width.max\n0, 4, 4, 8, 16\n");
  EXPECT_NE(printed.err.find("standard input:2: note: GPU0's PCIe link has 8 lanes of 16, which idling changes nothing of. Seat the card again"), std::string::npos) << printed.err;
}

TEST(Topo, OptionsOfOtherFormsAreRefused) {
  for (const auto& [words, said] : {std::pair{std::vector<std::string>{"--host", "node0"}, "--host chooses"}, std::pair{std::vector<std::string>{"--json", "--to", "svg"}, "--json and --to svg"},
                                    std::pair{std::vector<std::string>{"--bytes", "1M", "--to", "matrix"}, "--bytes adds lines"}}) {
    std::vector<std::string> command{"topo", "--from", "dgx-a100"};
    command.insert(command.end(), words.begin(), words.end());
    Program program(command);
    EXPECT_EQ(program.wait(), 2) << program.out();
    EXPECT_NE(program.err().find(said), std::string::npos) << program.err();
  }
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
    // Bus bandwidth of eight: 2 * 7 / 8 of the bytes over the time.
    EXPECT_NEAR(json["all_reduce"][0]["bus_bandwidth_GBps"].get<double>() * 1e9 * json["all_reduce"][0]["seconds"].get<double>(), 1.75 * (1 << 20), 1);
  }
}

}  // namespace
}  // namespace wirewise
