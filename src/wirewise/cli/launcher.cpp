#include "wirewise/cli/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <set>

#include "wirewise/base/cgroup.h"
#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/rank_exit.h"
#include "wirewise/cli/rank_process.h"
#include "wirewise/cli/report.h"
#include "wirewise/comm/listener.h"

namespace wirewise {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// After an exit 75 the true cause may still be dying, writing its core: it gets this long before the others are ended.
constexpr std::chrono::seconds kSettle{1};
/// Ranks that leave by themselves after saving do so together; one that doesn't follow is ended.
constexpr std::chrono::seconds kFollow{30};

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? printable(name.data()) : "this host";
}

std::string random_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

/// The folder in which the ranks of one host meet; gone with this object.
class PrivateFolder {
 public:
  PrivateFolder() : path_((fs::temp_directory_path() / "wirewise-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) {  // mode 0700
      throw Error(ErrorKind::kFailed,
                  fmt::format("no folder {} for the ranks to meet in ({}).", printable(path_), std::strerror(errno)),
                  "Set TMPDIR to a folder that can be written.");
    }
  }
  ~PrivateFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

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
    if (fd_ < 0) throw Error(ErrorKind::kFailed, fmt::format("signals can't be watched ({}).", std::strerror(errno)));
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

std::vector<int> allowed_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

/// The cores of a local rank when each gets an equal share; those left over go to nobody.
std::vector<int> share_of(const std::vector<int>& cpus, int local_rank, int local_ranks) {
  const auto share = static_cast<std::ptrdiff_t>(cpus.size()) / local_ranks;
  const auto begin = cpus.begin() + share * local_rank;
  return {begin, begin + share};
}

/// Where the ranks meet by TCP, if their program wants to: checked before any is started.
Endpoint meeting_point(const LaunchOptions& options) {
  Endpoint endpoint{options.master_addr.empty() ? "127.0.0.1" : options.master_addr,
                    static_cast<std::uint16_t>(options.master_port)};
  const auto addresses = resolve(endpoint.host, "--master-addr");
  if (options.node == 0) endpoint.port = Listener(addresses.front(), endpoint.port, "--master-port").port();
  return endpoint;
}

void check(const LaunchOptions& options) {
  if (options.command.empty())
    throw bad_input("there is no command to launch.", "Put it after --: wirewise launch --ranks 2 -- python3 train.py.");
  if (options.ranks < 1 || options.nodes < 1 || options.local_ranks < 1)
    throw bad_input("ranks and hosts must be 1 or more.", "Give --ranks N.");
  if (options.local_ranks * static_cast<long long>(options.nodes) != options.ranks) {
    throw bad_input(fmt::format("{} ranks are not {} hosts x {} ranks each.", options.ranks, options.nodes, options.local_ranks),
                    "Give two of --ranks, --nnodes and --nproc-per-node, or three that agree.");
  }
  if (options.node < 0 || options.node >= options.nodes) {
    throw bad_input(fmt::format("--node-rank {} is not from 0 to {}.", options.node, options.nodes - 1),
                    "Number the hosts from 0.");
  }
  if (options.master_port < 0 || options.master_port > 65535) {
    throw bad_input(fmt::format("--master-port {} is no port: they go from 1 to 65535.", options.master_port),
                    "Choose one, or 0 to have a free one chosen.");
  }
  if (options.nodes > 1 && (options.master_addr.empty() || options.master_port == 0)) {
    throw bad_input("ranks on several hosts need to know where rank 0's host listens.",
                    "Give --master-addr and --master-port, the same on every host.");
  }
  const auto cores = allowed_cpus().size();
  if (options.bind && cores < static_cast<std::size_t>(options.local_ranks)) {
    throw bad_input(
        fmt::format("--bind needs a core for each of {} ranks, but this process may use {}.", options.local_ranks, cores),
        "Start fewer, or leave --bind out.");
  }
}

/// One start of all local ranks, to the end of the last.
class Round {
 public:
  Round(const LaunchOptions& options, const SignalSource& signals, const VariableChanges& shared)
      : options_(options), signals_(signals) {
    const auto cpus = allowed_cpus();
    for (int local = 0; local < options.local_ranks; ++local) {
      RankStart start;
      start.rank = options.node * options.local_ranks + local;
      start.command = options.command;
      start.variables = shared;
      for (const char* name : {"RANK", "ROLE_RANK"}) start.variables[name] = std::to_string(start.rank);
      start.variables["LOCAL_RANK"] = std::to_string(local);
      if (options.bind) start.cpus = share_of(cpus, local, options.local_ranks);
      ranks_.push_back(std::make_unique<RankProcess>(start));
    }
  }

  void run() {
    while (exits_.size() < ranks_.size()) {
      wait();
      while (const auto number = signals_.next()) answer(*number);
      reap();
      keep_deadlines();
    }
  }

  [[nodiscard]] const std::vector<RankExit>& exits() const noexcept { return exits_; }
  [[nodiscard]] bool stop_requested() const noexcept { return !forwarded_.empty(); }

