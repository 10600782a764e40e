// meet_ranks in a build without libtorch.
#ifndef WIREWISE_WITH_TORCH

#include "wirewise/cli/bench_store.h"

#include <string>

#include "wirewise/base/error.h"

namespace wirewise::bench {

std::shared_ptr<Store> meet_ranks(const RankEnvironment& environment) {
  if (!environment.store.empty() && environment.nodes == 1) return std::make_shared<FileStore>(environment.store);
  throw bad_input("the ranks that " + std::string(name_of(environment.launcher)) +
                      " started meet in a TCP store, and this wirewise was built without libtorch, which brings it.",
                  environment.nodes == 1 ? "Start them with wirewise bench --ranks N, or build with -DWIREWISE_TORCH=ON."
                                         : "Build with -DWIREWISE_TORCH=ON -DWIREWISE_PYTHON=PYTHON, a Python that has torch.");
}

}  // namespace wirewise::bench

#endif
