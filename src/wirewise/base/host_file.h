// Files that name a job's hosts, a line each, as Open MPI ("node1 slots=8"), DeepSpeed (the same), MPICH ("node1:8"), horovodrun
// ("node1:8,node2:8"), Torque ("node1 np=8"), people ("node1 8") and schedulers (the name alone) write them; # begins a comment.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wirewise {

struct HostLine {
  std::string name;
  int slots = 1;           // ranks that it may hold
  bool slots_given = false;
  int most_slots = 0;      // Open MPI's max_slots; 0: not given
  std::string others;      // MPICH's "binding=user:0,1 ifhn=ib0"; empty: none
  int line = 0, column = 0;
};

struct HostFileFault {
  int line = 0, column = 0;
  std::string what, remedy;
};

/// Appends the hosts in the file's order; a name that stands there twice comes twice.
[[nodiscard]] std::optional<HostFileFault> parse_host_lines(std::string_view text, std::vector<HostLine>& hosts);

}  // namespace wirewise
