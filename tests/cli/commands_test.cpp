// The command line as a person meets it: versions, the machine, and one line for each mistake.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/program.h"
#include "wirewise/base/sanitizers.h"

namespace wirewise {
namespace {

using testing_support::Program;

TEST(Command, VersionIsOneLine) {
  Program program({"--version"});
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(program.out(), "wirewise " WIREWISE_VERSION "\n");
}

TEST(Command, EnvIsJsonWithTheMachineAndNoOtherVariable) {
  Program program({"env", "--json"}, {{"RANK", "0"}, {"WORLD_SIZE", ""}, {"SECRET_TOKEN", "hunter2"}});
  EXPECT_EQ(program.wait(), 0);
  const auto env = nlohmann::json::parse(program.out());
  EXPECT_GE(env.at("usable_cores").get<int>(), 1);
  EXPECT_GT(env.at("memory_bytes").get<std::uint64_t>(), 0U);
  EXPECT_EQ(env.at("variables").at("RANK"), "0");
  EXPECT_NE(env.at("ranks").at("error").get<std::string>().find("WORLD_SIZE"), std::string::npos);
  EXPECT_EQ(program.out().find("hunter2"), std::string::npos);
}

TEST(Command, EachMistakeIsOneLineWithTheRemedyAndExitTwo) {
  struct Mistake {
    std::vector<std::string> arguments;
    std::vector<std::string> says;
  };
  const std::vector<Mistake> mistakes{
      {{"lanch"}, {"lanch", "Did you mean launch?"}},
      {{"env", "--jsn"}, {"--jsn", "Did you mean --json?"}},
      {{"launch", "--rank=2", "--", "true"}, {"--rank=2", "Did you mean --ranks?"}},
      {{"launch", "--ranks", "two", "--", "true"}, {"--ranks", "two"}},
      {{"launch", "--ranks"}, {"--ranks"}},
      {{"launch", "--", "true"}, {"number of ranks is missing", "--ranks N"}},
      {{"launch", "--ranks", "2"}, {"no command", "--"}},
      {{"launch", "--ranks", "0", "--", "true"}, {"--ranks N"}},
      {{"launch", "--ranks", "-1", "--", "true"}, {"--ranks N"}},
      {{"launch", "--ranks", "3", "--nnodes", "2", "--", "true"}, {"3 ranks", "2 hosts"}},
      {{"launch", "--ranks", "4", "--nproc-per-node", "3", "--", "true"}, {"4 ranks", "3 ranks each"}},
      {{"launch", "--ranks", "4", "--nnodes", "2", "--", "true"}, {"--master-addr", "--master-port"}},
      {{"launch", "--ranks", "4", "--nnodes", "2", "--node-rank", "2", "--", "true"}, {"--node-rank 2"}},
      {{"launch", "--ranks", "2", "--master-port", "66660", "--", "true"}, {"66660", "65535"}},
      {{"launch", "--ranks", "2", "--master-port", "-1", "--", "true"}, {"-1"}},
      {{"launch", "--ranks", "2", "--master-addr", "no-such-host.invalid", "--", "true"},
       {"no-such-host.invalid", "--master-addr"}},
      {{"launch", "--ranks", "2", "--max-restarts", "-1", "--", "true"}, {"--max-restarts"}},
      {{"launch", "--ranks", "2", "--", "no-such-program"}, {"no-such-program can't be run"}},
      {{"launch", "--ranks", "2", "--", "script.py"}, {"script.py", "python3"}},
      {{"env", "--", "true"}, {"wirewise launch"}},
      {{"topo", "--from", ""}, {"--from is given, but empty"}},
      {{"place", "--cluster="}, {"--cluster is given, but empty"}},
      {{"doctor", "nccl", ""}, {"empty"}},
      {{"doctor", "nccl", "/"}, {"/ is a folder"}},
      {{"doctor", "cluster", "--ranks", "2", "--threshold", "nan"}, {"--threshold", "between 0 and 1"}},
      {{"topo", "--from", "dgx-1", "--to", "svg", "--json"}, {"--json and --to svg"}},
      {{"topo", "--from", "512-h100", "--to", "matrix", "--bytes", "1M"}, {"--bytes"}},
      {{"place", "--cluster", "dgx-1", "--mesh", "dp=8", "--emit", "env", "--json"}, {"--json and --emit env"}},
      {{"place", "--cluster", "dgx-1", "--mesh", "dp=8", "--queue", "q"}, {"--queue goes with --emit jobset"}},
      {{"topo", "--from", "dgx-1", "--bytes", "1X"}, {"--bytes: \"1X\" is no size"}},
      {{"place", "--cluster", "dgx-1", "--mesh", "dp=8,"}, {"a comma too many"}},
  };
  for (const Mistake& mistake : mistakes) {
    Program program(mistake.arguments);
    EXPECT_EQ(program.wait(), 2) << program.err();
    EXPECT_EQ(program.out(), "");
    EXPECT_EQ(program.err().rfind("error: ", 0), 0U) << program.err();
    EXPECT_EQ(std::count(program.err().begin(), program.err().end(), '\n'), 1) << program.err();
    for (const std::string& text : mistake.says)
      EXPECT_NE(program.err().find(text), std::string::npos) << text << " in " << program.err();
  }
}

// On a full disk nothing may look as if it had been said; closed streams must not be taken by files.
TEST(Command, FullOrClosedStandardOutputIsAnError) {
  const std::string program = WIREWISE_BUILD_DIR "/wirewise ";
  for (const char* command : {"--version", "--help", "env", "topo list", "topo links", "topo --from dgx-1", "topo --from dgx-1 --json", "topo --from dgx-1 --to svg", "doctor --from dgx-1",
                              "doctor --from dgx-1 --json", "place --cluster dgx-1 --mesh dp=8", "place --cluster dgx-1 --mesh dp=8 --emit env", "doctor cluster --ranks 2"}) {
    for (const char* where : {" > /dev/full", " >&-", " >&- <&-", " >&- <&- 2>&-"}) {
      const int status = std::system((program + command + where + (std::string(where).find("2>") == std::string::npos ? " 2> /dev/null" : "")).c_str());
      EXPECT_TRUE(WIFEXITED(status));
      EXPECT_EQ(WEXITSTATUS(status), 1) << command << where;
    }
  }
}

// Logs of whole runs hold mostly the steps' own lines; they must not take many times their size.
/// Bytes that `wirewise doctor nccl` holds at most while it reads a log of so many bytes.
std::size_t memory_for_log(std::size_t bytes) {
  std::string name = (std::filesystem::temp_directory_path() / "wirewise-log-XXXXXX").string();
  close(mkstemp(name.data()));
  {
    std::ofstream log(name);
    log << "n1:10:20 [0] NCCL INFO NCCL version 2.18.3+cuda12.2\n";
    const std::string line = "step 12345 loss 3.14159 tokens/s 123456 lr 1e-4\n";
    for (std::size_t written = 0; written < bytes; written += line.size()) log << line;
  }
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stdout) != nullptr) execl(WIREWISE_BUILD_DIR "/wirewise", "wirewise", "doctor", "nccl", name.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  rusage used{};
  EXPECT_EQ(wait4(child, &status, 0, &used), child);
  std::filesystem::remove(name);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  return static_cast<std::size_t>(used.ru_maxrss) * 1024;
}

TEST(Command, ALargeLogOfNcclTakesFewTimesItsSize) {
  if (kAddressSanitizer || kThreadSanitizer) GTEST_SKIP() << "sanitizers take memory of their own";
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const std::size_t small = memory_for_log(1000);
  EXPECT_LE(memory_for_log(kBytes), small + 3 * kBytes);
}

TEST(Command, NoHostsToLeaveOutMayBeGiven) {
  Program program({"place", "--cluster", "dgx-1", "--mesh", "dp=8", "--exclude", "", "--json"});
  EXPECT_EQ(program.wait(), 0) << program.err();
}

TEST(Command, NoSubcommandPrintsHelpOnStandardError) {
  Program program({});
  EXPECT_EQ(program.wait(), 2);
  EXPECT_EQ(program.out(), "");
  EXPECT_NE(program.err().find("launch"), std::string::npos);
}

}  // namespace
}  // namespace wirewise
