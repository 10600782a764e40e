// One case of `wirewise bench`: an operation at a size, timed and its data checked, on whatever communicator it is given.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "wirewise/cli/bench_link.h"
#include "wirewise/cli/bench_memory.h"
#include "wirewise/cli/bench_operation.h"
#include "wirewise/comm/communicator.h"
#include "wirewise/comm/accelerator.h"

namespace wirewise::bench {

struct Case {
  Op op = Op::kAllReduce;
  DType dtype = DType::kFloat32;
  Reduction redop = Reduction::kSum;
  Bytes size = 0;  // wanted: see shape_of
  int root = 0;
  bool in_place = false;
};

/// Where the buffers lie on a device: the communicator that is measured, and the device itself.
struct OnDevice {
  Communicator* communicator = nullptr;
  Accelerator* device = nullptr;
};

struct Plan {
  int iterations = 0;  // 0: as many as fill a fifth of a second, between 5 and 20,000
  int warmup = -1;     // -1: 5
  bool shared = true;  // buffers in memory that peers map
  bool cold = false;   // each iteration on other buffers, until all of them are past the last-level cache
  Bytes cache = 0;     // the last-level cache, for cold
  LinkLimit link;      // across hosts: what cases are held against in place of memory
  OnDevice on;         // no device: the host's memory, by the communicator that run_case is given
};

struct Result {
  Op op = Op::kAllReduce;
  Bytes size = 0;
  std::size_t count = 0;
  DType dtype = DType::kFloat32;
  std::string redop = "none";
  int root = -1;
  bool in_place = false;
  double time_us = 0;  // mean of the slowest rank
  double p50_us = 0;   // of the rank where it is largest
  double p99_us = 0;
  double algbw_GBps = 0;
  double busbw_GBps = 0;
  std::size_t wrong = 0;      // elements, over all ranks
  double limit_fraction = 0;  // the least time that memory, or the link between hosts, allows / time; 0 where nothing moves or no limit is known
  int iterations = 0;
};

/// Collective: all ranks pass the same. A limit of zeros stands for none. Warms up, times, then runs once more on fresh data and checks every
/// element. `communicator` is one of host memory: the ranks agree by it, and it is what is measured unless the plan names a device.
[[nodiscard]] Result run_case(Communicator& communicator, const Case& what, const Plan& plan, const MemoryLimit& limit);

}  // namespace wirewise::bench
