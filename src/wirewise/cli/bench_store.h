// Where the ranks of `wirewise bench` meet.
#pragma once

#include <memory>

#include "wirewise/base/rank_env.h"
#include "wirewise/comm/store.h"

namespace wirewise::bench {

/// The launcher's private folder where there is one (on one host, under wirewise), else a store over TCP at MASTER_ADDR, which rank 0 holds. In
/// builds with libtorch that is its TCPStore; others can't speak with the one that torchrun's agent holds, and throw bad input.
[[nodiscard]] std::shared_ptr<Store> meet_ranks(const RankEnvironment& environment);

}  // namespace wirewise::bench
