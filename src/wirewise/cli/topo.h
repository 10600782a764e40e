// Subcommands of wirewise topo.
#pragma once

namespace CLI {
class App;
}

namespace wirewise {

void register_topo_links(CLI::App& topo);
void register_topo_list(CLI::App& topo);

}  // namespace wirewise
