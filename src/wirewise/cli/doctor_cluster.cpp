// `wirewise doctor cluster`: which node is slow. Runs as the ranks of a job (srun, torchrun, mpirun, wirewise launch), or starts ranks on
// this host.
#include <CLI/CLI.hpp>
#include <chrono>
#include <fmt/format.h>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/base/log.h"
#include "wirewise/base/rank_env.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/bench_store.h"
#include "wirewise/cli/cluster_findings.h"
#include "wirewise/cli/cluster_probe.h"
#include "wirewise/cli/doctor.h"
#include "wirewise/cli/launcher.h"
#include "wirewise/comm/cuda_library.h"

namespace wirewise {
namespace {

constexpr int kConfirmations = 1;
constexpr std::chrono::milliseconds kPatience{std::chrono::minutes(1)};  // with a pair of devices whose transfer hangs

struct Arguments {
  int ranks = 0;
  int rounds = 0;
  double threshold = 0.25;
  std::string device = "cpu";
  bool json = false;
};

void print_measured(const ClusterProbe& probe, bool json) {
  if (json) {
    using Json = nlohmann::ordered_json;
    Json line{{"ranks", Json::array()}, {"links", Json::array()}};
    for (const RankProbe& rank : probe.ranks) {
      line["ranks"].push_back({{"rank", rank.rank}, {"host", rank.host}, {"host_name", rank.host_name}, {"pid", rank.pid}, {"gflops", rank.flops / 1e9},
                               {"copy_GBps", rank.copy / 1e9}, {"cpu_quota", rank.quota > 0 ? Json(rank.quota) : Json()}, {"throttled", rank.throttled < 0 ? Json() : Json(rank.throttled)}});
    }
    for (const LinkProbe& link : probe.links) {
      line["links"].push_back({{"from", link.from}, {"to", link.to}, {"bandwidth_GBps", link.bandwidth / 1e9}, {"latency_us", link.latency * 1e6}, {"wrong", link.wrong}});
    }
    Json wrong = Json::array();
    for (const PairFault& fault : probe.pairs.faults) wrong.push_back({{"from", fault.from}, {"to", fault.to}, {"wrong", fault.wrong}});
    line["pairs"] = {{"verified", probe.pairs.pairs}, {"possible", probe.pairs.possible}, {"wrong", std::move(wrong)}};
    std::cout << line.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
    return;
  }
  std::cout << "rank  host  GFLOP/s  copy GB/s  name\n";
  for (const RankProbe& rank : probe.ranks) {
    std::cout << fmt::format("{:>4}  {:>4}  {:>7.3g}  {:>9.3g}  {} (pid {})\n", rank.rank, rank.host, rank.flops / 1e9, rank.copy / 1e9, printable(rank.host_name), rank.pid);
  }
  if (!probe.links.empty()) std::cout << "from    to     GB/s  latency us\n";
  for (const LinkProbe& link : probe.links) std::cout << fmt::format("{:>4}  {:>4}  {:>7.3g}  {:>10.3g}\n", link.from, link.to, link.bandwidth / 1e9, link.latency * 1e6);
  std::cout << fmt::format("data verified between {} of {} pairs of ranks\n", probe.pairs.pairs, probe.pairs.possible);
}

int run_rank(const Arguments& arguments, const RankEnvironment& environment) {
  set_log_rank(environment.rank);
  CommunicatorOptions options;
  options.name = "doctor";
  const auto communicator = make_communicator(bench::meet_ranks(environment), environment.rank, environment.ranks, options);
  ProbeOptions probing;
  probing.rounds = arguments.rounds;
  std::shared_ptr<Accelerator> device;
  std::unique_ptr<Communicator> of_device;
  if (arguments.device == "cuda") {
    device = open_cuda_device(environment.local_rank, environment.local_ranks, CudaComm::kNccl);
    device->make_current();
    CommunicatorOptions of_pairs;
    of_pairs.name = "doctor/device";
    of_pairs.timeout = kPatience;
    of_device = join_device(device, CudaComm::kNccl, bench::meet_ranks(environment), environment.rank, environment.ranks, of_pairs);
    probing.pairs_on = {of_device.get(), device.get()};
  }
  ClusterProbe probe = probe_cluster(*communicator, probing);
  ClusterFindings judged = judge_cluster(probe, arguments.threshold);
  // What is slow once may have been disturbed; what is slow, is slow again. All ranks judge alike.
  for (int again = 0; again < kConfirmations && !judged.findings.empty(); ++again) {
    probe = best_of(probe, probe_cluster(*communicator, probing));
    judged = judge_cluster(probe, arguments.threshold);
  }
  if (environment.rank == 0) {
    print_measured(probe, arguments.json);
    std::string nothing = fmt::format("{} ranks on {} host{}: none is slow.", probe.ranks.size(), probe.hosts, probe.hosts == 1 ? "" : "s");
    if (probe.ranks.size() < 3) nothing = "Fewer than 3 ranks: they can't be compared.";
    if (probe.hosts == 2) nothing += " The links of 2 hosts can't be compared.";
    print_findings(judged.findings, arguments.json, nothing);
  }
  communicator->barrier().wait();
  return judged.host_named[static_cast<std::size_t>(probe.ranks[static_cast<std::size_t>(environment.rank)].host)] ? 1 : 0;
}

int run(const Arguments& arguments) {
  if (!(arguments.threshold > 0 && arguments.threshold < 1)) throw bad_input("--threshold must lie between 0 and 1.", "0.25 names what is a quarter below the median.");
  const RankEnvironment environment = read_rank_environment();
  const bool launched = environment.launcher != Launcher::kNone;
  check_ranks_asked(environment, arguments.ranks);
  if (launched && environment.ranks > 1) return run_rank(arguments, environment);
  if (arguments.ranks < 2) {
    throw bad_input("wirewise doctor cluster compares ranks, and here is one.", "Start it on all nodes: srun --ntasks-per-node=1 wirewise doctor cluster; or on this host with --ranks N.");
  }
  LaunchOptions options;
  options.command = {own_program(), "doctor", "cluster", "--threshold=" + fmt::format("{}", arguments.threshold),
                     "--rounds=" + std::to_string(arguments.rounds)};
  if (arguments.device != "cpu") options.command.push_back("--device=" + arguments.device);
  if (arguments.json) options.command.emplace_back("--json");
  options.ranks = options.local_ranks = arguments.ranks;
  return launch(options);
}

}  // namespace

void register_doctor_cluster(CLI::App& doctor, int& exit) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = doctor.add_subcommand("cluster", "Find the slow node: run it as the ranks of a job (srun wirewise doctor cluster)");
  command->add_option("--ranks", arguments->ranks, "Ranks to start on this host, where no launcher did")->check(CLI::Range(1, 1 << 20));
  command->add_option("--rounds", arguments->rounds, "Rounds of pairs of hosts (0: each meets each, at most 64)")->check(CLI::Range(0, 1 << 20));
  command->add_option("--threshold", arguments->threshold, "How far below the median is slow, as a share")->capture_default_str();
  command->add_option("--device", arguments->device, "Where the data lies that pairs of ranks compare: cpu, or cuda (a GPU a rank, over NCCL)")->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  command->add_flag("--json", arguments->json, "Lines of JSON: what was measured, then the findings");
  command->footer("A rank exits with 1 where something is wrong with its own host, else with 0; so does the job as a whole.");
  command->callback([arguments, &exit] { exit = run(*arguments); });
}

}  // namespace wirewise
