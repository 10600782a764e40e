#include "wirewise/base/rank_env.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>

#include "wirewise/base/error.h"
#include "wirewise/base/node_list.h"
#include "wirewise/base/text.h"

namespace wirewise {
namespace {

constexpr long long kMostRanks = 1 << 24;

/// Reads variables with their names in every error.
class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  [[nodiscard]] std::optional<std::string> text(std::string_view name) const {
    auto value = variables_(name);
    if (value && value->empty()) value.reset();
    return value;
  }
  [[nodiscard]] bool has(std::string_view name) const { return text(name).has_value(); }

  /// A count or index between `low` and `high`.
  [[nodiscard]] std::optional<int> number(std::string_view name, long long low, long long high) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    const auto parsed = parse_integer(*value);
    if (!parsed || *parsed < low || *parsed > high) {
      throw bad_input(fmt::format("{}={} is not a whole number from {} to {}.", name, printable(*value), low, high),
                      fmt::format("Set {} as the launcher would, or unset it.", name));
    }
    return static_cast<int>(*parsed);
  }

  [[nodiscard]] int required(std::string_view name, long long low, long long high, std::string_view because) const {
    if (const auto value = number(name, low, high)) return *value;
    throw bad_input(fmt::format("{} is not set, though {}.", name, because),
                    fmt::format("Start the ranks with wirewise launch, torchrun, srun or mpirun, or set {} too.", name));
  }

  [[nodiscard]] std::optional<int> port() const { return number("MASTER_PORT", 1, 65535); }

 private:
  const Variables& variables_;
};

void check_below(int index, std::string_view index_name, int count, std::string_view count_name) {
  if (index < count) return;
  throw bad_input(fmt::format("{} is {}, but {} is {}.", index_name, index, count_name, count),
                  fmt::format("{} counts from 0 to {}; check how the ranks were started.", index_name, count - 1));
}

/// A port for a job whose launcher names none: the same on all ranks, below the range that systems hand out by themselves.
int port_of_job(const std::string& job) { return 12000 + static_cast<int>(XXH64(job.data(), job.size(), 0) % 20000); }

RankEnvironment read_torchrun(const Reader& reader) {
  RankEnvironment env;
  env.launcher = Launcher::kTorchrun;
  const char* why = "other variables of a rank (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE) are";
  env.ranks = reader.required("WORLD_SIZE", 1, kMostRanks, why);
  env.rank = reader.required("RANK", 0, kMostRanks, why);
  check_below(env.rank, "RANK", env.ranks, "WORLD_SIZE");
  if (reader.has("LOCAL_RANK") || reader.has("LOCAL_WORLD_SIZE")) {
    env.local_ranks = reader.number("LOCAL_WORLD_SIZE", 1, env.ranks).value_or(env.ranks);
    env.local_rank = reader.required("LOCAL_RANK", 0, kMostRanks, "LOCAL_WORLD_SIZE is");
    check_below(env.local_rank, "LOCAL_RANK", env.local_ranks,
                reader.has("LOCAL_WORLD_SIZE") ? "LOCAL_WORLD_SIZE" : "WORLD_SIZE");
  } else {  // env:// by hand: one host, until the ranks find otherwise when they meet
    env.local_ranks = env.ranks;
    env.local_rank = env.rank;
  }
  env.nodes = reader.number("GROUP_WORLD_SIZE", 1, env.ranks).value_or((env.ranks + env.local_ranks - 1) / env.local_ranks);
  env.node = reader.number("GROUP_RANK", 0, kMostRanks).value_or(env.rank / env.local_ranks);
  check_below(env.node, "GROUP_RANK", env.nodes, "the number of hosts");
  env.restarts = reader.number("TORCHELASTIC_RESTART_COUNT", 0, kMostRanks).value_or(0);
  env.agent_store = reader.text("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  if (const auto store = reader.text("WIREWISE_STORE"); store && env.local_ranks == env.ranks) env.store = *store;
  const auto port = reader.port();
  if (env.store.empty() && env.ranks > 1) {
    for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
      if (reader.has(name)) continue;
      throw bad_input(
          fmt::format("{} is not set, though WORLD_SIZE is {}.", name, env.ranks),
          "Start the ranks with wirewise launch or torchrun, or set MASTER_ADDR and MASTER_PORT to where rank 0 listens.");
    }
  }
  env.master_addr = reader.text("MASTER_ADDR").value_or("");
  env.master_port = port.value_or(0);
  env.job = fmt::format("torchrun-{}-{}-{}", reader.text("TORCHELASTIC_RUN_ID").value_or("none"), env.master_port, env.restarts);
  return env;
}

/// True inside a step that srun started. The batch script and the shells of salloc carry SLURM_PROCID too, but no step's number,
/// or one of the reserved ones from 0xfffffff0 on.
bool in_slurm_step(const Reader& reader) {
  const auto step = reader.text("SLURM_STEP_ID");
  if (!step || !reader.has("SLURM_PROCID")) return false;
  const auto number = parse_integer(*step);
  return number && *number >= 0 && *number < 0xfffffff0LL;
}

