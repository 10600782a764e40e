#include "wirewise/plan/emit.h"
#include "wirewise/plan/emit_variables.h"

namespace wirewise {

std::string emit_env(std::span<const RankPlace> places) {
  std::string text =
      "#!/bin/sh\n"
      "# Started for each rank: srun sh THIS python train.py …, or mpirun, or wirewise launch --ranks N -- sh THIS …\n"
      "cpus=\n"
      "rank=${RANK:-${SLURM_PROCID:-${OMPI_COMM_WORLD_RANK:-${PMI_RANK}}}}\n"
      "case \"$rank\" in\n";
  for (const RankPlace& place : places) {
    text += "  " + std::to_string(place.rank) + ")";
    for (const auto& [name, value] : variables_of_rank(place)) text += " export " + name + "=" + shell_word(value) + ";";
    if (!place.cpus.empty()) text += " cpus=" + shell_word(place.cpus);
    text += " ;;\n";
  }
  text += "  *) echo \"rank '$rank' is not in this placement\" >&2; exit 2 ;;\n"
          "esac\n"
          "if [ -n \"$cpus\" ]; then exec taskset --cpu-list \"$cpus\" \"$@\"; fi\n"
          "exec \"$@\"\n";
  return text;
}

}  // namespace wirewise