 private:
  void wait() {
    std::vector<pollfd> polled{{signals_.fd(), POLLIN, 0}};
    std::vector<RankStream*> streams;
    for (const auto& rank : ranks_) {
      for (RankStream& stream : rank->streams()) {
        if (stream.fd() < 0) continue;
        polled.push_back({stream.fd(), POLLIN, 0});
        streams.push_back(&stream);
      }
    }
    int timeout = -1;
    if (deadline_)
      timeout = static_cast<int>(
          std::max<long long>(0, std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now()).count()));
    if (poll(polled.data(), polled.size(), timeout) < 0 && errno != EINTR) {
      throw Error(ErrorKind::kFailed, fmt::format("the ranks can't be watched ({}).", std::strerror(errno)));
    }
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (polled[i + 1].revents != 0) streams[i]->forward();
    }
  }

  void answer(int number) {
    if (number == SIGCHLD) return;
    const int passed = number == SIGHUP ? SIGTERM : number;
    if (forwarded_.insert(passed).second) {
      signal_all(passed);
    } else if (number == SIGINT) {  // a person who asks twice means now
      signal_all(SIGKILL);
    }
  }

  void signal_all(int number) const {
    for (const auto& rank : ranks_) rank->signal(number);
  }

  void reap() {
    for (const auto& rank : ranks_) {
      RankExit exit;
      if (!rank->reap(exit.signalled, exit.value)) continue;
      exit.rank = rank->rank();
      exit.pid = rank->pid();
      exit.told_to_end = phase_ >= Phase::kTerminated;
      exit.stop_forwarded = stop_requested();
      exit.last_lines = rank->last_lines();
      exits_.push_back(exit);
    }
  }

  /// Once one rank has failed, the others have until a deadline; then comes the next harsher signal.
  void keep_deadlines() {
    if (exits_.size() == ranks_.size()) return;
    const RankExit* cause = first_cause(exits_);
    if (cause == nullptr) return;
    const ExitClass kind = classify(*cause);
    if (phase_ == Phase::kRunning || phase_ == Phase::kWaiting) {
      std::optional<Clock::duration> patience;
      if (kind == ExitClass::kFailed) patience = Clock::duration::zero();
      if (kind == ExitClass::kRetry) patience = kSettle;
      if (kind == ExitClass::kStopped && !stop_requested()) patience = kFollow;
      if (!patience) return;
      const auto until = Clock::now() + *patience;
      if (!deadline_ || until < *deadline_) deadline_ = until;
      phase_ = Phase::kWaiting;
    }
    if (!deadline_ || Clock::now() < *deadline_) return;
    if (phase_ == Phase::kWaiting) {
      phase_ = Phase::kTerminated;
      signal_all(SIGTERM);
      deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.grace));
    } else {
      signal_all(SIGKILL);
      deadline_.reset();
    }
  }

  enum class Phase { kRunning, kWaiting, kTerminated };

  const LaunchOptions& options_;
  const SignalSource& signals_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  std::vector<RankExit> exits_;  // in order of time
  std::set<int> forwarded_;
  Phase phase_ = Phase::kRunning;
  std::optional<Clock::time_point> deadline_;
};

void report_cause(const RankExit& cause, std::size_t ended) {
  std::string text = describe(cause, host_name());
  if (ended > 0) text += fmt::format(" {} other rank{} ended with it.", ended, ended == 1 ? "" : "s");
  if (!cause.last_lines.empty()) text += " Its last lines on standard error:";
  for (const std::string& line : cause.last_lines) text += "\n  | " + line;
  print_error(text);
}

}  // namespace

int launch(const LaunchOptions& options) {
  check(options);
  const SignalSource signals;
  const std::string run_id = options.nodes == 1 ? random_id() : fmt::format("{}-{}", options.master_addr, options.master_port);
  for (int restarts = 0;; ++restarts) {
    const Endpoint master = meeting_point(options);
    std::optional<PrivateFolder> folder;
    if (options.nodes == 1) folder.emplace();
    const auto cores = static_cast<int>(options.bind ? allowed_cpus().size() : static_cast<std::size_t>(usable_cores()));
    VariableChanges variables{
        {"WORLD_SIZE", std::to_string(options.ranks)},
        {"ROLE_WORLD_SIZE", std::to_string(options.ranks)},
        {"ROLE_NAME", "default"},
        {"LOCAL_WORLD_SIZE", std::to_string(options.local_ranks)},
        {"GROUP_RANK", std::to_string(options.node)},
        {"GROUP_WORLD_SIZE", std::to_string(options.nodes)},
        {"MASTER_ADDR", master.host},
        {"MASTER_PORT", std::to_string(master.port)},
        {"TORCHELASTIC_RESTART_COUNT", std::to_string(restarts)},
        {"TORCHELASTIC_MAX_RESTARTS", std::to_string(options.max_restarts)},
        {"TORCHELASTIC_RUN_ID", run_id},
        {"TORCHELASTIC_USE_AGENT_STORE", ""},  // an outer torchrun's: no agent listens for these ranks
        {"WIREWISE_STORE", folder ? folder->path() : ""},
        {"WIREWISE_RESTART", restarts > 0 ? "1" : ""},
    };
    if (const char* set = std::getenv("OMP_NUM_THREADS"); set == nullptr || *set == '\0') {
      variables["OMP_NUM_THREADS"] = std::to_string(std::max(1, cores / options.local_ranks));
    }
    Round round(options, signals, variables);
    round.run();
    const RankExit* cause = first_cause(round.exits());
    if (cause == nullptr) return 0;
    const ExitClass kind = classify(*cause);
    if (kind == ExitClass::kStopped) return exit_code(*cause);
    report_cause(*cause, round.exits().size() - 1);
    if (round.stop_requested() || !worth_restart(*cause) || restarts == options.max_restarts) return exit_code(*cause);
    std::fprintf(stderr, "starting all ranks again (restart %d of %d)\n", restarts + 1, options.max_restarts);
  }
}

}  // namespace wirewise
