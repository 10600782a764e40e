// `wirewise launch`: runs any program as ranks.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/cli/commands.h"
#include "wirewise/cli/launcher.h"

namespace wirewise {
namespace {

struct Arguments {
  LaunchOptions options;
  int ranks = 0;        // 0: not given
  int local_ranks = 0;  // 0: not given
};

/// Fills in whichever of ranks, hosts and ranks a host was not given; launch() refuses those that don't agree.
LaunchOptions resolved(const Arguments& arguments) {
  LaunchOptions options = arguments.options;
  if (arguments.ranks == 0 && arguments.local_ranks == 0)
    throw bad_input("the number of ranks is missing.", "Give --ranks N, or --nproc-per-node N.");
  if (arguments.ranks < 0 || arguments.local_ranks < 0 || options.nodes < 1)
    throw bad_input("ranks and hosts must be 1 or more.", "Give --ranks N.");
  options.local_ranks = arguments.local_ranks != 0 ? arguments.local_ranks : std::max(1, arguments.ranks / options.nodes);
  options.ranks = arguments.ranks != 0 ? arguments.ranks : arguments.local_ranks * options.nodes;
  return options;
}

}  // namespace

void register_launch(CLI::App& app, int& exit, const std::vector<std::string>& program) {
  auto arguments = std::make_shared<Arguments>();
  LaunchOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand("launch", "Run any program as ranks, one process each, with torchrun's variables");
  command->footer(
      "Usage: wirewise launch --ranks 2 -- python3 train.py --lr 1e-3\n"
      "Input of the ranks is empty. Rank 0 prints as it is; lines of others go to standard error behind [rank k].");
  command->add_option("--ranks", arguments->ranks, "Ranks on all hosts");
  command->add_option("--nproc-per-node,--nproc_per_node", arguments->local_ranks, "Ranks on each host");
  command->add_option("--nnodes", options.nodes, "Hosts; run this command on each");
  command->add_option("--node-rank,--node_rank", options.node, "This host's number, from 0");
  command->add_option("--master-addr,--master_addr", options.master_addr, "Name or number by which all hosts reach host 0");
  command->add_option("--master-port,--master_port", options.master_port, "Port of host 0 (0: a free one, on one host)");
  command
      ->add_option("--max-restarts,--max_restarts", options.max_restarts,
                   "Times to start all ranks again after a crash or exit code 75")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--bind", options.bind, "Keep each rank on its own share of the cores");
  command->callback([arguments, &program, &exit] {
    LaunchOptions resolved_options = resolved(*arguments);
    resolved_options.command = program;
    exit = launch(resolved_options);
  });
}

}  // namespace wirewise
