#include "wirewise/cli/rank_exit.h"

#include <fmt/format.h>

#include <csignal>
#include <cstring>

namespace wirewise {
namespace {

constexpr int kRetryCode = 75;
constexpr int kSignalBase = 128;

bool is_stop_code(int code) { return code == kSignalBase + SIGINT || code == kSignalBase + SIGTERM; }

bool is_crash(int number) {
  return number == SIGSEGV || number == SIGBUS || number == SIGABRT || number == SIGILL || number == SIGFPE || number == SIGSYS ||
         number == SIGTRAP;
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? "unknown" : std::string("SIG") + name;
}

}  // namespace

ExitClass classify(const RankExit& exit) noexcept {
  if (exit.signalled) {
    if (is_crash(exit.value)) return ExitClass::kFailed;  // not by our hand, however late
    if (exit.told_to_end) return ExitClass::kEnded;
    const bool stop = exit.value == SIGINT || exit.value == SIGTERM || exit.value == SIGUSR1;
    return stop && exit.stop_forwarded ? ExitClass::kStopped : ExitClass::kFailed;
  }
  if (exit.value == 0) return ExitClass::kDone;
  if (exit.told_to_end) return ExitClass::kEnded;
  if (is_stop_code(exit.value)) return ExitClass::kStopped;
  return exit.value == kRetryCode ? ExitClass::kRetry : ExitClass::kFailed;
}

int exit_code(const RankExit& exit) noexcept { return exit.signalled ? kSignalBase + exit.value : exit.value; }

const RankExit* first_cause(std::span<const RankExit> exits) noexcept {
  const RankExit* cause = nullptr;
  for (const RankExit& exit : exits) {
    if (classify(exit) == ExitClass::kDone) continue;
    if (cause == nullptr || classify(exit) > classify(*cause)) cause = &exit;
  }
  return cause;
}

bool worth_restart(const RankExit& exit) noexcept {
  const ExitClass kind = classify(exit);
  if (kind == ExitClass::kRetry) return true;
  if (kind != ExitClass::kFailed) return false;
  const int shell_signal = exit.value - kSignalBase;
  return exit.signalled || is_crash(shell_signal) || shell_signal == SIGKILL;
}

std::string describe(const RankExit& exit, const std::string& host) {
  const std::string who = fmt::format("rank {} (pid {} on {})", exit.rank, exit.pid, host);
  if (!exit.signalled) return fmt::format("{} exited with code {}.", who, exit.value);
  const char* hint = exit.value == SIGKILL  ? ", as the kernel does when memory runs out"
                     : is_crash(exit.value) ? ", a crash"
                                            : "";
  return fmt::format("{} was killed by signal {} ({}){}.", who, exit.value, signal_name(exit.value), hint);
}

}  // namespace wirewise
