#include "wirewise/comm/spanning_share.h"

namespace wirewise::comm {

MovePlan share_stretches(const std::vector<Span>& buffers, const std::vector<Stretch>& stretches, int place, int places, bool takes) {
  MovePlan plan;
  for (const Span& buffer : buffers) plan.exposed.push_back({buffer.data, buffer.bytes});
  plan.outgoing.resize(1);
  plan.incoming.resize(static_cast<std::size_t>(places));
  for (const Stretch& stretch : stretches) {
    std::byte* const data = buffers[stretch.part].data + stretch.at;
    if (stretch.owner == place) {
      plan.outgoing[0].push_back({data, stretch.bytes});
    } else if (takes) {
      plan.incoming[static_cast<std::size_t>(stretch.owner)].push_back({data, stretch.bytes});
    }
  }
  plan.view = [stretches, takes](int source, std::span<const std::byte* const> bases, std::span<const std::uint64_t>) {
    std::vector<ConstSpan> spans;
    for (const Stretch& stretch : stretches) {
      if (stretch.owner != source || !takes) continue;
      const std::byte* const base = bases[stretch.part];
      spans.push_back({base == nullptr ? nullptr : base + stretch.at, stretch.bytes});
    }
    return spans;
  };
  return plan;
}

}  // namespace wirewise::comm
