// Runs the built wirewise as a child process: arguments in, output and exit out, always within a deadline.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace wirewise::testing_support {

inline constexpr std::chrono::seconds kDeadline{30};

/// True once `state` holds, looked at again and again; false at the deadline.
inline bool eventually(const std::function<bool()>& state, std::chrono::milliseconds deadline = kDeadline) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  while (!state()) {
    if (std::chrono::steady_clock::now() > end) return false;
    usleep(2000);
  }
  return true;
}

class Program {
 public:
  /// Starts wirewise with arguments; `variables` are set over those of the test, empty ones removed.
  explicit Program(std::vector<std::string> arguments, const std::map<std::string, std::string>& variables = {}) {
    arguments.insert(arguments.begin(), WIREWISE_BUILD_DIR "/wirewise");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    int out[2];
    int err[2];
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out[1], 1);
      dup2(err[1], 2);
      for (const auto& [name, value] : variables) value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(out[1]);
    close(err[1]);
    out_ = out[0];
    err_ = err[0];
  }
  ~Program() {
    if (running_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    if (out_ >= 0) close(out_);
    if (err_ >= 0) close(err_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] const std::string& out() const { return out_text_; }
  [[nodiscard]] const std::string& err() const { return err_text_; }
  void signal(int number) const { kill(pid_, number); }

  /// Reads until both streams end, or `until` holds; throws at the deadline.
  void read(const std::function<bool()>& until = [] { return false; }) {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while ((out_ >= 0 || err_ >= 0) && !until()) {
      pollfd polled[2] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
      if (poll(polled, 2, 100) < 0 && errno != EINTR) throw std::runtime_error("poll");
      if (std::chrono::steady_clock::now() > end)
        throw std::runtime_error("no end within the deadline; so far:\n" + out_text_ + err_text_);
      if (polled[0].revents != 0) take(out_, out_text_);
      if (polled[1].revents != 0) take(err_, err_text_);
    }
  }
  void read_until(const std::string& text) {
    read([&] { return out_text_.find(text) != std::string::npos || err_text_.find(text) != std::string::npos; });
  }
  /// Whether it has ended; wait() still tells how.
  [[nodiscard]] bool ended() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
  }
  /// Reads to the end and returns the exit code, or 1000 + n for signal n.
  int wait() {
    read();
    int status = 0;
    waitpid(pid_, &status, 0);
    running_ = false;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

 private:
  static void take(int& fd, std::string& text) {
    char buffer[4096];
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count > 0) {
      text.append(buffer, static_cast<std::size_t>(count));
    } else if (count == 0) {
      close(fd);
      fd = -1;
    }
  }

  pid_t pid_ = -1;
  bool running_ = true;
  int out_ = -1;
  int err_ = -1;
  std::string out_text_;
  std::string err_text_;
};

}  // namespace wirewise::testing_support
