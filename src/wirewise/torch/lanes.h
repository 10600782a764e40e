// The communicators of one rank's data-parallel group, one a lane, so that a gather never waits behind a reduction.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "wirewise/comm/communicator.h"
#include "wirewise/schedule/schedule.h"

namespace wirewise {

struct Lanes {
  std::shared_ptr<Communicator> gather;
  std::shared_ptr<Communicator> reduce;
  std::shared_ptr<Communicator> control;  // scalars, checkpoints' agreement, hashes
  [[nodiscard]] int rank() const { return control->rank(); }
  [[nodiscard]] int size() const { return control->size(); }
};

/// Joins the group's lanes through `store`. Collective.
[[nodiscard]] Lanes make_lanes(const std::shared_ptr<Store>& store, int rank, int size, std::chrono::milliseconds timeout);

/// Lanes of `size` ranks that are threads of this process.
[[nodiscard]] std::vector<Lanes> make_thread_lanes(int size, std::chrono::milliseconds timeout);

/// A flat tensor of `elements` in memory that peers of the communicator can map, counted under `category`. The tensor keeps the communicator alive.
[[nodiscard]] at::Tensor empty_shared(const std::shared_ptr<Communicator>& communicator, std::uint64_t elements, DType dtype,
                                      Category category);

}  // namespace wirewise
