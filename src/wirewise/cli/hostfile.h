// Which hosts a job runs on: the file of `wirewise launch --hosts`, a host a line as Open MPI, DeepSpeed and MPICH write it.
//
//   node1 slots=2   # the first host: rank 0 runs here
//   user@node2 slots=2
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace wirewise {

struct HostSlots {
  std::string name;  // as ssh takes it
  int slots = 1;     // ranks it may hold
};

/// Throws bad input that names file and line: an unknown key, a host named twice, no host at all.
[[nodiscard]] std::vector<HostSlots> parse_hosts(std::string_view text, const std::string& file);
[[nodiscard]] std::vector<HostSlots> read_hosts(const std::filesystem::path& file);

/// The hosts that hold `ranks` ranks (0: all there is room for), in the file's order, `per_host` on each (0: as many as its slots). Throws
/// bad input where they don't, or where hosts would hold unequal numbers.
struct HostShare {
  std::vector<std::string> names;
  int ranks_each = 1;
};
[[nodiscard]] HostShare share_hosts(const std::vector<HostSlots>& hosts, int ranks, int per_host, const std::string& file);

}  // namespace wirewise
