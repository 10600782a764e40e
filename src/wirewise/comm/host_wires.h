// The wires between hosts: UCX for the bytes, TCP channels for the news, both over the interface that was chosen for the job.
#pragma once

#include <memory>

#include "wirewise/comm/wires.h"

namespace wirewise::comm {

/// Throws BadInput when no interface is fit, Failed when UCX is missing.
[[nodiscard]] std::unique_ptr<WireEnd> make_host_end();

}  // namespace wirewise::comm
