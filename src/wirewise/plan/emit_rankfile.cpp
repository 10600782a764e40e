#include "wirewise/plan/emit.h"

namespace wirewise {

std::string emit_rankfile(std::span<const RankPlace> places) {
  std::string text =
      "# mpirun --rankfile THIS --mca rmaps_rank_file_physical 1 …\n"
      "# CPUs are numbered as Linux does. Each rank's GPU and NICs: put the script of --emit env before the program.\n";
  for (const RankPlace& place : places) {
    require_plain_host(place.host, "an Open MPI rankfile");
    // A rank without CPUs is refused by mpirun. Where none are known the ranks of a host take them in order, and the file says so.
    const std::string cpus = place.cpus.empty() ? std::to_string(place.local_rank) : place.cpus;
    if (place.cpus.empty() && place.local_rank == 0) text += "# The CPUs of " + place.host + " aren't known: its ranks get CPU 0, 1, … by their order. Write those near their GPUs.\n";
    text += "rank " + std::to_string(place.rank) + "=" + place.host + " slot=" + cpus + "\n";
  }
  return text;
}

}  // namespace wirewise
