// `wirewise bench`: how fast collectives are on this machine, and what share of its memory's speed that is. Starts its own ranks where no
// launcher did.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/base/log.h"
#include "wirewise/base/nearest.h"
#include "wirewise/base/rank_env.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/bench_case.h"
#include "wirewise/cli/bench_fit.h"
#include "wirewise/cli/bench_fit_file.h"
#include "wirewise/cli/bench_memory.h"
#include "wirewise/cli/bench_pattern.h"
#include "wirewise/cli/bench_report.h"
#include "wirewise/cli/bench_sizes.h"
#include "wirewise/cli/bench_store.h"
#include "wirewise/cli/commands.h"
#include "wirewise/cli/launcher.h"
#include "wirewise/cli/report.h"
#include "wirewise/comm/cuda_library.h"

namespace wirewise {
namespace {

using bench::Case;
using bench::Op;
using bench::Result;

struct Arguments {
  int ranks = 0;  // 0: not given
  std::string op = "all_reduce";
  std::string sizes = "8:64M:x8";
  std::string dtype = "float32";
  std::string redop = "sum";
  std::string device = "cpu";
  std::string comm;
  std::string fit;
  int root = 0;
  int iterations = 0;
  int warmup = -1;
  bool private_memory = false;
  bool cold = false;
  bool json = false;
};

/// Read once before any rank starts, so that a mistake is said once.
struct Request {
  std::vector<Op> ops;
  std::vector<Bytes> sizes;
  std::vector<DType> dtypes;
  Reduction redop = Reduction::kSum;
};

Request read_request(const Arguments& arguments, int ranks) {
  Request request;
  if (arguments.device != "cpu" && arguments.device != "cuda") {
    throw bad_input("unknown device " + printable(arguments.device) + ".", "Use cpu or cuda.");
  }
  if (arguments.device == "cuda" && (arguments.private_memory || arguments.cold)) {
    throw bad_input("--private and --cold are of the host's memory.", "Leave them out with --device cuda.");
  }
  if (arguments.device == "cpu" && !arguments.comm.empty()) {
    throw bad_input("--comm " + printable(arguments.comm) + " chooses how a device's memory travels, but the device is the CPU.",
                    "Add --device cuda, or leave it out.");
  }
  request.ops = bench::parse_ops(arguments.op);
  request.sizes = bench::parse_sizes(arguments.sizes);
  request.redop = bench::parse_reduction(arguments.redop);
  for (const std::string& name : split(arguments.dtype, ',')) {
    const auto dtype = parse_dtype(name);
    if (!dtype) {
      const std::vector<std::string> known{"float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool"};
      throw bad_input("--dtype: \"" + printable(name) + "\" is no type.", suggest(name, known));
    }
    request.dtypes.push_back(*dtype);
  }
  if (request.dtypes.empty()) throw bad_input("--dtype is empty.", "Name a type, such as float32.");
  for (const Op op : request.ops) {
    for (const DType dtype : request.dtypes) {
      if (bench::reduces(op) && !bench::is_defined(dtype, request.redop)) {
        throw bad_input("--redop " + arguments.redop + " of " + std::string(name_of(dtype)) + " doesn't exist.",
                        "Averages are for numbers, bitwise reductions for integers and bool.");
      }
    }
  }
  if (arguments.root >= ranks) {
    throw bad_input("--root " + std::to_string(arguments.root) + " is none of the " + std::to_string(ranks) + " ranks.", "Ranks count from 0.");
  }
  return request;
}

/// The same command for a rank of its own.
std::vector<std::string> rank_command(const Arguments& arguments) {
  std::vector<std::string> command{own_program(), "bench"};
  const auto add = [&](const char* flag, const std::string& value) { command.push_back(std::string(flag) + "=" + value); };
  if (!arguments.fit.empty()) {
    add("--fit", arguments.fit);
    add("--sizes", arguments.sizes);
    if (arguments.json) command.emplace_back("--json");
    return command;
  }
  add("--op", arguments.op);
  add("--sizes", arguments.sizes);
  add("--dtype", arguments.dtype);
  add("--redop", arguments.redop);
  add("--device", arguments.device);
  if (!arguments.comm.empty()) add("--comm", arguments.comm);
  add("--root", std::to_string(arguments.root));
  if (arguments.iterations > 0) add("--iters", std::to_string(arguments.iterations));
  if (arguments.warmup >= 0) add("--warmup", std::to_string(arguments.warmup));
  if (arguments.private_memory) command.emplace_back("--private");
  if (arguments.cold) command.emplace_back("--cold");
  if (arguments.json) command.emplace_back("--json");
  return command;
}

std::string preamble(const Arguments& arguments, const bench::Plan& plan, const bench::MemoryLimit& limit, int ranks) {
  char text[512];
  const int hosts = plan.link.hosts;
  std::snprintf(text, sizeof text, "# %d ranks on %d host%s; buffers in %s memory, %s\n", ranks, hosts, hosts == 1 ? "" : "s", plan.shared ? "shared" : "ordinary",
                arguments.cold ? "other ones in every iteration, past the last-level cache" : "the same in every iteration");
  std::string lines = text;
  if (hosts > 1 && plan.link.one_way == 0) return lines + "# hosts hold different numbers of ranks: the link between them is not measured, no limit\n";
  if (hosts > 1) {
    std::snprintf(text, sizeof text, "# link of a host, measured by plain messages (GB/s): one way %.3f, all hosts sending and receiving %.3f\n",
                  plan.link.one_way / 1e9, plan.link.all_at_once / 1e9);
    return lines + text;
  }
  std::snprintf(text, sizeof text,
                "# memory, all ranks at once (GB/s): read %.1f, write %.1f, copy %.1f (each byte read and written); last-level cache %s\n", limit.read / 1e9,
                limit.write / 1e9, limit.copy / 1e9, format_bytes(plan.cache).c_str());
  return lines + text;
}

std::string device_preamble(const Accelerator& device, CudaComm comm, int ranks) {
  return "# " + std::to_string(ranks) + " ranks; rank 0 on device " + std::to_string(device.index()) + " (" + device.describe() + "); buffers there, " +
         (comm == CudaComm::kNccl ? "by NCCL" : "staged through host memory") + "; the fraction of the limit is not measured\n";
}

/// Prints to standard output at once, so that a reader sees each case as it is done.
void print(const std::string& text) {
  std::cout << text;
  flush_output();
}

std::unique_ptr<Communicator> join_ranks(const RankEnvironment& environment) {
  if (environment.ranks == 1) return std::move(make_thread_communicators(1).front());
  set_log_rank(environment.rank);
  CommunicatorOptions options;
  options.name = "bench";
  return make_communicator(bench::meet_ranks(environment), environment.rank, environment.ranks, options);
}

/// A device and the communicator of its memory; neither where ranks run on the CPU.
struct OnDevice {
  std::shared_ptr<Accelerator> device;
  std::unique_ptr<Communicator> communicator;
};

OnDevice open_device(const Arguments& arguments, const RankEnvironment& environment) {
  if (arguments.device != "cuda") return {};
  const CudaComm comm = choose_cuda_comm(arguments.comm, "--comm");
  OnDevice on;
  on.device = open_cuda_device(environment.local_rank, environment.local_ranks, comm);
  on.device->make_current();
  CommunicatorOptions options;
  options.name = "bench/device";
  on.communicator = join_device(on.device, comm, environment.ranks > 1 ? bench::meet_ranks(environment) : nullptr, environment.rank, environment.ranks, options);
  return on;
}

bench::Plan plan_of(const Arguments& arguments, Communicator& communicator, const OnDevice& on) {
  bench::Plan plan;
  plan.iterations = arguments.iterations;
  plan.warmup = arguments.warmup;
  plan.shared = !on.device && !arguments.private_memory;
  plan.cold = arguments.cold;
  plan.cache = bench::last_level_cache();
  plan.on = {on.communicator.get(), on.device.get()};
  if (!on.device) plan.link = bench::measure_link(communicator);
  return plan;
}

/// All cases that were asked for, each printed once it is done.
std::vector<Result> run_cases(Communicator& communicator, const Arguments& arguments, const Request& request, const bench::Plan& plan,
                              const bench::MemoryLimit& limit) {
  const bool speaks = communicator.rank() == 0;
  std::vector<Result> results;
  const std::vector<Bytes> nothing{0};
  for (const Op op : request.ops) {
    if (speaks && !arguments.json) print("#\n# " + std::string(bench::name_of(op)) + "\n" + bench::table_header());
    for (const DType dtype : request.dtypes) {
      for (const Bytes size : op == Op::kBarrier ? nothing : request.sizes) {
        std::optional<Result> forms[2];
        for (const bool in_place : {false, true}) {
          if (!bench::has_form(op, in_place)) continue;
          const Case what{op, dtype, request.redop, size, arguments.root, in_place};
          forms[in_place ? 1 : 0] = bench::run_case(communicator, what, plan, limit);
          results.push_back(*forms[in_place ? 1 : 0]);
          if (speaks && arguments.json) print(bench::json_line(results.back()) + "\n");
        }
        if (speaks && !arguments.json) print(bench::table_row(forms[0], forms[1]));
      }
      if (op == Op::kBarrier) break;  // it has no elements
    }
  }
  return results;
}

int run_rank(const Arguments& arguments, const Request& request, const RankEnvironment& environment) {
  const std::unique_ptr<Communicator> communicator = join_ranks(environment);
  const OnDevice on = open_device(arguments, environment);
  const int ranks = communicator->size();
  const bool speaks = communicator->rank() == 0;
  const bench::Plan plan = plan_of(arguments, *communicator, on);
  const bench::MemoryLimit limit = on.device || plan.link.hosts > 1 ? bench::MemoryLimit{} : bench::measure_memory(*communicator);
  if (speaks) {
    (arguments.json ? std::cerr : std::cout) << (on.device ? device_preamble(*on.device, choose_cuda_comm(arguments.comm, "--comm"), ranks)
                                                           : preamble(arguments, plan, limit, ranks))
                                             << std::flush;
  }
  const std::vector<Result> results = run_cases(*communicator, arguments, request, plan, limit);
  if (speaks && !arguments.json) print("#\n" + bench::footer(results));
  if (speaks) {
    for (const std::string& warning : bench::monotone_warnings(results, ranks, plan.cold ? 0 : plan.cache)) std::cerr << "warning: " << warning << '\n';
  }
  std::size_t wrong = 0;
  for (const Result& result : results) wrong += result.wrong;
  communicator->barrier().wait();
  if (wrong == 0) return 0;
  if (speaks) print_error(std::to_string(wrong) + " elements of results were wrong. The memory or the collectives of this machine are broken.");
  return exit_code(ErrorKind::kFailed);
}

int run_fit(const Arguments& arguments) {
  const RankEnvironment environment = read_rank_environment();
  const bool launched = environment.launcher != Launcher::kNone;
  check_ranks_asked(environment, arguments.ranks);
  const int ranks = launched ? environment.ranks : arguments.ranks > 0 ? arguments.ranks : 2;
  if (ranks < 2) throw bad_input("one rank has no links to measure.", "Start 2 ranks or more, on the hosts that are to be measured.");
  const bench::FitOptions options{arguments.fit, bench::parse_sizes(arguments.sizes), arguments.json};
  if (std::set<Bytes>(options.sizes.begin(), options.sizes.end()).size() < 2) throw bad_input("alpha and beta need messages of two sizes or more.", "Give --sizes with a small and a large one.");
  if (*std::max_element(options.sizes.begin(), options.sizes.end()) > kGiB) throw bad_input("--fit measures messages of at most 1 GiB.", "Give smaller --sizes.");
  if (launched) return bench::fit_links(*join_ranks(environment), options);
  bench::check_fit_file(arguments.fit);
  LaunchOptions launching;
  launching.command = rank_command(arguments);
  launching.ranks = launching.local_ranks = ranks;
  return launch(launching);
}

int run_bench(const Arguments& arguments) {
  RankEnvironment environment = read_rank_environment();
  const bool launched = environment.launcher != Launcher::kNone;
  check_ranks_asked(environment, arguments.ranks);
  const int ranks = launched ? environment.ranks : arguments.ranks > 0 ? arguments.ranks : 2;
  const Request request = read_request(arguments, ranks);
  // What this host lacks is said once, before any rank starts.
  if (arguments.device == "cuda") (void)open_cuda_device(0, launched ? environment.local_ranks : ranks, choose_cuda_comm(arguments.comm, "--comm"));
  if (launched || ranks == 1) return run_rank(arguments, request, environment);
  LaunchOptions options;
  options.command = rank_command(arguments);
  options.ranks = options.local_ranks = ranks;
  return launch(options);
}

}  // namespace

void register_bench(CLI::App& app, int& exit) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("bench", "Measure this machine's collectives, and check their data");
  command->add_option("--ranks,--nproc-per-node", arguments->ranks, "Ranks to start on this host (2)")->check(CLI::Range(1, 1 << 20));
  command->add_option("--fit", arguments->fit,
                      "Fit latency and bandwidth of each class of links among the ranks, and keep them in this description (cluster.toml), made where there is none");
  command->add_option("--op", arguments->op,
                      "all_reduce, all_gather, reduce_scatter, broadcast, reduce, gather, scatter, all_to_all, send_recv, barrier; all")
      ->capture_default_str();
  command->add_option("--sizes", arguments->sizes, "8,64K,1M; ranges 8:256M:x4 and 8:64:+8")->capture_default_str();
  command->add_option("--dtype", arguments->dtype, "float32, bfloat16, int64, …")->capture_default_str();
  command->add_option("--redop", arguments->redop, "sum, avg, prod, min, max, band, bor, bxor")->capture_default_str();
  command->add_option("--root", arguments->root, "Root of broadcast, reduce, gather and scatter")->check(CLI::Range(0, 1 << 20));
  command->add_option("--iters", arguments->iterations, "Timed calls (as many as fill 0.2 s)")->check(CLI::Range(1, 1 << 30));
  command->add_option("--warmup", arguments->warmup, "Calls before (5)")->check(CLI::Range(0, 1 << 30));
  command->add_option("--device", arguments->device, "cpu or cuda");
  command->add_option("--comm", arguments->comm, "How a device's memory travels: nccl (a device a rank) or staged (through host memory)");
  command->add_flag("--private", arguments->private_memory, "Buffers in ordinary memory, which peers can't map");
  command->add_flag("--cold", arguments->cold, "Other buffers in each call, so that none is in a cache");
  command->add_flag("--json", arguments->json, "JSON lines on standard output");
  command->callback([arguments, command, &exit] {
    if (arguments->fit.empty()) {
      exit = run_bench(*arguments);
      return;
    }
    for (const char* name : {"--op", "--dtype", "--redop", "--root", "--iters", "--warmup", "--device", "--comm", "--private", "--cold"}) {
      if (command->count(name) > 0) throw bad_input(std::string(name) + " is of collectives, and --fit measures messages.", "Leave one of them out.");
    }
    if (command->count("--sizes") == 0) arguments->sizes = bench::kFitSizes;
    exit = run_fit(*arguments);
  });
}

}  // namespace wirewise
