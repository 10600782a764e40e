// Between a rank's state and sharded checkpoints: which fragments it writes, and what it reads back.
#pragma once

#include <filesystem>

#include "wirewise/torch/state.h"
#include "wirewise/train/checkpoint.h"
#include "wirewise/train/prepare.h"

namespace wirewise {

/// Saves weights and moments of all ranks under `folder`. Collective. Returns the checkpoint's path.
std::filesystem::path save_state(const std::filesystem::path& folder, std::uint64_t step, const Prepared& prepared, const ModelState& state,
                                 const TrainState& train_state, const Lanes& lanes);

/// Loads what this rank holds, reading only those byte ranges.
void load_state(const CheckpointReader& reader, const Prepared& prepared, ModelState& state);

/// Throws on every rank when any rank passes a failure, naming the rank. Collective.
void agree(const Lanes& lanes, const std::string& failure);

}  // namespace wirewise
