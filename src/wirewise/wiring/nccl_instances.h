// What the threads of an NCCL log tell, each of one rank of one communicator, and the communicators that they make together.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "wirewise/wiring/nccl_log.h"

namespace wirewise {

/// One rank of one communicator, as one thread of its process tells of it.
struct NcclInstance {
  std::string host, id, bus;
  long long pid = 0;
  int device = -1, rank = -1, size = 0, turn = 0;
  bool begun = false, complete = false;
  NcclCommunicator said;
  std::map<int, std::pair<int, int>> around;  // by channel: the ranks before and after in the ring
};

/// Ranks of one communicator have its size, id and turn in common; where a log assigns them no further, they are told apart by host or device.
[[nodiscard]] std::vector<NcclCommunicator> nccl_communicators(std::vector<NcclInstance> instances);

}  // namespace wirewise
