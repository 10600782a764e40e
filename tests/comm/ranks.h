// Ranks for tests: as processes (forked, with a deadline, ended by their own pid) and as threads.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "wirewise/base/sanitizers.h"
#include "wirewise/comm/communicator.h"

namespace wirewise::testing {

/// A folder of its own, gone with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "wirewise-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

/// Deadlines of tests are for programs at their full speed.
inline constexpr int kPatience = kThreadSanitizer ? 10 : kAddressSanitizer ? 3 : 1;

/// How a rank's process ended.
struct RankResult {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;
  bool late = false;   // it was ended because the deadline had passed
  std::string output;  // what its function returned, or the text of what it threw
  [[nodiscard]] bool ok() const noexcept { return exit_code == 0; }
};

/// Assertions of the current test that have failed in this process (a forked one inherits its parent's).
inline int failures_of_this_test() {
  const ::testing::TestInfo* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  int failures = 0;
  for (int i = 0; test != nullptr && i < test->result()->total_part_count(); ++i) {
    if (test->result()->GetTestPartResult(i).failed()) ++failures;
  }
  return failures;
}

/// Runs body(rank) in `ranks` forked processes and collects what they return. A body that throws, or in which a gtest assertion fails, ends
/// with exit code 1. Processes that are not done by the deadline (kPatience times as long) are killed. Call it while this process has no threads but its own.
inline std::vector<RankResult> run_ranks(int ranks, const std::function<std::string(int)>& body,
                                         std::chrono::milliseconds deadline = std::chrono::seconds(60)) {
  struct Child {
    pid_t pid = 0;
    int pipe = -1;
    bool open = true;
  };
  std::vector<Child> children;
  std::vector<RankResult> results(static_cast<std::size_t>(ranks));
  std::fflush(nullptr);
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error("fork failed");
    if (pid == 0) {
      for (const Child& other : children) ::close(other.pipe);
      ::close(ends[0]);
      std::string text;
      bool failed = false;
      const int failures_before = failures_of_this_test();
      try {
        text = body(rank);
      } catch (const std::exception& error) {
        text = error.what();
        failed = true;
      }
      failed = failed || failures_of_this_test() > failures_before;
      for (std::size_t at = 0; at < text.size();) {
        const ssize_t put = ::write(ends[1], text.data() + at, text.size() - at);
        if (put <= 0) break;
        at += static_cast<std::size_t>(put);
      }
      std::fflush(nullptr);
      ::_exit(failed ? 1 : 0);
    }
    ::close(ends[1]);
    children.push_back({pid, ends[0], true});
  }

  const auto end = std::chrono::steady_clock::now() + kPatience * deadline;
  bool killed = false;
  for (;;) {
    std::vector<pollfd> waits;
    std::vector<std::size_t> numbers;
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (!children[i].open) continue;
      waits.push_back({children[i].pipe, POLLIN, 0});
      numbers.push_back(i);
    }
    if (waits.empty()) break;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    if (left <= 0 && !killed) {
      killed = true;
      for (const std::size_t i : numbers) {
        results[i].late = true;
        ::kill(children[i].pid, SIGKILL);
      }
    }
    if (::poll(waits.data(), waits.size(), killed ? 1000 : static_cast<int>(left)) < 0) continue;
    for (std::size_t w = 0; w < waits.size(); ++w) {
      if (waits[w].revents == 0) continue;
      char block[4096];
      const ssize_t got = ::read(waits[w].fd, block, sizeof block);
      if (got > 0) {
        results[numbers[w]].output.append(block, static_cast<std::size_t>(got));
      } else if (got == 0) {
        children[numbers[w]].open = false;
      }
    }
  }
  for (std::size_t i = 0; i < children.size(); ++i) {
    ::close(children[i].pipe);
    int status = 0;
    while (::waitpid(children[i].pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status)) results[i].exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) results[i].signal = WTERMSIG(status);
  }
  return results;
}

/// The same with a communicator of all ranks, over a store in a temporary folder.
inline std::vector<RankResult> run_communicators(int ranks, const std::function<std::string(Communicator&)>& body,
                                                 CommunicatorOptions options = {}, std::chrono::milliseconds deadline = std::chrono::seconds(60)) {
  const TemporaryFolder folder;
  return run_ranks(
      ranks,
      [&](int rank) {
        const auto communicator = make_communicator(std::make_shared<FileStore>(folder.path() / "store"), rank, ranks, options);
        return body(*communicator);
      },
      deadline);
}

/// Expects that all ranks ended well; shows what they said.
inline void expect_all_ok(const std::vector<RankResult>& results) {
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_TRUE(results[rank].ok()) << "rank " << rank << ": exit " << results[rank].exit_code << ", signal " << results[rank].signal
                                    << (results[rank].late ? ", past the deadline" : "") << ": " << results[rank].output;
  }
}

/// On which pretended host each rank of the next run_threads() is, where it has as many ranks; empty: all on one.
inline std::vector<int>& pretended_hosts() {
  static std::vector<int> hosts;
  return hosts;
}

/// Runs body(communicator) on one thread a rank; returns what each threw (empty text: nothing).
inline std::vector<std::string> run_threads(int ranks, const std::function<void(Communicator&)>& body, CommunicatorOptions options = {}) {
  const std::vector<int>& hosts = pretended_hosts();
  auto communicators = hosts.size() == static_cast<std::size_t>(ranks) ? make_thread_communicators(hosts, options)
                                                                      : make_thread_communicators(ranks, options);
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < communicators.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(*communicators[rank]);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
        if (errors[rank].empty()) errors[rank] = "an error without a text";
      }
      communicators[rank].reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void expect_no_errors(const std::vector<std::string>& errors) {
  for (std::size_t rank = 0; rank < errors.size(); ++rank) EXPECT_EQ(errors[rank], "") << "rank " << rank;
}

}  // namespace wirewise::testing
