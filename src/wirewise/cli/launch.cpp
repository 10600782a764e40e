// `wirewise launch`: runs any program as ranks.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/commands.h"
#include "wirewise/cli/host_launcher.h"
#include "wirewise/cli/hostfile.h"
#include "wirewise/cli/launcher.h"

namespace wirewise {
namespace {

struct Arguments {
  LaunchOptions options;
  int ranks = 0;        // 0: not given
  int local_ranks = 0;  // 0: not given
  std::string hosts;    // the file
  std::string master;   // HOST or HOST:PORT
  std::vector<std::string> passed;
  bool take_orders = false;
};

constexpr int kMasterPort = 29500;  // torchrun's, where a host without a port is given

/// --master over --master-addr and --master-port.
void read_master(const std::string& master, LaunchOptions& options) {
  if (!options.master_addr.empty() || options.master_port != 0) {
    throw bad_input("--master says the same as --master-addr and --master-port.", "Give either.");
  }
  // The colons of an IPv6 address stand in brackets, or without a port.
  const auto colon = master.rfind(':');
  const auto bracket = master.rfind(']');
  const bool has_port = colon != std::string::npos && (bracket == std::string::npos ? master.find(':') == colon : colon > bracket);
  options.master_addr = master.substr(0, has_port ? colon : master.size());
  if (options.master_addr.size() > 2 && options.master_addr.front() == '[' && options.master_addr.back() == ']') {
    options.master_addr = options.master_addr.substr(1, options.master_addr.size() - 2);
  }
  const auto port = has_port ? parse_integer(master.substr(colon + 1)) : kMasterPort;
  if (options.master_addr.empty() || !port || *port < 1 || *port > 65535) {
    throw bad_input("--master " + printable(master) + " is not HOST or HOST:PORT.", "Give the first host's name or address, and a port from 1 to 65535.");
  }
  options.master_port = static_cast<int>(*port);
}

/// Fills in whichever of ranks, hosts and ranks a host was not given; launch() refuses those that don't agree.
LaunchOptions resolved(const Arguments& arguments) {
  LaunchOptions options = arguments.options;
  if (!arguments.master.empty()) read_master(arguments.master, options);
  if (arguments.take_orders) options.orders = 0;
  if (arguments.ranks == 0 && arguments.local_ranks == 0)
    throw bad_input("the number of ranks is missing.", "Give --ranks N, or --nproc-per-node N.");
  if (arguments.ranks < 0 || arguments.local_ranks < 0 || options.nodes < 1)
    throw bad_input("ranks and hosts must be 1 or more.", "Give --ranks N.");
  options.local_ranks = arguments.local_ranks != 0 ? arguments.local_ranks : std::max(1, arguments.ranks / options.nodes);
  options.ranks = arguments.ranks != 0 ? arguments.ranks : arguments.local_ranks * options.nodes;
  return options;
}

int run(const Arguments& arguments, const std::vector<std::string>& program) {
  if (arguments.hosts.empty()) {
    if (!arguments.passed.empty()) throw bad_input("-x passes variables to the hosts of --hosts; ranks on this one have them all.", "Leave -x out.");
    LaunchOptions options = resolved(arguments);
    options.command = program;
    return launch(options);
  }
  LaunchOptions options = arguments.options;
  if (options.nodes != 1 || options.node != 0) {
    throw bad_input("--nnodes and --node-rank are for a launcher that you start on each host; --hosts starts them.", "Give either.");
  }
  if (!arguments.master.empty()) read_master(arguments.master, options);
  const HostShare share = share_hosts(read_hosts(arguments.hosts), arguments.ranks, arguments.local_ranks, arguments.hosts);
  options.local_ranks = share.ranks_each;
  options.command = program;
  return launch_on_hosts(options, share.names, arguments.passed);
}

}  // namespace

void register_launch(CLI::App& app, int& exit, const std::vector<std::string>& program) {
  auto arguments = std::make_shared<Arguments>();
  LaunchOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand("launch", "Run any program as ranks, one process each, with torchrun's variables");
  command->footer(
      "Usage: wirewise launch --ranks 2 -- python3 train.py --lr 1e-3\n"
      "       wirewise launch --hosts FILE -- python3 train.py          from one place, through ssh\n"
      "       wirewise launch --nnodes 2 --node-rank K --nproc-per-node 2 --master HOST -- python3 train.py   on each host\n"
      "Input of the ranks is empty. Rank 0 prints as it is; lines of others go to standard error behind [rank k].");
  command->add_option("--ranks", arguments->ranks, "Ranks on all hosts");
  command->add_option("--nproc-per-node,--nproc_per_node", arguments->local_ranks, "Ranks on each host");
  command->add_option("--hosts,--hostfile", arguments->hosts, "File with a line a host: node1 slots=2; starts them through ssh, or WIREWISE_RSH");
  command->add_option("-x", arguments->passed, "Variable to pass to the hosts of --hosts, repeatable")->take_all();
  command->add_option("--nnodes", options.nodes, "Hosts; run this command on each");
  command->add_option("--master", arguments->master, "HOST or HOST:PORT of host 0, the same on every host");
  command->add_option("--node-rank,--node_rank", options.node, "This host's number, from 0");
  command->add_option("--master-addr,--master_addr", options.master_addr, "Name or number by which all hosts reach host 0");
  command->add_option("--master-port,--master_port", options.master_port, "Port of host 0 (0: a free one, on one host)");
  command
      ->add_option("--max-restarts,--max_restarts", options.max_restarts,
                   "Times to start all ranks again after a crash or exit code 75")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--take-orders", arguments->take_orders)->group("");  // hidden: started by another launcher
  command->add_option("--restarts", options.restarts)->group("")->check(CLI::NonNegativeNumber);
  command->add_flag("--bind", options.bind, "Keep each rank on its own cores of one NUMA node, and its memory there: its GPU's node where each rank has one");
  command->callback([arguments, &program, &exit] { exit = run(*arguments, program); });
}

}  // namespace wirewise
