// What Slurm's topology files say, whichever way they are written, and the graph that it makes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wirewise/wiring/reading.h"

namespace wirewise {

/// A switch, block or ring, and where the file names it.
struct SlurmGroup {
  std::string name;
  std::vector<std::string> nodes;
  std::vector<std::string> switches;  // of a switch: those below it
  int line = 0, column = 0;           // of its name
  int below_line = 0, below_column = 0;  // of the list of switches
};

struct SlurmTopology {
  std::vector<SlurmGroup> switches, blocks, rings;
  std::vector<int> block_sizes;
  int block_sizes_line = 0;
};

inline constexpr std::size_t kMostSlurmNodes = std::size_t{1} << 16;  // Slurm itself stops there

/// Adds the hosts, switches and links to reading.wiring. Speeds aren't in these files: a host's link is assumed_network(), a switch's uplinks
/// together are as wide as what hangs below it. Throws bad input for what Slurm refuses: a name twice, a switch below itself. What Slurm only
/// warns of is noted: a node in two leaf switches, switches that nothing joins. Switches that are named but not described stand alone, noted.
void add_slurm_topology(const SlurmTopology& topology, std::string_view file, Reading& reading);

}  // namespace wirewise
