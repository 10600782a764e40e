// `wirewise ckpt info` on a real checkpoint, and on what is none.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/program.h"
#include "wirewise/train/checkpoint.h"

namespace wirewise {
namespace {

namespace fs = std::filesystem;
using testing_support::Program;

class Ckpt : public testing::Test {
 protected:
  Ckpt() {
    std::string name = (fs::temp_directory_path() / "wirewise_ckpt_XXXXXX").string();
    folder_ = mkdtemp(name.data());
    const std::vector<float> weights(6, 1.5F);
    const std::vector<Fragment> fragments{{"model/w", {2, 3}, 0, 6, DType::kFloat32, weights.data()}};
    checkpoint_ = save_checkpoint(folder_, 12, 0, 1, fragments, {{"seed", "7"}}, 0, [](const std::string& failure) {
      if (!failure.empty()) throw std::runtime_error(failure);
    });
  }
  ~Ckpt() override { fs::remove_all(folder_); }
  fs::path folder_;
  fs::path checkpoint_;
};

TEST_F(Ckpt, InfoOfTheFolderIsThatOfItsNewestCheckpoint) {
  for (const fs::path& path : {folder_, checkpoint_}) {
    Program program({"ckpt", "info", path.string(), "--json"});
    ASSERT_EQ(program.wait(), 0) << program.err();
    const auto info = nlohmann::json::parse(program.out());
    EXPECT_EQ(info.at("checkpoint"), checkpoint_.string());
    EXPECT_EQ(info.at("step"), 12);
    EXPECT_EQ(info.at("ranks"), 1);
    EXPECT_EQ(info.at("elements"), 6);
    EXPECT_EQ(info.at("bytes"), 24);
    EXPECT_EQ(info.at("state").at("seed"), "7");
    EXPECT_EQ(info.at("tensors").at(0).at("name"), "model/w");
    EXPECT_EQ(info.at("tensors").at(0).at("shape"), (std::vector<int>{2, 3}));
  }
}

TEST_F(Ckpt, InfoPrintsTheSameForPeople) {
  Program program({"ckpt", "info", folder_.string()});
  ASSERT_EQ(program.wait(), 0) << program.err();
  for (const char* text : {"step        12\n", "6 elements, 24 B", "seed = 7", "model/w [2,3] float32"}) {
    EXPECT_NE(program.out().find(text), std::string::npos) << text << " in\n" << program.out();
  }
}

TEST_F(Ckpt, WhatIsNoCheckpointIsOneLineAndExitTwo) {
  fs::create_directory(folder_ / "empty");
  fs::create_directory(folder_ / "torn");
  std::ofstream(folder_ / "torn" / "index.json") << "{";
  for (const char* name : {"absent", "empty", "torn"}) {
    Program program({"ckpt", "info", (folder_ / name).string()});
    EXPECT_EQ(program.wait(), 2) << name << program.err();
    EXPECT_EQ(program.err().rfind("error: ", 0), 0U);
    EXPECT_NE(program.err().find(name), std::string::npos) << program.err();
    EXPECT_EQ(program.out(), "");
  }
}

}  // namespace
}  // namespace wirewise
