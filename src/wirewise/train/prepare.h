// From a finished configuration to what will run: model shape, schedules, and the memory they need. No ranks, no tensors: a dry run ends here.
#pragma once

#include <string>
#include <vector>

#include "wirewise/schedule/schedule.h"
#include "wirewise/train/config.h"

namespace wirewise {

struct Prepared {
  TrainConfig config;        // finished; what strategy.alias auto comes to is in the schedules' strategy
  int threads = 1;           // intra-op threads a rank
  Model model;
  Schedule train;
  Schedule forward;          // validation and sampling
  MemoryReport memory;       // of a training step, on the rank that holds most
  std::vector<int> host_of;  // by rank: the number of its host
};

/// Builds and proves both schedules.
[[nodiscard]] Prepared prepare(const TrainConfig& finished, int threads);

/// Ranks in order, `local_ranks` on each host: how launchers place them.
[[nodiscard]] std::vector<int> hosts_in_order(int ranks, int local_ranks);
/// Hosts that the ranks are on.
[[nodiscard]] int host_count(const Prepared& prepared);

/// Units, roles, schedule length, memory by category for each rank.
[[nodiscard]] std::string dry_run_text(const Prepared& prepared);
/// The same as one JSON line.
[[nodiscard]] std::string dry_run_json(const Prepared& prepared);

/// How far `peak` goes over `limit` and where; empty when it fits.
[[nodiscard]] std::string over_limit(const Prepared& prepared, Bytes limit);

/// Learning rate of a step (from 1): linear warm-up, then a cosine to min_lr at the last step.
[[nodiscard]] double learning_rate(const TrainConfig& config, std::int64_t step);

}  // namespace wirewise
