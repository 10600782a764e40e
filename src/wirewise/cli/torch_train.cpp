// `wirewise train`: trains a model from a configuration; starts its own ranks where no launcher did.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>

#include "wirewise/base/cgroup.h"
#include "wirewise/base/error.h"
#include "wirewise/base/log.h"
#include "wirewise/base/rank_env.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/commands.h"
#include "wirewise/cli/launcher.h"
#include "wirewise/comm/cuda_library.h"
#include "wirewise/torch/memory.h"
#include "wirewise/torch/rendezvous.h"
#include "wirewise/train/checkpoint.h"
#include "wirewise/train/loop.h"
#include "wirewise/train/metrics.h"
#include "wirewise/train/prepare.h"

namespace wirewise {
namespace {

struct Arguments {
  std::string config;
  int ranks = 0;   // 0: not given
  int nodes = 1;
  std::string device = "cpu";
  std::string comm;
  std::string strategy;
  std::string data;
  std::string out;
  bool resume = false;
  bool dry_run = false;
  bool json = false;
  bool started_by_train = false;  // a rank of the command that reports for all
  std::string memory_limit;
  std::int64_t sample = 0;
  int max_restarts = 0;
  std::vector<std::string> overrides;
};

/// The same command for a rank of its own.
std::vector<std::string> rank_command(const Arguments& arguments) {
  std::vector<std::string> command{own_program(), "train", "--started-by-train"};
  const auto add = [&](const std::string& flag, const std::string& value) {
    if (!value.empty()) command.push_back(flag + "=" + value);  // one word, since a value may begin with a dash
  };
  add("--config", arguments.config);
  add("--device", arguments.device);
  add("--comm", arguments.comm);
  add("--strategy", arguments.strategy);
  add("--data", arguments.data);
  add("--out", arguments.out);
  add("--memory-limit", arguments.memory_limit);
  add("--sample", arguments.sample > 0 ? std::to_string(arguments.sample) : "");
  if (arguments.resume) command.emplace_back("--resume");
  if (arguments.json) command.emplace_back("--json");
  for (const std::string& set : arguments.overrides) add("--set", set);
  return command;
}

TrainConfig configure(const Arguments& arguments, int ranks, int hosts) {
  std::vector<std::string> overrides;
  if (!arguments.strategy.empty()) overrides.push_back("strategy.name=" + arguments.strategy);
  overrides.insert(overrides.end(), arguments.overrides.begin(), arguments.overrides.end());
  TrainConfig config = load_config(arguments.config, overrides);
  if (!arguments.data.empty()) config.data_path = arguments.data;
  config.out = arguments.out;
  config.resume = arguments.resume;
  config.device = arguments.device;
  config.ranks = ranks;
  config.hosts = hosts;
  config.sample_tokens = arguments.sample;
  if (!arguments.memory_limit.empty()) config.memory_limit = parse_size(arguments.memory_limit);
  if (config.device != "cpu" && config.device != "cuda") throw bad_input("unknown device " + printable(config.device) + ".", "Use cpu or cuda.");
  if (config.device == "cpu" && !arguments.comm.empty()) {
    throw bad_input("--comm " + printable(arguments.comm) + " chooses how CUDA tensors travel, but the device is the CPU.", "Add --device cuda, or leave it out.");
  }
  finish_config(config, ranks);
  return config;
}

/// Throws bad input, with the reason, where this host can't give its ranks a device.
void check_device(const Arguments& arguments, int local_ranks) {
  (void)open_cuda_device(0, local_ranks, choose_cuda_comm(arguments.comm, "--comm"));
}

/// The last JSON line of a run that began and neither finished nor stopped after saving.
void print_failed(const TrainConfig& config) {
  std::string checkpoint;
  if (!config.out.empty()) checkpoint = newest_checkpoint(config.out / "checkpoints").value_or(std::filesystem::path()).string();
  ::signal(SIGPIPE, SIG_IGN);  // the reader may be what failed: its absence must not change the exit code
  std::cout << final_json("failed", "", checkpoint) << std::endl;
}

bool is_failure(int code) { return code != 0 && code != 128 + SIGINT && code != 128 + SIGTERM; }

/// --nnodes is a question about ranks that others would start.
void check_nodes(const Arguments& arguments, bool launched, int ranks) {
  if (arguments.nodes == 1) return;
  if (launched || !arguments.dry_run) {
    throw bad_input("wirewise train starts ranks on this host only; --nnodes goes with --dry-run.",
                    launched ? "Leave it out under a launcher." : "Start them with wirewise launch --hosts FILE -- wirewise train …, or torchrun.");
  }
  if (ranks % arguments.nodes != 0) {
    throw bad_input(std::to_string(ranks) + " ranks are not " + std::to_string(arguments.nodes) + " hosts of equally many.", "Give a multiple of --nnodes.");
  }
}

void check_memory(const TrainConfig& config, const Prepared& prepared) {
  if (!config.memory_limit) return;
  const std::string over = over_limit(prepared, *config.memory_limit);
  if (over.empty()) return;
  throw bad_input(over, "Lower train.micro_batch, set strategy.recompute = \"full\", or shard over more ranks; --dry-run shows what takes the room.");
}

/// Starts the ranks of this host and waits for them.
int launch_ranks(const Arguments& arguments, const TrainConfig& config, int ranks, const ThreadChoice& threads) {
  std::cerr << "starting " << ranks << " ranks, " << threads.threads << " thread" << (threads.threads == 1 ? "" : "s") << " each (" << threads.reason
            << ")\n";
  LaunchOptions options;
  options.command = rank_command(arguments);
  options.ranks = options.local_ranks = ranks;
  options.max_restarts = arguments.max_restarts;
  const int code = launch(options);
  if (arguments.json && is_failure(code)) print_failed(config);
  return code;
}

/// This process as a rank: its device, and the store that it met the others in, who tell where they are.
Rank join(const Arguments& arguments, const TrainConfig& config, const RankEnvironment& environment, Prepared& prepared) {
  Rank rank;
  rank.rank = environment.rank;
  rank.size = environment.ranks;
  if (config.device == "cuda") {
    rank.comm = choose_cuda_comm(arguments.comm, "--comm");
    rank.device = open_cuda_device(environment.local_rank, environment.local_ranks, rank.comm);
  }
  if (environment.ranks > 1) {
    World world = meet(parse_meeting("env://", [variables = as_torchrun_variables(environment)](const std::string& name) { return variables(name); }));
    rank.store = std::move(world.store);
    prepared.host_of = std::move(world.host_of);
  }
  return rank;
}

int train(const Arguments& arguments) {
  const RankEnvironment environment = read_rank_environment();
  const bool launched = environment.launcher != Launcher::kNone;
  check_ranks_asked(environment, arguments.ranks);
  const int ranks = launched ? environment.ranks : std::max(1, arguments.ranks);
  const int nodes = launched ? environment.nodes : arguments.nodes;
  check_nodes(arguments, launched, ranks);
  RankEnvironment placed = environment;
  if (!launched) placed.ranks = placed.local_ranks = ranks;
  const TrainConfig config = configure(arguments, ranks, nodes);
  if (config.device == "cuda") check_device(arguments, placed.local_ranks);
  const ThreadChoice threads = choose_threads(config.threads, placed, usable_cores());
  Prepared prepared = prepare(config, threads.threads);
  prepared.host_of = hosts_in_order(ranks, (ranks + nodes - 1) / nodes);
  if (arguments.dry_run) {
    if (environment.rank == 0) std::cout << (arguments.json ? dry_run_json(prepared) + "\n" : dry_run_text(prepared));
    return 0;
  }
  check_memory(config, prepared);
  const char* restart = std::getenv("WIREWISE_RESTART");
  // By our launcher, by torchrun's agent, or by a scheduler that requeued the job.
  const bool restarted = environment.restarts > 0 || (restart != nullptr && std::string_view(restart) == "1");
  if (environment.rank == 0) check_start(config, restarted);  // what is wrong is said once
  if (!launched && ranks > 1) return launch_ranks(arguments, config, ranks, threads);
  if (ranks > 1) set_log_rank(environment.rank);
  memory::install();
  const Rank rank = join(arguments, config, placed, prepared);
  try {
    return run_training(prepared, rank, {arguments.json, restarted});
  } catch (...) {
    if (arguments.json && rank.rank == 0 && !arguments.started_by_train) print_failed(config);
    throw;
  }
}

}  // namespace

void register_train(CLI::App& app, int& exit) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("train", "Train a model from a configuration");
  command->add_option("--config", arguments->config, "TOML file");
  command->add_option("--ranks,--nproc-per-node", arguments->ranks, "Ranks to start on this host")->check(CLI::Range(1, 1 << 20));
  command->add_option("--nnodes", arguments->nodes, "With --dry-run: hosts that the ranks would be spread over")->check(CLI::Range(1, 1 << 20));
  command->add_option("--device", arguments->device, "cpu or cuda");
  command->add_option("--comm", arguments->comm, "How CUDA tensors travel: nccl (a device a rank) or staged (through host memory)");
  command->add_option("--strategy", arguments->strategy, "ddp, zero1, zero2, zero3 (fsdp, full_shard, shard_grad_op, no_shard)");
  command->add_option("--data", arguments->data, "File, folder or pattern; random");
  command->add_option("--out", arguments->out, "Folder for checkpoints and metrics");
  command->add_flag("--resume", arguments->resume, "Go on from the newest complete checkpoint in --out");
  command->add_flag("--dry-run", arguments->dry_run, "Show units, roles, schedule and memory; start nothing");
  command->add_option("--memory-limit", arguments->memory_limit, "Memory that a rank may use: 512M, 16G");
  command->add_option("--sample", arguments->sample, "Bytes of text to generate at the end")->check(CLI::Range(0, 1 << 30));
  command->add_option("--max-restarts", arguments->max_restarts, "Times to start the ranks again after a crash")->check(CLI::Range(0, 1 << 30));
  command->add_flag("--started-by-train", arguments->started_by_train)->group("");  // hidden
  command->add_flag("--json", arguments->json, "JSON lines on standard output");
  command->add_option("--set", arguments->overrides, "key=value over the file, repeatable")->take_all();
  command->callback([arguments, &exit] { exit = train(*arguments); });
}

}  // namespace wirewise
