// `wirewise launch --hosts` with a shell of this machine in ssh's place: what arrives, how endings and signals travel.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cli/program.h"

namespace wirewise {
namespace {

namespace fs = std::filesystem;
using testing_support::eventually;
using testing_support::Program;

class HostLaunch : public testing::Test {
 protected:
  HostLaunch() {
    std::string name = (fs::temp_directory_path() / "wirewise_test_XXXXXX").string();
    folder_ = mkdtemp(name.data());
    // The line runs as a process that only its input ties to what stands for ssh.
    std::ofstream(folder_ / "rsh") << "#!/bin/sh\necho \"$1\" >> " << (folder_ / "called").string()
                                   << "\nshift\nexec 3<&0\nsh -c \"$*\" <&3 3<&- &\nexec 3<&- 0</dev/null\nwait $!\n";
    fs::permissions(folder_ / "rsh", fs::perms::owner_all);
    std::ofstream(folder_ / "hosts") << "one slots=2\ntwo slots=2\n";
  }
  ~HostLaunch() override { fs::remove_all(folder_); }

  [[nodiscard]] std::vector<std::string> arguments(const std::string& script, std::vector<std::string> options = {}) const {
    std::vector<std::string> words{"launch", "--hosts", (folder_ / "hosts").string(), "--master-addr", "127.0.0.1"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", "bash", "-c", script});
    return words;
  }
  [[nodiscard]] std::map<std::string, std::string> variables() const {
    return {{"WIREWISE_RSH", (folder_ / "rsh").string()}, {"WIREWISE_F", folder_.string()}, {"RANK", ""}, {"WORLD_SIZE", ""}, {"OMP_NUM_THREADS", ""}};
  }
  [[nodiscard]] std::string text_of(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }
  fs::path folder_;
};

TEST_F(HostLaunch, EachHostGetsItsRanks) {
  Program program(arguments("echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $MASTER_ADDR > $WIREWISE_F/$RANK; "
                            "echo $MASTER_PORT > $WIREWISE_F/port$RANK; echo \"out $RANK\""),
                  variables());
  EXPECT_EQ(program.wait(), 0) << program.err();
  for (int rank = 0; rank < 4; ++rank) {
    const std::string number = std::to_string(rank);
    EXPECT_EQ(text_of(number), number + " " + std::to_string(rank % 2) + " 4 2 " + std::to_string(rank / 2) + " 2 127.0.0.1\n");
    EXPECT_EQ(text_of("port" + number), text_of("port0"));
    if (rank > 0) {
      EXPECT_NE(program.err().find("[rank " + number + "] out " + number + "\n"), std::string::npos) << program.err();
    }
  }
  EXPECT_EQ(program.out(), "out 0\n");
  EXPECT_TRUE(text_of("called") == "one\ntwo\n" || text_of("called") == "two\none\n") << text_of("called");
}

TEST_F(HostLaunch, AFailureOnOneHostEndsTheOthers) {
  Program program(arguments("if [ $RANK = 3 ]; then exit 5; fi; exec sleep 1000"), variables());
  EXPECT_EQ(program.wait(), 5) << program.err();
  EXPECT_NE(program.err().find("error: rank 3 (pid"), std::string::npos) << program.err();
  EXPECT_NE(program.err().find("error: host two ended with exit code 5. 1 other host ended with it."), std::string::npos) << program.err();
}

TEST_F(HostLaunch, AKilledRankGivesItsSignalsCode) {
  Program program(arguments("if [ $RANK = 0 ]; then kill -KILL $$; fi; exec sleep 1000"), variables());
  EXPECT_EQ(program.wait(), 137) << program.err();
  EXPECT_NE(program.err().find("error: host one ended with exit code 137."), std::string::npos) << program.err();
}

TEST_F(HostLaunch, SignalsReachTheRanksOfAllHosts) {
  Program program(arguments("trap 'exit 143' TERM; touch $WIREWISE_F/up$RANK; while :; do sleep 0.05; done"), variables());
  const auto up = [&] {
    for (int rank = 0; rank < 4; ++rank) {
      if (!fs::exists(folder_ / ("up" + std::to_string(rank)))) return false;
    }
    return true;
  };
  ASSERT_TRUE(eventually(up));
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 143) << program.err();
  EXPECT_EQ(program.err().find("error:"), std::string::npos) << program.err();
}

TEST_F(HostLaunch, RanksEndWithTheLauncherThatWasKilled) {
  Program program(arguments("echo $$ > $WIREWISE_F/p$RANK; mv $WIREWISE_F/p$RANK $WIREWISE_F/pid$RANK; exec sleep 1000"), variables());
  const auto pid_of = [&](int rank) { return static_cast<pid_t>(std::atoi(text_of("pid" + std::to_string(rank)).c_str())); };
  const auto up = [&] {
    for (int rank = 0; rank < 4; ++rank) {
      if (pid_of(rank) <= 0) return false;
    }
    return true;
  };
  ASSERT_TRUE(eventually(up));
  program.signal(SIGKILL);
  EXPECT_EQ(program.wait(), 1000 + SIGKILL);
  for (int rank = 0; rank < 4; ++rank) {
    const auto gone = [&] {
      std::ifstream file("/proc/" + std::to_string(pid_of(rank)) + "/stat");
      std::string text;
      std::getline(file, text);
      const auto close = text.rfind(')');
      return close == std::string::npos || text.size() <= close + 2 || text[close + 2] == 'Z' || text[close + 2] == 'X';
    };
    EXPECT_TRUE(eventually(gone)) << "rank " << rank;
  }
}

TEST_F(HostLaunch, AllHostsStartAgainAfterACrash) {
  Program program(arguments("echo $TORCHELASTIC_RESTART_COUNT$WIREWISE_RESTART >> $WIREWISE_F/starts$RANK; "
                            "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then if [ $RANK = 2 ]; then kill -SEGV $$; fi; exec sleep 1000; fi",
                            {"--max-restarts", "1"}),
                  variables());
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_NE(program.err().find("starting the ranks of all hosts again (restart 1 of 1)"), std::string::npos) << program.err();
  for (int rank = 0; rank < 4; ++rank) EXPECT_NE(text_of("starts" + std::to_string(rank)).find("11\n"), std::string::npos);
}

TEST_F(HostLaunch, RefusesWhatContradictsItself) {
  const auto refused = [&](std::vector<std::string> options, const std::string& says) {
    Program program(arguments("true", options), variables());
    EXPECT_EQ(program.wait(), 2);
    EXPECT_NE(program.err().find(says), std::string::npos) << program.err();
  };
  refused({"--nnodes", "2"}, "--nnodes and --node-rank are for a launcher that you start on each host");
  refused({"--master", "10.0.0.1"}, "--master says the same as --master-addr");
  refused({"--ranks", "5"}, "hold 4 ranks together, but --ranks is 5");
  refused({"-x", "WIREWISE_NOT_SET"}, "-x WIREWISE_NOT_SET: that variable is not set here");
  EXPECT_FALSE(fs::exists(folder_ / "called"));
}

}  // namespace
}  // namespace wirewise
