#include "wirewise/plan/emit.h"

namespace wirewise {

std::string emit_rankfile(std::span<const RankPlace> places) {
  std::string text =
      "# mpirun --rankfile THIS --mca rmaps_rank_file_physical 1 …\n"
      "# CPUs are numbered as Linux does. Each rank's GPU and NICs: put the script of --emit env before the program.\n";
  for (const RankPlace& place : places) {
    require_plain_host(place.host, "an Open MPI rankfile");
    const std::string cpus = place.cpus.empty() ? std::to_string(place.local_rank) : place.cpus;
    text += "rank " + std::to_string(place.rank) + "=" + place.host + " slot=" + cpus + "\n";
  }
  return text;
}

}  // namespace wirewise
