// Where the ranks of `wirewise bench` meet.
#pragma once

#include <memory>

#include "wirewise/base/rank_env.h"
#include "wirewise/comm/store.h"

namespace wirewise::bench {

/// The launcher's private folder where there is one (on one host, under wirewise), else its TCP store, which needs libtorch: a build without
/// throws bad input that says how to start the ranks instead.
[[nodiscard]] std::shared_ptr<Store> meet_ranks(const RankEnvironment& environment);

}  // namespace wirewise::bench
