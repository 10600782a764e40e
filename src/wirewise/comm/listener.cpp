// Sockets by hand, because libtorch's store binds all interfaces, keeps trying names that don't exist, and logs every refused attempt.
#include "wirewise/comm/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"

namespace wirewise {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr auto kResolverPatience = std::chrono::seconds(5);
constexpr milliseconds kFirstRetry{10};
constexpr milliseconds kLastRetry{500};

std::string system_message(int error) { return std::generic_category().message(error); }

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// getaddrinfo for a TCP socket; on failure `error` holds its code and the list is empty.
AddressList look_up(const std::string& host, int flags, int& error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  return {error == 0 ? found : nullptr, &freeaddrinfo};
}

std::string numeric(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = {};
  if (getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text;
}

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

SocketAddress socket_address(const std::string& address, std::uint16_t port) {
  int error = 0;
  const AddressList found = look_up(address, AI_NUMERICHOST, error);
  if (!found) throw bad_input("'" + address + "' is not a numeric address: " + gai_strerror(error) + ".");
  SocketAddress result;
  std::memcpy(&result.storage, found->ai_addr, found->ai_addrlen);
  result.length = found->ai_addrlen;
  if (found->ai_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&result.storage)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&result.storage)->sin_port = htons(port);
  }
  return result;
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return value_; }
  [[nodiscard]] int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

std::uint16_t port_of(int descriptor) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&bound), &length) != 0) return 0;
  const in_port_t port = bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                                                     : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port;
  return ntohs(port);
}

// Returns an open listening socket, or -1 with errno set.
int try_listen(const SocketAddress& address) {
  Descriptor descriptor(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (descriptor.get() < 0) return -1;
  const int on = 1;
  // Without this, the port of a run that just ended would be refused for a minute.
  setsockopt(descriptor.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(descriptor.get(), address.get(), address.length) != 0) return -1;
  if (listen(descriptor.get(), SOMAXCONN) != 0) return -1;
  return descriptor.release();
}

// The socket inode that listens on `port`, from the kernel's table; empty when none shows.
std::string listening_inode(const char* table, std::uint16_t port) {
  constexpr int kListenState = 0x0A;
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);  // headings
  while (std::getline(file, line)) {
    // sl local_address remote_address st tx:rx tr:tm retransmits uid timeout inode …; addresses are hexadecimal ip:port
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
    const auto colon = local.rfind(':');
    if (!fields || colon == std::string::npos) continue;
    if (std::stoi(state, nullptr, 16) == kListenState && std::stoul(local.substr(colon + 1), nullptr, 16) == port) return inode;
  }
  return {};
}

// "process 4242 (python)" where this user may see it, else what usually holds such a port.
std::string holder_of(std::uint16_t port) {
  const std::string unknown = "another job on this host, or a process left by an earlier run";
  std::string inode = listening_inode("/proc/net/tcp", port);
  if (inode.empty()) inode = listening_inode("/proc/net/tcp6", port);
  if (inode.empty()) return unknown;
  namespace fs = std::filesystem;
  const std::string wanted = "socket:[" + inode + "]";
  std::error_code ignored;
  for (const auto& process : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code denied;
    for (const auto& open : fs::directory_iterator(process.path() / "fd", denied)) {
      std::error_code gone;
      if (fs::read_symlink(open.path(), gone) != wanted) continue;
      std::string command;
      std::getline(std::ifstream(process.path() / "comm"), command);
      return "process " + pid + " (" + command + ")";
    }
  }
  return unknown;
}

std::uint16_t free_port(const std::string& address) {
  const Descriptor probe(try_listen(socket_address(address, 0)));
  return probe.get() < 0 ? std::uint16_t{0} : port_of(probe.get());
}

