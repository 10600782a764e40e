// meet_ranks in a build with libtorch: whatever the launcher's variables say.
#include "wirewise/cli/bench_store.h"
#include "wirewise/torch/rendezvous.h"

namespace wirewise::bench {

std::shared_ptr<Store> meet_ranks(const RankEnvironment& environment) {
  return meet(parse_meeting("env://", [variables = as_torchrun_variables(environment)](const std::string& name) { return variables(name); })).store;
}

}  // namespace wirewise::bench