/// Entry `node` of "2(x3),1", the tasks of each node.
int tasks_of_node(const std::string& text, int node) {
  const auto malformed = [&] {
    return bad_input(fmt::format("SLURM_STEP_TASKS_PER_NODE={} can't be read.", printable(text)), "Start the ranks with srun.");
  };
  int at = 0;
  for (const std::string& part : split(text, ',')) {
    const auto open = part.find("(x");
    const auto tasks = parse_integer(std::string_view(part).substr(0, open));
    long long repeat = 1;
    if (open != std::string::npos) {
      if (part.back() != ')') throw malformed();
      repeat = parse_integer(std::string_view(part).substr(open + 2, part.size() - open - 3)).value_or(0);
    }
    if (!tasks || *tasks < 1 || *tasks > kMostRanks || repeat < 1 || repeat > kMostRanks) throw malformed();
    if (node < at + repeat) return static_cast<int>(*tasks);
    at += static_cast<int>(repeat);
  }
  throw malformed();
}

/// The host of rank 0 where a host file deals out the tasks: it needn't be the first of the node list, which is sorted.
std::string first_host_of_file(const Reader& reader) {
  const auto path = reader.text("SLURM_HOSTFILE");
  if (path) {
    std::ifstream file(*path);
    for (std::string line; std::getline(file, line);) {
      const auto begin = line.find_first_not_of(" \t\r");
      if (begin == std::string::npos || line[begin] == '#') continue;
      const std::string word = line.substr(begin, line.find_first_of(" \t\r*", begin) - begin);
      if (const auto hosts = expand_node_list(word); !hosts.empty()) return hosts.front();
    }
  }
  throw bad_input("the step's tasks are distributed by a host file, so rank 0 needn't be on the first host of the node list, and " +
                      (path ? "SLURM_HOSTFILE=" + printable(*path) + " can't be read on this host." : std::string("SLURM_HOSTFILE is not set.")),
                  "Set MASTER_ADDR to the first host of that file.");
}

RankEnvironment read_slurm(const Reader& reader) {
  RankEnvironment env;
  env.launcher = Launcher::kSlurm;
  const char* why = "SLURM_PROCID and SLURM_STEP_ID are";
  env.ranks = reader.has("SLURM_STEP_NUM_TASKS") ? reader.required("SLURM_STEP_NUM_TASKS", 1, kMostRanks, why)
                                                 : reader.required("SLURM_NTASKS", 1, kMostRanks, why);
  env.rank = reader.required("SLURM_PROCID", 0, kMostRanks, why);
  check_below(env.rank, "SLURM_PROCID", env.ranks, "the step's number of tasks");
  env.nodes = reader.has("SLURM_STEP_NUM_NODES") ? reader.required("SLURM_STEP_NUM_NODES", 1, env.ranks, why)
                                                 : reader.number("SLURM_NNODES", 1, kMostRanks).value_or(1);
  env.local_rank = reader.required("SLURM_LOCALID", 0, kMostRanks, why);
  env.node = reader.number("SLURM_NODEID", 0, kMostRanks).value_or(0);
  check_below(env.node, "SLURM_NODEID", env.nodes, "the step's number of nodes");
  const auto tasks =
      reader.has("SLURM_STEP_TASKS_PER_NODE") ? reader.text("SLURM_STEP_TASKS_PER_NODE") : reader.text("SLURM_TASKS_PER_NODE");
  if (env.nodes == 1) {
    env.local_ranks = env.ranks;
  } else if (tasks) {
    env.local_ranks = tasks_of_node(*tasks, env.node);
  } else {
    throw bad_input("SLURM_STEP_TASKS_PER_NODE is not set, though the step has several nodes.", "Start the ranks with srun.");
  }
  check_below(env.local_rank, "SLURM_LOCALID", env.local_ranks, "the node's number of tasks");
  env.restarts = reader.number("SLURM_RESTART_COUNT", 0, kMostRanks).value_or(0);
  env.job = fmt::format("slurm-{}-{}-{}", reader.text("SLURM_JOB_ID").value_or("0"), reader.text("SLURM_STEP_ID").value_or("0"),
                        env.restarts);
  const auto port = reader.port();
  if (env.ranks == 1) return env;
  env.master_port = port.value_or(port_of_job(env.job));
  if (const auto address = reader.text("MASTER_ADDR")) {
    env.master_addr = *address;
  } else if (env.nodes == 1) {
    env.master_addr = "127.0.0.1";
  } else if (reader.text("SLURM_DISTRIBUTION").value_or("").starts_with("arbitrary")) {
    env.master_addr = first_host_of_file(reader);
  } else {
    const auto list = reader.has("SLURM_STEP_NODELIST") ? reader.text("SLURM_STEP_NODELIST") : reader.text("SLURM_JOB_NODELIST");
    const auto hosts = expand_node_list(list.value_or(""));
    if (hosts.empty())
      throw bad_input("neither MASTER_ADDR nor SLURM_STEP_NODELIST is set.", "Set MASTER_ADDR to the host of rank 0.");
    env.master_addr = hosts.front();
  }
  return env;
}

