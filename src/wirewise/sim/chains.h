// The orders in which a program's ops run one after another: a chain for each lane, or one for the core that all lanes share.
#pragma once

#include <vector>

#include "wirewise/schedule/schedule.h"

namespace wirewise {

using Chain = std::vector<OpId>;

/// Each lane's ops in program order; lanes run side by side.
[[nodiscard]] std::vector<Chain> chain_a_lane(const Program& program);

/// The order in which one core does a program's work. A collective outside the compute lane costs nothing where it is issued: it
/// moves to where an op that follows it starts, those before it in its lane first; what nobody follows comes at the end.
[[nodiscard]] Chain core_order(const Program& program);

}  // namespace wirewise
