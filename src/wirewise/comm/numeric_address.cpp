#include "wirewise/comm/numeric_address.h"

#include <netdb.h>

#include <cstring>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"

namespace wirewise::comm {

SocketAddress socket_address(const std::string& address, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    throw bad_input("'" + printable(address) + "' is not a numeric address.");
  }
  SocketAddress result;
  std::memcpy(&result.storage, found->ai_addr, found->ai_addrlen);
  result.length = found->ai_addrlen;
  ::freeaddrinfo(found);
  return result;
}

}  // namespace wirewise::comm
