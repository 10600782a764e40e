// Whether this host has IPv6, asked of the system alone: what the tested code can't do there is its fault.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace wirewise::testing {

/// Whether a socket may take the loopback's address of IPv6.
inline bool has_ipv6() {
  const int descriptor = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return false;
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const bool bound = ::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(descriptor);
  return bound;
}

}  // namespace wirewise::testing
