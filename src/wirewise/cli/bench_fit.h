// `wirewise bench --fit FILE`: what each class of links among the ranks costs, measured by messages and kept in a description of the
// cluster.
#pragma once

#include <string>
#include <vector>

#include "wirewise/base/units.h"
#include "wirewise/comm/communicator.h"

namespace wirewise::bench {

struct FitOptions {
  std::string file;
  std::vector<Bytes> sizes;
  bool json = false;
};

inline constexpr const char* kFitSizes = "8,128,1K,8K,64K,256K,1M,4M,16M";

/// Collective. Rank 0 writes the file and prints. Returns the exit code: on ranks other than 0 also of what went wrong on rank 0 before
/// anything was measured.
[[nodiscard]] int fit_links(Communicator& communicator, const FitOptions& options);

}  // namespace wirewise::bench
