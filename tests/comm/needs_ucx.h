// Why tests over UCX can't run here.
#pragma once

#include <string>

#include "comm/ranks.h"
#include "wirewise/comm/ucx_network.h"

namespace wirewise::testing {

/// Empty where they can. Asked in a child: ranks are forked, and UCX must not have started its threads before.
inline std::string no_ucx_here() {
  if (kThreadSanitizer) return "UCX runs outside the thread sanitizer";
  return run_ranks(1, [](int) { return comm::why_no_ucx(); }).front().output;
}

}  // namespace wirewise::testing
