// Log lines in child processes: level from the environment, rank in the prefix, nothing that steers a terminal.
#include "wirewise/base/log.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>

namespace wirewise {
namespace {

/// What `body` writes to standard error in a child whose log starts afresh.
std::string stderr_of(const char* level, const std::function<void()>& body) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe");
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
    level != nullptr ? setenv("WIREWISE_DEBUG", level, 1) : unsetenv("WIREWISE_DEBUG");
    body();
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return text;
}

TEST(Log, ShowsWarningsByDefaultAndMoreOnRequest) {
  const auto body = [] {
    log_debug("detail");
    log_info("news");
    log_warn("trouble");
  };
  const std::string quiet = stderr_of(nullptr, body);
  EXPECT_EQ(quiet.find("detail"), std::string::npos);
  EXPECT_EQ(quiet.find("news"), std::string::npos);
  EXPECT_NE(quiet.find("trouble"), std::string::npos);
  const std::string loud = stderr_of("debug", body);
  EXPECT_NE(loud.find("detail"), std::string::npos);
  EXPECT_EQ(stderr_of("off", body), "");
}

TEST(Log, NamesTheRank) {
  EXPECT_NE(stderr_of(nullptr,
                      [] {
                        set_log_rank(3);
                        log_warn("x");
                      })
                .find(" rank 3] warning: x\n"),
            std::string::npos);
}

TEST(Log, SaysThatALevelIsUnknown) {
  EXPECT_NE(stderr_of("loud", [] { log_debug("x"); }).find("WIREWISE_DEBUG=loud is no level"), std::string::npos);
}

TEST(Log, EscapesWhatWouldSteerATerminal) {
  EXPECT_NE(stderr_of(nullptr, [] { log_warn("a\x1b[2Jb{}"); }).find("a\\x1b[2Jb{}\n"), std::string::npos);
}

}  // namespace
}  // namespace wirewise
