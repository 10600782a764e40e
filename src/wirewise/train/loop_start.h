// What a run does with its folder before the first step, and how it knows a checkpoint as its own.
#pragma once

#include <filesystem>
#include <string>

#include "wirewise/train/checkpoint.h"
#include "wirewise/train/config.h"

namespace wirewise {

[[nodiscard]] std::filesystem::path checkpoints_of(const TrainConfig& config);

/// Throws bad input unless the checkpoint is of this model, data order and data.
void check_same_run(const CheckpointReader& reader, const TrainConfig& config, const std::string& fingerprint);

/// Makes the run's folder and writes its config.toml. Throws bad input where that can't be.
void make_run_folder(const TrainConfig& config);

}  // namespace wirewise
