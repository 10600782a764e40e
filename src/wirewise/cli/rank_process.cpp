#include "wirewise/cli/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/base/terminal.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/launch_orders.h"
#include "wirewise/cli/rank_binding.h"

extern char** environ;

namespace wirewise {
namespace {

constexpr std::size_t kRemembered = 12;         // lines
constexpr std::size_t kLongestLine = 1U << 16;  // a longer one is cut into several

void write_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(2, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads any more: the ranks go on
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0) {
      throw Error(ErrorKind::kFailed, fmt::format("no pipe for a rank's output ({}).", std::strerror(errno)),
                  "Raise the limit of open files (ulimit -n).");
    }
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  [[nodiscard]] int read_end() const noexcept { return ends_[0]; }
  [[nodiscard]] int write_end() const noexcept { return ends_[1]; }
  void close_end(std::size_t end) noexcept {
    if (ends_[end] >= 0) close(ends_[end]);
    ends_[end] = -1;
  }
  [[nodiscard]] int take_read_end() noexcept { return std::exchange(ends_[0], -1); }
  [[nodiscard]] int take_write_end() noexcept { return std::exchange(ends_[1], -1); }

 private:
  std::array<int, 2> ends_{-1, -1};
};

/// "NAME=value" of this process's variables after the changes.
std::vector<std::string> changed_environment(const VariableChanges& changes) {
  std::vector<std::string> result;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string entry = *at;
    if (changes.count(entry.substr(0, entry.find('='))) == 0) result.push_back(entry);
  }
  for (const auto& [name, value] : changes) {
    if (!value.empty()) result.push_back(name + "=" + value);
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

struct ChildPlan {
  char* const* arguments;
  char* const* variables;
  pid_t parent;
  int input;
  int output;  // -1: as the parent's
  int errors;  // -1: as the parent's
  int report;  // where errno goes when the command can't be run
  const cpu_set_t* cpus;
  int memory_node;  // -1: none is preferred
};

/// From fork to exec, in the child: only calls that are safe there.
[[noreturn]] void become(const ChildPlan& plan) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(1);  // it died before the order was given
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  dup2(plan.input, 0);
  if (plan.output >= 0) dup2(plan.output, 1);
  if (plan.errors >= 0) dup2(plan.errors, 2);
  int failure = 0;
  if (plan.cpus != nullptr && sched_setaffinity(0, sizeof *plan.cpus, plan.cpus) != 0) failure = errno;
  if (failure == 0 && plan.memory_node >= 0) failure = prefer_memory(plan.memory_node);
  if (failure == 0) {
    execvpe(plan.arguments[0], plan.arguments, plan.variables);
    failure = errno;
  }
  [[maybe_unused]] const ssize_t written = write(plan.report, &failure, sizeof failure);
  _exit(127);
}

}  // namespace

RankStream::RankStream(int fd, std::string prefix, bool as_they_come) : fd_(fd), prefix_(std::move(prefix)), as_they_come_(as_they_come) {
  fcntl(fd_, F_SETFL, O_NONBLOCK);
}

RankStream::~RankStream() {
  if (fd_ >= 0) close(fd_);
}

void RankStream::end_line() {
  if (!as_they_come_) write_stderr(prefix_ + line_ + "\n");
  last_.push_back(std::exchange(line_, {}));
  if (last_.size() > kRemembered) last_.pop_front();
}

void RankStream::take(const std::string& bytes) {
  if (as_they_come_) write_stderr(bytes);
  for (const char c : bytes) {
    if (c == '\n' || line_.size() >= kLongestLine) end_line();
    if (c != '\n') line_ += c;
  }
}

