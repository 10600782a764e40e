#include <set>

#include "wirewise/plan/emit.h"

namespace wirewise {

std::string emit_slurm_hostfile(std::span<const RankPlace> places) {
  std::string text;
  for (const RankPlace& place : places) {
    require_plain_host(place.host, "Slurm");
    text += place.host + "\n";
  }
  return text;
}

std::string emit_slurm(std::span<const RankPlace> places, int switches) {
  std::set<int> nodes;
  for (const RankPlace& place : places) {
    require_plain_host(place.host, "Slurm");
    nodes.insert(place.node);
  }
  std::string text =
      "#!/bin/sh\n"
      "# Ranks in the order of the host file. Run it where srun is: sh THIS python train.py …\n"
      "# Each rank's GPU, NICs and CPUs: put the script of --emit env before the program.\n"
      "file=$(mktemp) || exit 1\n"
      "trap 'rm -f \"$file\"' EXIT\n"
      "cat > \"$file\" <<'END OF HOSTS'\n" +
      emit_slurm_hostfile(places) +
      "END OF HOSTS\n"
      "SLURM_HOSTFILE=\"$file\"\n"
      "export SLURM_HOSTFILE\n"
      "MASTER_ADDR=${MASTER_ADDR:-" + places.front().host + "}  # the host of rank 0; Slurm's own lists are sorted\n"
      "export MASTER_ADDR\n";
  text += "srun --distribution=arbitrary --kill-on-bad-exit=1 --nodes=" + std::to_string(nodes.size()) + " --ntasks=" + std::to_string(places.size());  // --nodelist would take the file's place
  if (switches > 0) text += " --switches=" + std::to_string(switches);
  return text + " \"$@\"\n";
}

}  // namespace wirewise
