// The way data takes between two devices, and what limits it.
#pragma once

#include <optional>
#include <vector>

#include "wirewise/wiring/wiring.h"

namespace wirewise {

struct Path {
  std::vector<int> links;           // in order, from the first device
  BytesPerSecond bandwidth = 0;     // of the slowest link
  int bottleneck = -1;              // that link; -1: no link at all
  Seconds latency = 0;              // of all links
  Provenance provenance = Provenance::kSpec;  // the least certain of its links'
};

/// Shortest paths of one graph: least time a byte over all links, which takes NVLink before PCIe and few hops before many. Data passes
/// through no GPU and no rank's core, and doesn't leave a host that both devices are in. Of equals the first in the graph's order.
class Paths {
 public:
  explicit Paths(const Wiring& wiring);
  /// Empty when no links lead there.
  [[nodiscard]] std::optional<Path> find(int from, int to) const;

 private:
  const Wiring& wiring_;
  std::vector<std::vector<int>> out_;
};

/// The one of two provenances that is less certain: assumed, then spec, then driver, then measured.
[[nodiscard]] Provenance less_certain(Provenance a, Provenance b) noexcept;

}  // namespace wirewise
