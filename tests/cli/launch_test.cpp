// `wirewise launch` with real child processes: what ranks see, how they end, and that nothing stays behind.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cli/program.h"
#include "wirewise/base/cgroup.h"
#include "wirewise/cli/rank_binding.h"

namespace wirewise {
namespace {

namespace fs = std::filesystem;
using testing_support::eventually;
using testing_support::Program;

/// A folder for one test; TMPDIR of the launcher, so that what it leaves behind shows.
class Launch : public testing::Test {
 protected:
  Launch() {
    std::string name = (fs::temp_directory_path() / "wirewise_test_XXXXXX").string();
    folder_ = mkdtemp(name.data());
    fs::create_directory(folder_ / "tmp");
  }
  ~Launch() override { fs::remove_all(folder_); }

  /// wirewise launch <options> -- bash -c <script>; $F is the test's folder.
  [[nodiscard]] std::vector<std::string> arguments(std::vector<std::string> options, const std::string& script) const {
    options.insert(options.begin(), "launch");
    options.insert(options.end(), {"--", "bash", "-c", script});
    return options;
  }
  [[nodiscard]] std::map<std::string, std::string> variables() const {
    return {{"F", folder_.string()},
            {"TMPDIR", (folder_ / "tmp").string()},
            {"OMP_NUM_THREADS", ""},
            {"RANK", ""},
            {"WORLD_SIZE", ""}};
  }
  [[nodiscard]] bool left_nothing() const { return fs::is_empty(folder_ / "tmp"); }
  [[nodiscard]] std::string text_of(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }
  fs::path folder_;
};

/// Whether a process runs still (one that ended but was not waited for doesn't).
bool alive(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto close = text.rfind(')');
  return close != std::string::npos && text.size() > close + 2 && text[close + 2] != 'Z' && text[close + 2] != 'X';
}

TEST_F(Launch, GivesEachRankTorchrunsVariables) {
  Program program(
      arguments({"--ranks", "3"},
                "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT "
                "$TORCHELASTIC_MAX_RESTARTS ${OMP_NUM_THREADS:+threads} > $F/$RANK; echo $MASTER_PORT $TORCHELASTIC_RUN_ID "
                "$WIREWISE_STORE > "
                "$F/shared$RANK; stat -c %a $WIREWISE_STORE > $F/mode"),
      variables());
  EXPECT_EQ(program.wait(), 0) << program.err();
  for (int rank = 0; rank < 3; ++rank) {
    const std::string number = std::to_string(rank);
    EXPECT_EQ(text_of(number), number + " " + number + " 3 3 0 127.0.0.1 0 0 threads\n");
    EXPECT_EQ(text_of("shared" + number), text_of("shared0"));
  }
  std::istringstream shared(text_of("shared0"));
  int port = 0;
  std::string run_id, store;
  shared >> port >> run_id >> store;
  EXPECT_GT(port, 1023);
  EXPECT_LE(port, 65535);
  EXPECT_FALSE(run_id.empty());
  EXPECT_FALSE(store.empty());
  EXPECT_EQ(text_of("mode"), "700\n");
  EXPECT_TRUE(left_nothing());
}

TEST_F(Launch, OnSeveralHostsNumbersTheRanksAndOffersNoFolder) {
  Program program(arguments({"--nnodes", "2", "--node-rank", "1", "--nproc-per-node", "2", "--master-addr", "127.0.0.1",
                             "--master-port", "29555"},
                            "echo $RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK $MASTER_PORT [$WIREWISE_STORE] > $F/$LOCAL_RANK"),
                  variables());
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_EQ(text_of("0"), "2 0 4 1 29555 []\n");
  EXPECT_EQ(text_of("1"), "3 1 4 1 29555 []\n");
}

TEST_F(Launch, KeepsThreadsThatTheUserChose) {
  auto set = variables();
  set["OMP_NUM_THREADS"] = "7";
  Program program(arguments({"--ranks", "1"}, "echo $OMP_NUM_THREADS"), set);
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(program.out(), "7\n");
}

TEST_F(Launch, OnlyRankZeroWritesToStandardOutput) {
  Program program(arguments({"--ranks", "3"}, "echo out$RANK; echo err$RANK >&2; printf half$RANK >&2"), variables());
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(program.out(), "out0\n");
  for (const char* line : {"[rank 1] out1\n", "[rank 1] err1\n", "[rank 2] out2\n", "[rank 2] half2\n", "err0\n", "half0"}) {
    EXPECT_NE(program.err().find(line), std::string::npos) << line << program.err();
  }
  EXPECT_EQ(program.err().find("[rank 0]"), std::string::npos);
}

TEST_F(Launch, PassesManyLinesOfManyRanksWhole) {
  Program program(arguments({"--ranks", "4"}, "for i in $(seq 1 2000); do echo line-$RANK-$i; done >&2"), variables());
  EXPECT_EQ(program.wait(), 0);
  std::istringstream lines(program.err());
  std::string line;
  std::map<char, int> next{{'1', 1}, {'2', 1}, {'3', 1}};
  int seen = 0;
  while (std::getline(lines, line)) {
    if (line.rfind("[rank ", 0) != 0) continue;
    const char rank = line[6];
    ASSERT_EQ(line, std::string("[rank ") + rank + "] line-" + rank + "-" + std::to_string(next[rank]++));
    ++seen;
  }
  EXPECT_EQ(seen, 6000);
}

TEST_F(Launch, ReturnsTheCodeOfTheRankThatFailedAndReportsIt) {
  Program program(arguments({"--ranks", "3"}, "if [ $RANK = 1 ]; then echo the reason >&2; exit 7; fi; exec sleep 1000"),
                  variables());
  EXPECT_EQ(program.wait(), 7);
  EXPECT_NE(program.err().find("error: rank 1 (pid "), std::string::npos) << program.err();
  EXPECT_NE(program.err().find("exited with code 7"), std::string::npos);
  EXPECT_NE(program.err().find("  | the reason\n"), std::string::npos);
  EXPECT_TRUE(left_nothing());
}

TEST_F(Launch, ADeathBySignalIs128PlusIt) {
  Program program(arguments({"--ranks", "2"}, "if [ $RANK = 0 ]; then kill -9 $$; fi; exec sleep 1000"), variables());
  EXPECT_EQ(program.wait(), 137);
  EXPECT_NE(program.err().find("killed by signal 9 (SIGKILL)"), std::string::npos) << program.err();
}

TEST_F(Launch, TheCrashBehindALostPeerIsTheCause) {
  // Rank 0 sees its peer vanish and exits 75 before that peer is dead.
  mkfifo((folder_ / "gone").c_str(), 0600);
  Program program(arguments({"--ranks", "3"},
                            "case $RANK in 0) echo > $F/gone; exit 75;; 1) read x < $F/gone; kill -SEGV $$; sleep 1000;; 2) exec "
                            "sleep 1000;; esac"),
                  variables());
  EXPECT_EQ(program.wait(), 139);
  EXPECT_NE(program.err().find("error: rank 1 "), std::string::npos) << program.err();
}

TEST_F(Launch, ARankThatIgnoresItsEndIsKilled) {
  mkfifo((folder_ / "ready").c_str(), 0600);
  Program program(
      arguments(
          {"--ranks", "2"},
          "if [ $RANK = 1 ]; then read x < $F/ready; exit 3; fi; trap '' TERM; echo > $F/ready; while :; do sleep 1000; done"),
      variables());
  EXPECT_EQ(program.wait(), 3);
}

TEST_F(Launch, ASignalReachesEachRankOnceAndTheirEndIsAwaited) {
  for (const auto& [number, name, code] : {std::tuple(SIGTERM, "TERM", 143), std::tuple(SIGINT, "INT", 130)}) {
    Program program(arguments({"--ranks", "2"}, std::string("trap 'echo got; exit ") + std::to_string(code) + "' " + name +
                                                    "; echo ready >&2; while :; do sleep 1000 & wait $!; done"),
                    variables());
    program.read([&] {
      const auto first = program.err().find("ready");
      return first != std::string::npos && program.err().find("ready", first + 1) != std::string::npos;
    });
    program.signal(number);
    EXPECT_EQ(program.wait(), code) << program.err();
    EXPECT_EQ(program.out(), "got\n");
    EXPECT_NE(program.err().find("[rank 1] got\n"), std::string::npos);
    EXPECT_EQ(program.err().find("error"), std::string::npos) << "a stop is no failure: " << program.err();
  }
}

TEST_F(Launch, ARequestToSaveLetsTheRanksGoOn) {
  Program program(
      arguments({"--ranks", "2"}, "trap 'echo saved; exit 0' USR1; echo ready >&2; while :; do sleep 1000 & wait $!; done"),
      variables());
  program.read([&] {
    const auto first = program.err().find("ready");
    return first != std::string::npos && program.err().find("ready", first + 1) != std::string::npos;
  });
  program.signal(SIGUSR1);
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_EQ(program.out(), "saved\n");
}

TEST_F(Launch, ASecondInterruptKills) {
  Program program(arguments({"--ranks", "1"}, "trap 'echo one >&2' INT; echo ready >&2; while :; do sleep 1000 & wait $!; done"),
                  variables());
  program.read_until("ready");
  program.signal(SIGINT);
  program.read_until("one");
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 137) << program.err();
}

TEST_F(Launch, StartsAgainAfterALossAndCounts) {
  Program program(arguments({"--ranks", "2", "--max-restarts", "2"},
                            "echo $TORCHELASTIC_RESTART_COUNT [$WIREWISE_RESTART] $(ls $WIREWISE_STORE | wc -l) >> $F/log$RANK; "
                            "touch $WIREWISE_STORE/x$RANK; "
                            "if [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] && [ $RANK = 1 ]; then exit 75; fi; "
                            "if [ $TORCHELASTIC_RESTART_COUNT -lt 2 ]; then exec sleep 1000; fi"),
                  variables());
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_EQ(text_of("log0").substr(0, 4), "0 []");
  EXPECT_NE(text_of("log0").find("1 [1]"), std::string::npos);
  EXPECT_NE(text_of("log0").find("2 [1]"), std::string::npos);
  EXPECT_NE(program.err().find("restart 2 of 2"), std::string::npos);
  EXPECT_TRUE(left_nothing());
}

TEST_F(Launch, DoesNotStartAgainAfterBadInput) {
  Program program(arguments({"--ranks", "1", "--max-restarts", "5"}, "echo start; exit 2"), variables());
  EXPECT_EQ(program.wait(), 2);
  EXPECT_EQ(program.out(), "start\n");
}

TEST_F(Launch, GivesUpAfterTheLastRestart) {
  Program program(arguments({"--ranks", "1", "--max-restarts", "2"}, "echo start; kill -9 $$"), variables());
  EXPECT_EQ(program.wait(), 137);
  EXPECT_EQ(program.out(), "start\nstart\nstart\n");
}

TEST_F(Launch, RanksDieWithAKilledLauncher) {
  Program program({"launch", "--ranks", "2", "--", "bash", "-c",
                   "echo $$ > $F/pid$RANK.new; mv $F/pid$RANK.new $F/pid$RANK; exec sleep 1000"},
                  variables());
  ASSERT_TRUE(eventually([&] { return fs::exists(folder_ / "pid0") && fs::exists(folder_ / "pid1"); }));
  const pid_t first = std::stoi(text_of("pid0"));
  const pid_t second = std::stoi(text_of("pid1"));
  program.signal(SIGKILL);
  EXPECT_EQ(program.wait(), 1000 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return !alive(first) && !alive(second); }));
}