RankEnvironment read_open_mpi(const Reader& reader) {
  RankEnvironment env;
  env.launcher = Launcher::kOpenMpi;
  const char* why = "other variables of Open MPI are";
  env.ranks = reader.required("OMPI_COMM_WORLD_SIZE", 1, kMostRanks, why);
  env.rank = reader.required("OMPI_COMM_WORLD_RANK", 0, kMostRanks, why);
  check_below(env.rank, "OMPI_COMM_WORLD_RANK", env.ranks, "OMPI_COMM_WORLD_SIZE");
  env.local_ranks = reader.required("OMPI_COMM_WORLD_LOCAL_SIZE", 1, env.ranks, why);
  env.local_rank = reader.required("OMPI_COMM_WORLD_LOCAL_RANK", 0, kMostRanks, why);
  check_below(env.local_rank, "OMPI_COMM_WORLD_LOCAL_RANK", env.local_ranks, "OMPI_COMM_WORLD_LOCAL_SIZE");
  env.nodes = (env.ranks + env.local_ranks - 1) / env.local_ranks;
  env.node = env.rank / env.local_ranks;
  env.job = "mpi-" + reader.text("PMIX_NAMESPACE").value_or(reader.text("OMPI_MCA_ess_base_jobid").value_or("0"));
  const auto port = reader.port();
  if (env.ranks == 1) return env;
  env.master_port = port.value_or(port_of_job(env.job));
  const auto address = reader.text("MASTER_ADDR");
  if (!address && env.nodes > 1) {
    throw bad_input("MASTER_ADDR is not set, though Open MPI runs ranks on several hosts.",
                    "Set it to the host of rank 0: mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500 ….");
  }
  env.master_addr = address.value_or("127.0.0.1");
  return env;
}

}  // namespace

std::string_view name_of(Launcher launcher) noexcept {
  switch (launcher) {
    case Launcher::kNone: return "none";
    case Launcher::kTorchrun: return "torchrun";
    case Launcher::kSlurm: return "slurm";
    case Launcher::kOpenMpi: return "open mpi";
  }
  return "unknown";
}

Variables process_variables() {
  return [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

RankEnvironment read_rank_environment(const Variables& variables) {
  const Reader reader(variables);
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    if (reader.has(name)) return read_torchrun(reader);
  }
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}) {
    if (reader.has(name)) return read_open_mpi(reader);
  }
  if (in_slurm_step(reader)) return read_slurm(reader);
  return {};
}

Variables as_torchrun_variables(const RankEnvironment& env, const Variables& variables) {
  std::map<std::string, std::string, std::less<>> own{
      {"RANK", std::to_string(env.rank)},
      {"WORLD_SIZE", std::to_string(env.ranks)},
      {"LOCAL_RANK", std::to_string(env.local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(env.local_ranks)},
      {"GROUP_RANK", std::to_string(env.node)},
      {"GROUP_WORLD_SIZE", std::to_string(env.nodes)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(env.restarts)},
  };
  if (!env.master_addr.empty()) own["MASTER_ADDR"] = env.master_addr;
  if (env.master_port != 0) own["MASTER_PORT"] = std::to_string(env.master_port);
  return [own = std::move(own), variables](std::string_view name) -> std::optional<std::string> {
    const auto found = own.find(name);
    return found != own.end() ? std::optional<std::string>(found->second) : variables(name);
  };
}

void check_ranks_asked(const RankEnvironment& env, int asked) {
  if (env.launcher == Launcher::kNone || asked <= 0 || asked == env.ranks) return;
  throw bad_input(fmt::format("--ranks {} differs from the {} ranks that {} started.", asked, env.ranks, name_of(env.launcher)),
                  "Leave --ranks out under a launcher.");
}

ThreadChoice choose_threads(int configured, const RankEnvironment& env, int cores, const Variables& variables) {
  if (configured > 0) return {configured, "train.threads"};
  const Reader reader(variables);
  const auto wanted = reader.number("OMP_NUM_THREADS", 1, 1 << 16);
  // torchrun sets 1 where nobody chose; only it has a run's number and an agent's store.
  const bool torchrun_default = wanted == 1 && env.agent_store;
  if (wanted && !torchrun_default) return {*wanted, "OMP_NUM_THREADS"};
  return {std::max(1, cores / env.local_ranks), fmt::format("{} cores / {} ranks on this host", cores, env.local_ranks)};
}

}  // namespace wirewise
