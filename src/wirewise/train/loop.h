// Training from a configuration: data, schedule, executor, metrics, checkpoints, signals, on one rank of many.
#pragma once

#include <memory>

#include "wirewise/comm/cuda_library.h"
#include "wirewise/comm/store.h"
#include "wirewise/train/prepare.h"

namespace wirewise {

/// This rank and where it meets the others.
struct Rank {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;   // null for a single rank
  std::shared_ptr<Accelerator> device; // null: the CPU
  CudaComm comm = CudaComm::kNccl;
};

struct LoopOptions {
  bool json = false;              // JSON lines on standard output, the rest on standard error
  bool restarted = false;         // by a launcher after a failure: go on from the newest complete checkpoint, or start anew if there is none
};

/// Trains to the configured step. Returns the exit code: 0 when all steps are done, 130 or 143 when a signal stopped it after saving.
/// Throws Error. Collective over the ranks.
[[nodiscard]] int run_training(const Prepared& prepared, const Rank& rank, const LoopOptions& options);

/// What one process can find wrong before ranks start and before anything is written. Throws bad input when the output folder exists and
/// is not to be resumed, or is to be resumed and holds no complete checkpoint of this model and data; when data is missing or unfit.
void check_start(const TrainConfig& config, bool restarted);

}  // namespace wirewise
