// What each rank of a cluster measures of itself and of its links to others, all at the same work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wirewise/base/units.h"
#include "wirewise/cli/cluster_pairs.h"
#include "wirewise/comm/communicator.h"

namespace wirewise {

/// One rank's own speed, the best of several windows.
struct RankProbe {
  int rank = 0;
  int host = 0;           // hosts are numbered by their first rank
  std::string host_name;
  long pid = 0;
  Flops flops = 0;        // float32 multiply-adds (two each) a second, one core
  BytesPerSecond copy = 0;  // bytes copied a second through arrays past the caches, one core
  double quota = 0;       // CPU time a second that its control group allows; 0: no limit
  std::int64_t throttled = 0;  // times that the group was held back during the probe; -1: not known
};

/// One direction between two hosts, measured by their first ranks: the best of several messages.
struct LinkProbe {
  int from = 0, to = 0;  // hosts
  BytesPerSecond bandwidth = 0;
  Seconds latency = 0;   // half a round trip of an empty message
  std::uint64_t wrong = 0;  // bytes that came other than they were sent
};

struct ClusterProbe {
  std::vector<RankProbe> ranks;  // by rank
  std::vector<LinkProbe> links;
  PairCheck pairs;  // of ranks
  int hosts = 1;
};

struct ProbeOptions {
  Seconds window = 0.2;       // of compute and memory
  int windows = 3;
  Bytes message = 4 << 20;
  int messages = 3;           // of a pair and direction
  int rounds = 0;             // of pairs of hosts; 0: until each has met each, at most 64
  Bytes pair_message = 1 << 20;  // of a pair of ranks, whose data alone counts
  PairDevice pairs_on;           // where that data lies
};

/// Collective; all ranks get the same. Ranks that share a machine and outnumber its cores measure themselves one after the other, others
/// all at once. Pairs meet in rounds in which each host is in one pair only.
[[nodiscard]] ClusterProbe probe_cluster(Communicator& communicator, const ProbeOptions& options);

/// The better figure of each of two probes of one cluster; faults of data add up.
[[nodiscard]] ClusterProbe best_of(const ClusterProbe& a, const ClusterProbe& b);

}  // namespace wirewise
