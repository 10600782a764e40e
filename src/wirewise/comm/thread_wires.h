// Wires between threads of one process: a network and channels over queues in memory, so that algorithms between hosts run in tests
// without a network, and under sanitizers.
#pragma once

#include <memory>

#include "wirewise/comm/wires.h"

namespace wirewise::comm {

/// All ranks of a communicator meet through the end of its rank 0, which must live until all have connected.
[[nodiscard]] std::unique_ptr<WireEnd> make_thread_end(int ranks);

}  // namespace wirewise::comm