void RankStream::forward() {
  std::array<char, 1U << 14> buffer;
  while (fd_ >= 0) {
    const ssize_t count = read(fd_, buffer.data(), buffer.size());
    if (count > 0) {
      take(std::string(buffer.data(), static_cast<std::size_t>(count)));
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    finish();
  }
}

void RankStream::finish() {
  if (!line_.empty()) end_line();
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

std::vector<std::string> RankStream::last_lines() const { return {last_.begin(), last_.end()}; }

RankProcess::RankProcess(const RankStart& start) : rank_(start.rank) {
  std::vector<std::string> command = start.command;
  std::vector<std::string> variables = changed_environment(start.variables);
  const auto arguments = pointers(command);
  const auto environment = pointers(variables);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : start.cpus) CPU_SET(static_cast<std::size_t>(cpu), &cpus);
  // Rank 0 keeps the terminal, so that its progress bar shows; elsewhere its last lines are wanted for the report.
  const bool first = rank_ == 0;
  sees_stderr_ = !first || !inspect_terminal(2).interactive;
  Pipe output;
  Pipe errors;
  Pipe report;
  std::optional<Pipe> orders;
  if (start.launcher) orders.emplace();
  const comm::UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const ChildPlan plan{arguments.data(),
                       environment.data(),
                       getpid(),
                       orders ? orders->read_end() : null.get(),
                       first ? -1 : output.write_end(),
                       sees_stderr_ ? errors.write_end() : -1,
                       report.write_end(),
                       start.cpus.empty() ? nullptr : &cpus,
                       start.memory_node};
  pid_ = fork();
  if (pid_ == 0) become(plan);
  if (orders) orders_ = comm::UniqueFd(orders->take_write_end());
  if (pid_ < 0)
    throw Error(ErrorKind::kFailed, fmt::format("rank {} could not be started ({}).", rank_, std::strerror(errno)),
                "Raise the limit of processes (ulimit -u).");
  running_ = true;
  setpgid(pid_, pid_);  // here too, so that a signal can be sent at once; the later of the two calls does nothing
  for (Pipe* pipe : {&output, &errors, &report}) pipe->close_end(1);
  int failure = 0;
  ssize_t count = 0;
  do count = read(report.read_end(), &failure, sizeof failure);
  while (count < 0 && errno == EINTR);
  if (count == static_cast<ssize_t>(sizeof failure)) {
    waitpid(pid_, nullptr, 0);
    running_ = false;
    const std::string& program = start.command.front();
    const bool script = program.size() > 3 && program.compare(program.size() - 3, 3, ".py") == 0;
    throw bad_input(fmt::format("{} can't be run: {}.", printable(program), std::strerror(failure)),
                    script ? "Put python3 before a script." : "Check its name and path.");
  }
  const std::string prefix = first || start.launcher ? "" : fmt::format("[rank {}] ", rank_);
  if (!first) streams_.emplace_back(output.take_read_end(), prefix, false);
  if (sees_stderr_) streams_.emplace_back(errors.take_read_end(), prefix, first);
}

RankProcess::~RankProcess() {
  if (!running_) return;
  signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void RankProcess::signal(int number) const noexcept {
  if (!running_) return;
  const char order = orders_.valid() ? order_of(number) : '\0';
  if (order == '\0') {
    kill(-pid_, number);
  } else {
    [[maybe_unused]] const ssize_t written = write(orders_.get(), &order, 1);  // one that reads no more is on its way out
  }
}

void RankProcess::end() const noexcept {
  if (!orders_.valid()) return signal(SIGTERM);
  [[maybe_unused]] const ssize_t written = write(orders_.get(), &kEndOrder, 1);
}

bool RankProcess::reap(bool& signalled, int& value) {
  siginfo_t info{};
  if (!running_ || waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return false;
  // As long as the leader is not reaped, nobody else can get its number: only what it left behind is hit.
  signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
  running_ = false;
  signalled = info.si_code != CLD_EXITED;
  value = info.si_status;
  for (RankStream& stream : streams_) stream.forward();
  for (RankStream& stream : streams_) stream.finish();
  return true;
}

std::vector<std::string> RankProcess::last_lines() const {
  return sees_stderr_ ? streams_.back().last_lines() : std::vector<std::string>();
}

}  // namespace wirewise
