// The signals that a launcher answers, as a descriptor that it can wait for beside its ranks' output.
#pragma once

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <string>

#include "wirewise/base/error.h"

namespace wirewise {

/// The signals that a launcher answers, read from a descriptor while it lives.
class SignalSource {
 public:
  SignalSource() {
    sigemptyset(&set_);
    for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGUSR1, SIGHUP}) sigaddset(&set_, number);
    ::signal(SIGCHLD, SIG_DFL);  // ignored, as some parents leave it, children would vanish unseen
    old_pipe_ = ::signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &set_, &old_);
    fd_ = signalfd(-1, &set_, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd_ < 0) throw Error(ErrorKind::kFailed, std::string("signals can't be watched (") + std::strerror(errno) + ").");
  }
  ~SignalSource() {
    close(fd_);
    ::signal(SIGPIPE, old_pipe_);
    sigprocmask(SIG_SETMASK, &old_, nullptr);
  }
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;
  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] std::optional<int> next() const {
    signalfd_siginfo info{};
    if (read(fd_, &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  sigset_t set_{};
  sigset_t old_{};
  void (*old_pipe_)(int) = SIG_DFL;
  int fd_ = -1;
};

}  // namespace wirewise