TEST_F(Launch, WhatARankLeftBehindEndsWithIt) {
  Program program(arguments({"--ranks", "1"}, "sleep 1000 & echo $! > $F/pid; exit 0"), variables());
  EXPECT_EQ(program.wait(), 0);
  const pid_t pid = std::stoi(text_of("pid"));
  EXPECT_TRUE(eventually([&] { return !alive(pid); }));
}

TEST_F(Launch, ATakenPortIsNamedWithAddressHolderAndRemedy) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  Program program(arguments({"--ranks", "2", "--master-port", port}, "true"), variables());
  EXPECT_EQ(program.wait(), 2);
  close(fd);
  for (const std::string& text :
       {"127.0.0.1:" + port, std::to_string(getpid()), std::string("port 0"), std::string("--master-port")}) {
    EXPECT_NE(program.err().find(text), std::string::npos) << text << " in " << program.err();
  }
}

TEST_F(Launch, BindGivesEachRankCoresOfItsOwn) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  if (CPU_COUNT(&allowed) < 2) GTEST_SKIP() << "needs two cores";
  Program program(arguments({"--ranks", "2", "--bind"}, "grep Cpus_allowed_list /proc/self/status > $F/$RANK"), variables());
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_NE(text_of("0"), text_of("1"));
  Program many(arguments({"--ranks", std::to_string(CPU_COUNT(&allowed) + 1), "--bind"}, "true"), variables());
  EXPECT_EQ(many.wait(), 2) << many.err();
}

TEST_F(Launch, BindPrefersTheMemoryOfTheRanksNode) {
  if (!std::filesystem::exists("/proc/self/numa_maps") || !std::filesystem::exists("/sys/devices/system/node/node0/cpulist") || !may_prefer_memory()) {
    GTEST_SKIP() << "needs a kernel with NUMA nodes, and leave to set memory policies";
  }
  Program program(arguments({"--ranks", "1", "--bind"}, "cat /proc/self/numa_maps > $F/$RANK"), variables());
  EXPECT_EQ(program.wait(), 0) << program.err();
  const HostCpus host = host_cpus("/", allowed_cpus(), nullptr);
  if (host.nodes.size() != 1 || !host.nodes.front().memory) GTEST_SKIP() << "a rank has several nodes here";
  EXPECT_NE(text_of("0").find("prefer:" + std::to_string(host.nodes.front().number)), std::string::npos) << text_of("0");
}

TEST_F(Launch, ARanksInputIsEmpty) {
  Program program(arguments({"--ranks", "2"}, "cat"), variables());
  EXPECT_EQ(program.wait(), 0);
}

}  // namespace
}  // namespace wirewise
