// wirewise bench --fit as a user runs it on one host: what it writes, and what it refuses before anything is measured.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/program.h"
#include "wirewise/cli/bench_fit_report.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {
namespace {

using testing_support::Program;

const std::map<std::string, std::string> kNoLauncher{
    {"RANK", ""}, {"WORLD_SIZE", ""}, {"LOCAL_RANK", ""}, {"LOCAL_WORLD_SIZE", ""}, {"SLURM_PROCID", ""}, {"OMPI_COMM_WORLD_RANK", ""}};

/// `wirewise bench --fit`, begun anew where the machine is so busy that it refuses its own times.
class Fit {
 public:
  explicit Fit(std::vector<std::string> arguments) : arguments_(std::move(arguments)) { begin(); }
  [[nodiscard]] const std::string& out() const { return program_->out(); }
  [[nodiscard]] const std::string& err() const { return program_->err(); }
  /// Begins anew if it has ended for that.
  void look() {
    if (code_ || !program_->ended()) return;
    code_ = program_->wait();
    if (was_too_busy()) begin();
  }
  int wait() {
    for (;;) {
      if (!code_) code_ = program_->wait();
      if (!was_too_busy()) return *code_;
      begin();
    }
  }

 private:
  void begin() {
    if (++tries_ > 20) throw std::runtime_error("no quiet moment in 20 tries: " + err());
    code_.reset();
    program_.emplace(arguments_, kNoLauncher);
  }
  [[nodiscard]] bool was_too_busy() const { return code_ == 1 && err().find("larger messages took no longer than small ones") != std::string::npos; }

  std::vector<std::string> arguments_;
  std::optional<Program> program_;
  std::optional<int> code_;
  int tries_ = 0;
};

constexpr std::chrono::seconds kPatience{120};  // of several tries

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
  Fit program({"bench", "--fit", at("c.toml"), "--ranks", "3", "--sizes", "8,1K,64K,1M", "--json"});
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
  std::filesystem::create_symlink(at("not-yet.toml"), at("lost.toml"));
  std::filesystem::create_symlink(at("loop.toml"), at("loop.toml"));
  std::ofstream(at("mine.toml")) << "[[host]]\ntemplate = \"workstation-10gbe\"\n";
  ASSERT_EQ(chmod(at("mine.toml").c_str(), 0444), 0);
  ASSERT_EQ(mkfifo(at("pipe.toml").c_str(), 0600), 0);
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--fit", at("new")}, "ends in .toml"},
      {{"--fit", at("nowhere/c.toml")}, "there is no folder"},
      {{"--fit", at("matrix.txt")}, "no description of a cluster but nvidia-smi topo"},
      {{"--fit", at("broken.toml")}, "broken.toml:1:"},
      {{"--fit", at("list.toml")}, "Lay its [[measured]] tables out"},
      {{"--fit", ""}, "--fit is given, but empty"},
      {{"--fit", at("lost.toml")}, "a link that leads nowhere"},
      {{"--fit", at("loop.toml")}, "a link that leads nowhere"},
      {{"--fit", at("pipe.toml")}, "no plain file"},
      {{"--fit", folder_.string()}, "no plain file"},
      {{"--fit", at("mine.toml")}, "read-only"},
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
  EXPECT_TRUE(std::filesystem::is_symlink(at("lost.toml")));
  EXPECT_TRUE(std::filesystem::is_symlink(at("loop.toml")));
}

