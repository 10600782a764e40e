// Variables by which a rank, or all ranks of a host, keep to their GPUs and NICs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "wirewise/plan/rank_places.h"

namespace wirewise {

using NamedValues = std::vector<std::pair<std::string, std::string>>;
/// Of one rank: it sees its own GPU only.
[[nodiscard]] NamedValues variables_of_rank(const RankPlace& place);
/// Of all ranks of a host, which local rank i takes the i-th of.
[[nodiscard]] NamedValues variables_of_host(const std::vector<const RankPlace*>& ranks);

}  // namespace wirewise
