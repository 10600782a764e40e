// NCCL behind the Communicator interface, by libtorch's ProcessGroupNCCL. Each communicator has a stream of its own, so that a lane of
// the schedule is a stream.
//
// Where NCCL differs from the other communicators: sums follow its own order, which depends on the ranks, the size and the wires
// between them, so bits may differ between sizes and machines; messages have no tags; bitwise reductions are refused; waits make the
// current stream wait and not the thread; ranks that disagree on a call are not named, they meet the deadline.
#pragma once

#include <memory>

#include "wirewise/comm/communicator.h"
#include "wirewise/comm/store.h"

namespace wirewise::cuda {

[[nodiscard]] std::unique_ptr<Communicator> make_nccl_communicator(std::shared_ptr<Store> store, int device, int rank, int size,
                                                                   CommunicatorOptions options);

}  // namespace wirewise::cuda
