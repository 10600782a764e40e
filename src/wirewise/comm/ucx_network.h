// UCX as the wire between hosts: TCP everywhere, RDMA where the interface has it. Its shared-memory transports are never used: ranks of
// one host meet in our own memory, and ranks that are told to be different hosts must not meet there at all.
#pragma once

#include <memory>
#include <string>

#include "wirewise/comm/network.h"
#include "wirewise/comm/network_interface.h"

namespace wirewise::comm {

/// One rank's wires over `interface`. Throws Failed when this build has no UCX, or the library isn't installed (naming it and its
/// package), is too old, or can't use the interface.
///
/// A rank that dies fails the transfers with it as PeerLost as soon as its connection closes. A transfer that is let go while its bytes
/// are under way closes the connection with that peer, since UCX can't take it back: later transfers with it fail.
[[nodiscard]] std::unique_ptr<NetworkEnd> make_ucx_end(const NetworkInterface& interface);

/// Empty when make_ucx_end can work here; else the sentence that says why it can't.
[[nodiscard]] std::string why_no_ucx();

/// The version of the UCX that runs ("1.13.1"); empty without it.
[[nodiscard]] std::string ucx_version();

}  // namespace wirewise::comm
