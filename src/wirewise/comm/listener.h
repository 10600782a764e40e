// The listening socket of the rendezvous store: bound to the one address that MASTER_ADDR means, never to all interfaces; and errors
// that say which address and port failed, who holds the port, and which one is free.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace wirewise {

/// Where a store listens. `host` is a name or a literal; an IPv6 literal carries no brackets.
struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
};

/// "host:port", with brackets round an IPv6 literal.
[[nodiscard]] std::string to_string(const Endpoint& endpoint);

/// The numeric addresses of a host, IPv4 first. Throws bad input naming `host` when it can't be resolved; a resolver that asks to try
/// again is asked for up to 5 s. `setting` is what the host was read from, for the error: "MASTER_ADDR".
[[nodiscard]] std::vector<std::string> resolve(const std::string& host, const std::string& setting);

/// True for 127.0.0.0/8 and ::1 in numeric form.
[[nodiscard]] bool is_loopback(const std::string& address);

/// This host's addresses that others may reach, in numeric form: what a user could set MASTER_ADDR to.
[[nodiscard]] std::vector<std::string> reachable_addresses();

/// An open listening socket. Closes it unless released.
class Listener {
 public:
  /// Listens on `address` (numeric); port 0 takes a free one. Throws bad input when the port is in use (naming address, port, its
  /// holder where the system shows it, and a free port), not permitted, or when the address isn't this host's. `setting` is where the
  /// port was read from, for the error: "MASTER_PORT".
  Listener(const std::string& address, std::uint16_t port, const std::string& setting);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Hands the descriptor over.
  [[nodiscard]] int release() noexcept;

 private:
  int descriptor_ = -1;
  std::uint16_t port_ = 0;
};

/// Waits until something accepts a connection at one of `addresses` and returns that address. Throws kTimeout that names the addresses,
/// the port and the last refusal.
[[nodiscard]] std::string wait_for_listener(const std::vector<std::string>& addresses, std::uint16_t port,
                                            std::chrono::milliseconds timeout);

}  // namespace wirewise