// 0 when connected, else errno.
int try_connect(const SocketAddress& address, milliseconds patience) {
  const Descriptor descriptor(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (descriptor.get() < 0) return errno;
  if (connect(descriptor.get(), address.get(), address.length) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd ready{descriptor.get(), POLLOUT, 0};
  const int count = poll(&ready, 1, static_cast<int>(patience.count()));
  if (count < 0) return errno;
  if (count == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(descriptor.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

}  // namespace

std::string to_string(const Endpoint& endpoint) {
  const bool is_ipv6 = endpoint.host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

std::vector<std::string> resolve(const std::string& host, const std::string& setting) {
  const auto deadline = Clock::now() + kResolverPatience;
  int error = 0;
  AddressList found = look_up(host, 0, error);
  while (error == EAI_AGAIN && Clock::now() < deadline) {
    std::this_thread::sleep_for(kLastRetry);
    found = look_up(host, 0, error);
  }
  if (!found) {
    throw bad_input(setting + " names the host '" + host + "', which can't be resolved: " + gai_strerror(error) + ".",
                    "Set it to a name or address that every rank can resolve; 127.0.0.1 when all ranks are on one host.");
  }
  std::vector<std::string> result;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
      if (entry->ai_family != family) continue;
      const std::string text = numeric(entry->ai_addr, entry->ai_addrlen);
      if (!text.empty() && std::find(result.begin(), result.end(), text) == result.end()) result.push_back(text);
    }
  }
  return result;
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

std::vector<std::string> reachable_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<std::string> result;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    result.push_back(numeric(entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)));
  }
  return result;
}

Listener::Listener(const std::string& address, std::uint16_t port, const std::string& setting) {
  descriptor_ = try_listen(socket_address(address, port));
  if (descriptor_ >= 0) {
    port_ = port_of(descriptor_);
    return;
  }
  const int error = errno;
  const std::string where = to_string(Endpoint{address, port});
  if (error == EADDRINUSE) {
    const std::uint16_t other = free_port(address);
    throw bad_input("Port " + std::to_string(port) + " on " + address + " (" + where + ") is in use by " + holder_of(port) + ".",
                    "Set " + setting + " to another port" + (other != 0 ? " (" + std::to_string(other) + " is free now)" : "") +
                        ", or let the launcher choose one: port 0.");
  }
  if (error == EADDRNOTAVAIL) {
    const std::string own = join(reachable_addresses(), ", ");
    throw bad_input("Rank 0 can't listen on " + where + ": no interface of its host has that address.",
                    "Rank 0 must run on the host that MASTER_ADDR names; this host has " + (own.empty() ? "only loopback" : own) + ".");
  }
  throw bad_input("Rank 0 can't listen on " + where + ": " + system_message(error) + ".",
                  error == EACCES ? "Ports below 1024 need privileges: set " + setting + " to a higher one." : std::string());
}

Listener::~Listener() {
  if (descriptor_ >= 0) close(descriptor_);
}

int Listener::release() noexcept { return std::exchange(descriptor_, -1); }

std::string wait_for_listener(const std::vector<std::string>& addresses, std::uint16_t port, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  // Ranks that start together must not knock together.
  std::minstd_rand random(static_cast<unsigned>(getpid()));
  milliseconds pause = kFirstRetry;
  for (;;) {
    std::vector<std::string> refusals;
    for (const std::string& address : addresses) {
      const auto left = std::max(milliseconds(1), std::chrono::ceil<milliseconds>(deadline - Clock::now()));
      const int error = try_connect(socket_address(address, port), std::min(left, milliseconds(5000)));
      if (error == 0) return address;
      refusals.push_back(to_string(Endpoint{address, port}) + ": " + system_message(error));
    }
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    if (left <= milliseconds(0)) {
      throw Error(ErrorKind::kTimeout,
                  "Rank 0's store didn't answer within " + std::to_string(timeout.count()) + " ms (" + join(refusals, "; ") + ").",
                  "Rank 0 is missing: see whether it started and what it said, and that no firewall is between.");
    }
    const milliseconds jitter(random() % (static_cast<unsigned>(pause.count()) / 2 + 1));
    std::this_thread::sleep_for(std::min(left, pause + jitter));
    pause = std::min(pause * 2, kLastRetry);
  }
}

}  // namespace wirewise
