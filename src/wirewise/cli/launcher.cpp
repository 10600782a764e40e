#include "wirewise/cli/launcher.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>

#include "wirewise/base/cgroup.h"
#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/rank_binding.h"
#include "wirewise/cli/rank_exit.h"
#include "wirewise/cli/rank_process.h"
#include "wirewise/cli/report.h"
#include "wirewise/cli/round.h"
#include "wirewise/comm/listener.h"

namespace wirewise {
namespace {

namespace fs = std::filesystem;

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

/// Where the ranks meet by TCP, if their program wants to: checked before any is started.
Endpoint meeting_point(const LaunchOptions& options) {
  Endpoint endpoint{options.master_addr.empty() ? "127.0.0.1" : options.master_addr,
                    static_cast<std::uint16_t>(options.master_port)};
  const auto addresses = resolve(endpoint.host, "--master-addr");
  if (options.node == 0) endpoint.port = Listener(addresses.front(), endpoint.port, "--master-port").port();
  return endpoint;
}

/// The local ranks, with what all share.
std::vector<RankStart> rank_starts(const LaunchOptions& options, const VariableChanges& shared) {
  std::vector<RankBinding> bindings;
  if (options.bind) bindings = bind_ranks(host_cpus("/", allowed_cpus(), std::getenv("CUDA_VISIBLE_DEVICES")), options.local_ranks);
  const bool memory = std::any_of(bindings.begin(), bindings.end(), [](const RankBinding& one) { return one.memory_node >= 0; });
  const bool permitted = memory && may_prefer_memory();
  if (memory && !permitted) std::fprintf(stderr, "ranks are bound to CPUs, but their memory isn't: set_mempolicy is denied here\n");
  std::vector<RankStart> starts;
  for (int local = 0; local < options.local_ranks; ++local) {
    RankStart start;
    start.rank = options.node * options.local_ranks + local;
    start.command = options.command;
    start.variables = shared;
    for (const char* name : {"RANK", "ROLE_RANK"}) start.variables[name] = std::to_string(start.rank);
    start.variables["LOCAL_RANK"] = std::to_string(local);
    if (options.bind) {
      start.cpus = bindings[static_cast<std::size_t>(local)].cpus;
      if (permitted) start.memory_node = bindings[static_cast<std::size_t>(local)].memory_node;
    }
    starts.push_back(std::move(start));
  }
  return starts;
}

void report_cause(const RankExit& cause, std::size_t ended) {
  std::string text = describe(cause, host_name());
  if (ended > 0) text += fmt::format(" {} other rank{} ended with it.", ended, ended == 1 ? "" : "s");
  if (!cause.last_lines.empty()) text += " Its last lines on standard error:";
  for (const std::string& line : cause.last_lines) text += "\n  | " + line;
  print_error(text);
}

}  // namespace

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
        fmt::format("--bind keeps each rank on CPUs of its own, but for {} ranks this process may use {}.", options.local_ranks, cores),
        "Start fewer ranks, or leave --bind out: they then share what there is.");
  }
}

int launch(const LaunchOptions& options) {
  check(options);
  const SignalSource signals;
  const std::string run_id = options.nodes == 1 ? random_id() : fmt::format("{}-{}", options.master_addr, options.master_port);
  for (int restarts = options.restarts;; ++restarts) {
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
    Round round(rank_starts(options, variables), signals, options.grace, options.orders);
    round.run();
    const RankExit* cause = first_cause(round.exits());
    if (cause == nullptr) return 0;
    if (round.called_off() == Round::CalledOff::kByLoss) {
      print_error(fmt::format("the launcher that started the ranks on {} is gone; they were ended.", host_name()));
    }
    if (round.called_off() != Round::CalledOff::kNo && classify(*cause) <= ExitClass::kRetry) return exit_code(ErrorKind::kPeerLost);
    const ExitClass kind = classify(*cause);
    if (kind == ExitClass::kStopped) return exit_code(*cause);
    report_cause(*cause, round.exits().size() - 1);
    if (round.stop_requested() || !worth_restart(*cause) || restarts == options.max_restarts) return exit_code(*cause);
    std::fprintf(stderr, "starting all ranks again (restart %d of %d)\n", restarts + 1, options.max_restarts);
  }
}

std::string own_program() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) throw Error(ErrorKind::kFailed, "this program can't be found to be started as ranks: /proc/self/exe: " + error.message() + ".", "Mount /proc.");
  return program.string();
}

}  // namespace wirewise