/// The folder's lock, on which whoever keeps figures waits.
class Lock {
 public:
  explicit Lock(const std::filesystem::path& folder) : folder_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) { flock(folder_, LOCK_EX); }
  ~Lock() { close(folder_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  [[nodiscard]] int waiting() const {
    struct stat status {};
    fstat(folder_, &status);
    std::ifstream locks("/proc/locks");
    int count = 0;
    for (std::string line; std::getline(locks, line);) count += line.find("->") != std::string::npos && line.find(":" + std::to_string(status.st_ino) + " ") != std::string::npos ? 1 : 0;
    return count;
  }

 private:
  int folder_;
};

TEST_F(BenchFit, WhatWasChangedWhileItMeasuredStays) {
  if (!std::ifstream("/proc/locks")) GTEST_SKIP() << "no /proc/locks to see who waits";
  Fit first({"bench", "--fit", at("n.toml"), "--ranks", "2", "--sizes", "8,1K,64K,4M"});
  ASSERT_EQ(first.wait(), 0) << first.err();
  std::optional<Lock> lock(folder_);
  Fit again({"bench", "--fit", at("n.toml"), "--ranks", "2", "--sizes", "8,1K,64K,4M"});
  Fit fresh({"bench", "--fit", at("m.toml"), "--ranks", "2", "--sizes", "8,1K,64K,4M"});
  const auto both_wait = [&] {
    again.look();
    fresh.look();
    return lock->waiting() == 2;
  };
  ASSERT_TRUE(testing_support::eventually(both_wait, kPatience)) << again.err() << fresh.err();
  std::ofstream(at("n.toml"), std::ios::app) << "# a note\n";
  std::filesystem::copy_file(at("n.toml"), at("m.toml"));
  lock.reset();
  EXPECT_EQ(again.wait(), 0) << again.err();
  EXPECT_EQ(fresh.wait(), 0) << fresh.err();
  for (const char* name : {"n.toml", "m.toml"}) {
    EXPECT_TRUE(text_of(at(name)).ends_with("# a note\n")) << text_of(at(name));
    EXPECT_EQ(read_cluster(text_of(at(name)), name).wiring.links.front().provenance, Provenance::kMeasured);
  }
}

TEST_F(BenchFit, WhatCantBeKeptIsPrinted) {
  const std::vector<std::string> arguments{"bench", "--fit", at("n.toml"), "--sizes", "8,1K,64K,4M"};
  if (!std::ifstream("/proc/locks")) GTEST_SKIP() << "no /proc/locks to see who waits";
  std::optional<Lock> lock(folder_);
  Fit program(arguments);
  const auto waits = [&] {
    program.look();
    return lock->waiting() == 1;
  };
  ASSERT_TRUE(testing_support::eventually(waits, kPatience)) << program.err();
  std::filesystem::create_directory(at("n.toml"));
  lock.reset();
  EXPECT_EQ(program.wait(), 2) << program.err();
  EXPECT_NE(program.err().find("[[measured]]\nclass = \"shared memory\""), std::string::npos) << program.err();
}

TEST_F(BenchFit, TheOwnerOfAFileStays) {
  if (geteuid() != 0) GTEST_SKIP() << "only root writes others' files";
  const std::vector<std::string> arguments{"bench", "--fit", at("n.toml"), "--sizes", "8,1K,64K,4M"};
  ASSERT_EQ(Fit(arguments).wait(), 0);
  ASSERT_EQ(chown(at("n.toml").c_str(), 12345, 23456), 0);
  ASSERT_EQ(chmod(at("n.toml").c_str(), 0640), 0);
  ASSERT_EQ(Fit(arguments).wait(), 0);
  struct stat status {};
  ASSERT_EQ(stat(at("n.toml").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 12345U);
  EXPECT_EQ(status.st_gid, 23456U);
  EXPECT_EQ(status.st_mode & 07777, 0640U);
}

TEST(BenchFitReport, NamesTheSizesThatLieOffTheLine) {
  bench::MeasuredLink link;
  link.pair = {"10 GbE", LinkKind::kEthernet, 0, 2};
  link.fit.sizes = {8, 1024, 65536, 1 << 20};
  link.fit.medians = {1e-6, 2e-6, 3e-6, 4e-6};
  link.fit.left_out = {1024, 65536};
  testing::internal::CaptureStdout();
  bench::print_links({link}, false);
  const std::string table = testing::internal::GetCapturedStdout();
  EXPECT_NE(table.find("8 B to 1.00 MiB, off the line: 1.00 KiB, 64.00 KiB\n"), std::string::npos) << table;
}

}  // namespace
}  // namespace wirewise
