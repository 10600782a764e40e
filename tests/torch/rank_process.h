// Ranks as real processes for tests: this executable started again for one hidden test (a DISABLED_ one that does a rank's work),
// with variables of its own. Spawned, not forked, because libtorch's threads don't survive a fork.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace wirewise::testing {

class RankProcess {
 public:
  /// Runs the test `name` ("Suite.DISABLED_Rank") with `variables` on top of this process's environment.
  RankProcess(const std::string& name, const std::map<std::string, std::string>& variables) {
    std::vector<std::string> environment;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      if (!variables.contains(text.substr(0, text.find('=')))) environment.push_back(text);
    }
    for (const auto& [key, value] : variables) environment.push_back(key + "=" + value);
    std::vector<std::string> arguments{"/proc/self/exe", "--gtest_filter=" + name, "--gtest_also_run_disabled_tests",
                                       "--gtest_brief=1"};
    output_ = std::tmpfile();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(output_), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(output_), STDERR_FILENO);
    auto argument_pointers = pointers(arguments);
    auto environment_pointers = pointers(environment);
    const int error =
        posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argument_pointers.data(), environment_pointers.data());
    posix_spawn_file_actions_destroy(&actions);
    EXPECT_EQ(error, 0) << std::strerror(error);
  }
  ~RankProcess() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    std::fclose(output_);
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }

  /// The exit status, 128 + n for signal n, or -1 when the deadline passed (the process is ended then).
  int wait(std::chrono::seconds deadline = std::chrono::seconds(60)) {
    const int handle = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    pollfd ended{handle, POLLIN, 0};
    const bool in_time = poll(&ended, 1, static_cast<int>(std::chrono::milliseconds(deadline).count())) == 1;
    close(handle);
    if (!in_time) kill(pid_, SIGKILL);
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    if (!in_time) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  /// What it printed so far.
  [[nodiscard]] std::string output() const {
    std::string text;
    char buffer[4096];
    off_t offset = 0;
    for (ssize_t count = 0; (count = pread(fileno(output_), buffer, sizeof buffer, offset)) > 0; offset += count) {
      text.append(buffer, static_cast<std::size_t>(count));
    }
    return text;
  }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (std::string& text : texts) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
  }

  pid_t pid_ = -1;
  std::FILE* output_ = nullptr;
};

}  // namespace wirewise::testing
