// Messages between two ranks, timed one way.
#pragma once

#include <span>
#include <vector>

#include "wirewise/comm/communicator.h"
#include "wirewise/wiring/link_fit.h"

namespace wirewise::bench {

/// Collective: rank `from` sends to rank `to`, who asks for each message and checks every byte of it, while all others wait. The time of
/// a message is from asking to having it, less half a round trip of an empty one, so that none waits on its way and a shaped link is
/// never ahead. Sizes that would take seconds are left out once there are some. All ranks get what was measured. Throws kFailed on all
/// where bytes came wrong.
[[nodiscard]] std::vector<MessageTime> time_messages(Communicator& communicator, int from, int to, std::span<const Bytes> sizes);

}  // namespace wirewise::bench
