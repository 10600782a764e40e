// What the groups of a mesh send in a step, for placement: from a transformer's size, or from a schedule.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "wirewise/schedule/schedule.h"
#include "wirewise/strategy/strategy.h"
#include "wirewise/wiring/placement.h"

namespace wirewise {

/// Degrees as people write them: "pp=2,dp=8,tp=8", or with blanks between. Keys: pp, dp_replicate, dp_shard (or dp), cp, tp, ep; each 1 or more; ep divides dp_shard.
/// Throws bad input naming the word.
[[nodiscard]] Strategy parse_mesh(std::string_view text);
/// Ranks of a mesh whose degrees are all given.
[[nodiscard]] long long ranks_of(const Strategy& strategy);

/// The transformer whose step is priced; what counts is how its traffics compare.
struct TransformerStep {
  double parameters = 7e9;
  int layers = 32;
  int width = 4096;
  double tokens = 8192;    // a data-parallel rank takes in a step
  double number_bytes = 2;  // of activations and gradients
};

/// A phase for each degree above 1, outermost first. What a rank sends, with a = tokens/cp * width * number_bytes and layers a stage:
///   tp: 4 all-reduces a layer of a; cp: keys and values of the whole sequence round the ring, forward and twice backward;
///   ep: 4 all-to-alls a layer of a; pp: a to the next stage; dp_shard and dp_replicate: an all-reduce of the rank's own gradients, or under
///   ZeRO-3 two gathers and a reduction of them, replicas reducing only their shard.
/// `given`: bytes a rank sends in a step, by degree ("tp"), instead of these. Throws bad input for a degree that the mesh hasn't.
[[nodiscard]] RankTraffic placement_traffic(const Strategy& strategy, const TransformerStep& step, const std::map<std::string, double>& given = {});

/// The same of a schedule's own operations, added up by group.
[[nodiscard]] RankTraffic placement_traffic(const Schedule& schedule);

}  // namespace wirewise
