#include "wirewise/cli/host_launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <sstream>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/launcher.h"
#include "wirewise/cli/rank_exit.h"
#include "wirewise/cli/report.h"
#include "wirewise/cli/round.h"
#include "wirewise/comm/listener.h"

extern char** environ;

namespace wirewise {
namespace {

/// The launchers' own grace comes first; what is left is for the way there.
constexpr Seconds kMoreGrace = 10;

bool goes_along(const std::string& name, const std::vector<std::string>& passed) {
  for (const char* own : {"WIREWISE_HOST_ID", "WIREWISE_STORE", "WIREWISE_RESTART", "WIREWISE_RSH"}) {
    if (name == own) return false;
  }
  for (const char* prefix : {"WIREWISE_", "UCX_", "NCCL_", "GLOO_"}) {
    if (name.starts_with(prefix)) return true;
  }
  return name == "OMP_NUM_THREADS" || std::find(passed.begin(), passed.end(), name) != passed.end();
}

std::map<std::string, std::string> variables_along(const std::vector<std::string>& passed) {
  std::map<std::string, std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string entry = *at;
    const auto equals = entry.find('=');
    if (equals != std::string::npos && goes_along(entry.substr(0, equals), passed)) variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  for (const std::string& name : passed) {
    if (variables.count(name) == 0) throw bad_input(fmt::format("-x {}: that variable is not set here.", printable(name)), "Set it, or leave -x out.");
  }
  return variables;
}

/// The words before the host: ssh, which must not stop to ask for a password that nobody sees it ask for.
std::vector<std::string> remote_shell() {
  const char* given = std::getenv("WIREWISE_RSH");
  if (given == nullptr || *given == '\0') return {"ssh", "-o", "BatchMode=yes"};
  std::istringstream text(given);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  if (words.empty()) throw bad_input("WIREWISE_RSH holds no command.", "Unset it, or set it to the command that takes ssh's place.");
  return words;
}

std::string line_for(const LaunchOptions& options, int node, int restarts, const std::map<std::string, std::string>& variables) {
  std::string line = "cd " + shell_quoted(std::filesystem::current_path().string()) + " && exec env";
  const auto add = [&](const std::string& word) { line += " " + shell_quoted(word); };
  for (const auto& [name, value] : variables) add(name + "=" + value);
  add(own_program());
  for (const std::string& word :
       {std::string("launch"), std::string("--take-orders"), fmt::format("--nnodes={}", options.nodes), fmt::format("--node-rank={}", node),
        fmt::format("--nproc-per-node={}", options.local_ranks), "--master-addr=" + options.master_addr,
        fmt::format("--master-port={}", options.master_port), fmt::format("--restarts={}", restarts)}) {
    add(word);
  }
  if (options.bind) add("--bind");
  line += " --";
  for (const std::string& word : options.command) add(word);
  return line;
}

/// ssh's name of a host without the user.
std::string address_of(const std::string& host) { return host.substr(host.rfind('@') == std::string::npos ? 0 : host.rfind('@') + 1); }

/// Below the ports that systems hand out by themselves.
int random_port() {
  std::random_device device;
  return std::uniform_int_distribution<int>(12000, 31999)(device);
}

void report_host(const RankExit& cause, const std::string& host, std::size_t others) {
  std::string text = cause.signalled ? fmt::format("the launcher of host {} was killed by signal {}.", printable(host), cause.value)
                                     : fmt::format("host {} ended with exit code {}.", printable(host), cause.value);
  constexpr int kSshFailed = 255;
  if (!cause.signalled && cause.value == kSshFailed) text += " That is ssh's own where it can't connect: try ssh " + printable(host) + " true.";
  constexpr int kNotFound = 127;
  if (!cause.signalled && cause.value == kNotFound) text += " The program must be there at the same path.";
  if (others > 0) text += fmt::format(" {} other host{} ended with it.", others, others == 1 ? "" : "s");
  print_error(text);
}

}  // namespace

std::string shell_quoted(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

int launch_on_hosts(LaunchOptions options, const std::vector<std::string>& hosts, const std::vector<std::string>& passed) {
  options.nodes = static_cast<int>(hosts.size());
  options.node = 0;
  options.ranks = options.local_ranks * options.nodes;
  if (options.master_addr.empty()) options.master_addr = address_of(hosts.front());
  const bool chosen = options.master_port != 0;
  if (!chosen) options.master_port = random_port();
  LaunchOptions here = options;
  here.bind = false;  // the cores of the hosts are theirs to count
  check(here);
  const std::vector<std::string> shell = remote_shell();
  const auto variables = variables_along(passed);
  const SignalSource signals;
  for (int restarts = 0;; ++restarts) {
    std::vector<RankStart> starts;
    for (int node = 0; node < options.nodes; ++node) {
      RankStart start;
      start.launcher = true;
      start.rank = node;
      start.command = shell;
      start.command.push_back(hosts[static_cast<std::size_t>(node)]);
      start.command.push_back(line_for(options, node, restarts, variables));
      starts.push_back(std::move(start));
    }
    Round round(starts, signals, options.grace + kMoreGrace, -1);
    round.run();
    const RankExit* cause = first_cause(round.exits());
    if (cause == nullptr) return 0;
    if (classify(*cause) == ExitClass::kStopped) return exit_code(*cause);
    report_host(*cause, hosts[static_cast<std::size_t>(cause->rank)], round.exits().size() - 1);
    if (round.stop_requested() || !worth_restart(*cause) || restarts == options.max_restarts) return exit_code(*cause);
    std::fprintf(stderr, "starting the ranks of all hosts again (restart %d of %d)\n", restarts + 1, options.max_restarts);
    if (!chosen) options.master_port = random_port();
  }
}

}  // namespace wirewise
