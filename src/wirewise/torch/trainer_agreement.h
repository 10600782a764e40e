// What ranks make sure of before they train together: that all of them were given one model and one set of options, and that they begin
// with equal values.
#pragma once

#include <vector>

#include "wirewise/torch/custom_model.h"
#include "wirewise/torch/lanes.h"
#include "wirewise/torch/trainer.h"

namespace wirewise {

/// Throws kMismatch on every rank when some rank's model or options differ from rank 0's; that rank also says where. Collective.
void require_agreement(const Lanes& lanes, const Model& model, const TrainerOptions& options);

/// Rank 0's values on every rank, as DDP does: ranks need not draw equal initial weights themselves. Makes variables contiguous. Collective.
void broadcast_values(const Lanes& lanes, std::vector<CustomParameter>& parameters);

}  // namespace wirewise
