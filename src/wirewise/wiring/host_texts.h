// The output of one command on several hosts, as pdsh, clush, srun -l, mpirun, dshbak and ansible print it, taken apart into the hosts'.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace wirewise {

struct HostText {
  std::vector<std::string> hosts;  // that printed it; dshbak -c and clush -b put hosts together that printed the same
  std::string text;
  std::vector<int> lines;  // for each line of `text` its number in the whole, from 1
  bool task = false;       // the name is the number of a task or rank
  bool alone = false;      // all lines have its label, which may be another thing than a host's name
  int line = 0;            // where it begins
};

/// Each host's lines in their order, though those of others stand between them. Empty when the text isn't of this kind: when less than nearly all
/// lines have a label before them, or all have the number of one task, and there are no heads of hosts.
[[nodiscard]] std::vector<HostText> host_texts(std::string_view text);

}  // namespace wirewise
