// Which rank this process is, as its launcher says in the environment: torchrun or wirewise launch, Slurm's srun, Open MPI's
// mpirun. Half-set or contradictory variables are errors: a rank that guesses trains alone, or waits for ranks that never come.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wirewise {

enum class Launcher : std::uint8_t { kNone, kTorchrun, kSlurm, kOpenMpi };
[[nodiscard]] std::string_view name_of(Launcher launcher) noexcept;

struct RankEnvironment {
  Launcher launcher = Launcher::kNone;  // kNone: one rank, alone
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;
  int local_ranks = 1;
  int node = 0;
  int nodes = 1;
  std::string master_addr;  // where rank 0 can be reached; empty where all ranks meet in `store`
  int master_port = 0;
  bool agent_store = false;  // the launcher itself listens on master_port
  std::string store;         // a private folder in which all ranks, on one host, meet
  std::string job;           // equal on all ranks of this start, different for any other
  int restarts = 0;          // times the launcher has started the ranks again
};

using Variables = std::function<std::optional<std::string>(std::string_view)>;
/// The environment of this process. An empty variable counts as absent.
[[nodiscard]] Variables process_variables();

/// Reads the variables of whichever launcher started this process. Throws bad input that names variables, values and remedy.
/// torchrun's RANK and WORLD_SIZE win over Slurm's, since torchrun may run under srun; Open MPI's win over those of the batch
/// step that called mpirun. A Slurm allocation (salloc, the batch script) is no step: its processes are no ranks.
[[nodiscard]] RankEnvironment read_rank_environment(const Variables& variables = process_variables());

/// Throws bad input when a launcher started other than the `asked` ranks of --ranks; 0: it was not given.
void check_ranks_asked(const RankEnvironment& env, int asked);

/// The same ranks in torchrun's variables, over all others of `variables`: what a rendezvous at env:// reads, whoever started the
/// ranks.
[[nodiscard]] Variables as_torchrun_variables(const RankEnvironment& environment,
                                              const Variables& variables = process_variables());

/// Threads that a rank computes with, and why: train.threads, OMP_NUM_THREADS (unless torchrun set its default of 1), cores /
/// local ranks.
struct ThreadChoice {
  int threads = 1;
  std::string reason;
};
[[nodiscard]] ThreadChoice choose_threads(int configured, const RankEnvironment& environment, int cores,
                                          const Variables& variables = process_variables());

}  // namespace wirewise
