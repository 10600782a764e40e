// An address as numbers and a port, as the socket calls take it: names are never looked up here.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

namespace wirewise::comm {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] int family() const { return storage.ss_family; }
};

/// IPv4 or IPv6. Throws bad input for what is no numeric address.
[[nodiscard]] SocketAddress socket_address(const std::string& address, std::uint16_t port);

}  // namespace wirewise::comm
