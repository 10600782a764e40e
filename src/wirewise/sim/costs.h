// What one op costs, apart from when it runs.
#pragma once

#include <map>
#include <span>

#include "wirewise/sim/simulate.h"

namespace wirewise {

/// Collectives that do nothing but communicate: clipping reads every gradient besides, which is compute.
[[nodiscard]] bool is_communication(OpKind kind) noexcept;

/// Prices ops of one schedule. Keeps references to all that it is given but the schedule.
class Costs {
 public:
  /// Throws bad input when the wiring lacks a rank, or a rate is not positive.
  Costs(const Schedule& schedule, const Model& model, const Wiring& wiring, const DeviceRates& rates,
        const MeasuredCosts& measured);

  /// Seconds that `op` of `program` keeps its lane busy; collectives over the group of the program's first rank.
  [[nodiscard]] Seconds of(const Program& program, const Op& op) const;

 private:
  [[nodiscard]] Seconds compute(const Op& op) const;
  [[nodiscard]] Seconds forward_of_segments(const Op& op) const;
  [[nodiscard]] Seconds step(const Program& program, const Op& op) const;
  [[nodiscard]] Seconds collective(const Program& program, const Op& op) const;
  [[nodiscard]] Link slowest_link(std::span<const int> ranks) const;
  [[nodiscard]] Link slowest_network(std::span<const int> hosts) const;

  const Model& model_;
  const Wiring& wiring_;
  const DeviceRates& rates_;
  const MeasuredCosts& measured_;
  Mesh mesh_;
  std::vector<Link> device_link_;  // slowest link out of each device; beta 0 where there is none
  std::map<int, Link> host_link_;  // slowest link of each host to the network
};

}  // namespace wirewise
