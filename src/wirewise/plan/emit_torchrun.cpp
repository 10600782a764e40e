#include <map>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/plan/emit.h"
#include "wirewise/plan/emit_variables.h"

namespace wirewise {

std::string emit_torchrun(std::span<const RankPlace> places) {
  std::map<int, std::vector<const RankPlace*>> nodes;
  for (const RankPlace& place : places) nodes[place.node].push_back(&place);
  const std::size_t each = nodes.begin()->second.size();
  for (const auto& [node, ranks] : nodes) {
    if (ranks.size() != each) {
      throw bad_input("torchrun wants equally many ranks on every host, but " + printable(nodes.begin()->second.front()->host) + " holds " + std::to_string(each) + " and " +
                          printable(ranks.front()->host) + " " + std::to_string(ranks.size()) + ".",
                      "Give --nodes, or emit slurm or rankfile.");
    }
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i]->rank == static_cast<int>(static_cast<std::size_t>(node) * each + i)) continue;
      throw bad_input("torchrun numbers ranks host by host, but here " + printable(ranks.front()->host) + " holds rank " + std::to_string(ranks[i]->rank) + " without its neighbours.",
                      "Emit slurm or rankfile, or put ranks in the order of the devices with --order linear, which costs what place prints for it.");
    }
  }
  std::string text =
      "#!/bin/sh\n"
      "# Run on every host: sh THIS train.py …\n"
      "case \"${WIREWISE_NODE:-$(hostname)}\" in\n";
  for (const auto& [node, ranks] : nodes) {
    text += "  " + shell_word(ranks.front()->host) + ")\n    node=" + std::to_string(node) + "\n";
    for (const auto& [name, value] : variables_of_host(ranks)) text += "    export " + name + "=" + shell_word(value) + "\n";
    text += "    ;;\n";
  }
  text += "  *) echo \"$(hostname) is not in this placement; set WIREWISE_NODE to its name there\" >&2; exit 2 ;;\n"
          "esac\n";
  text += "exec torchrun --nnodes=" + std::to_string(nodes.size()) + " --nproc-per-node=" + std::to_string(each) + " --node-rank=\"$node\"";
  if (nodes.size() > 1) text += " --master-addr=" + shell_word(nodes.begin()->second.front()->host) + " --master-port=\"${MASTER_PORT:-29500}\"";
  return text + " \"$@\"\n";
}

}  // namespace wirewise
