// A communicator for device memory over one for host memory: inputs are copied to pinned host memory, the collective runs there, results
// are copied back, each copy on a side stream. So ranks may share a device, and need no wires between devices.
//
// A worker thread a communicator does it: the caller only queues the copy down. Operations are issued on the host in the order of the
// calls and run side by side; sums are the host communicator's, to the bit. wait() returns once the results lie in device memory.
#pragma once

#include <memory>

#include "wirewise/comm/communicator.h"
#include "wirewise/comm/accelerator.h"

namespace wirewise {

class StagedCommunicator : public Communicator {
 public:
  /// Returns once every earlier call has been issued on the host communicator (or has failed): what is then called on that directly comes
  /// after them on every rank. Waits for the device, not for peers; at most until those calls' deadlines.
  virtual void wait_issued() = 0;
};

/// `host` may be used beside it, by those who keep the ranks' order with wait_issued(). `options.timeout` bounds operations that bring none of
/// their own; it should be the host communicator's.
[[nodiscard]] std::unique_ptr<StagedCommunicator> make_staged_communicator(std::shared_ptr<Communicator> host, std::shared_ptr<Accelerator> device,
                                                                           CommunicatorOptions options = {});

}  // namespace wirewise
