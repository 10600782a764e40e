// What this host shows of its network interfaces: getifaddrs for addresses, /sys for speed and RDMA, and a connected datagram socket
// (which sends nothing) for the route to MASTER_ADDR.
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "wirewise/base/error.h"
#include "wirewise/base/log.h"
#include "wirewise/base/text.h"
#include "wirewise/comm/listener.h"
#include "wirewise/comm/network_interface.h"
#include "wirewise/comm/unique_fd.h"

namespace wirewise::comm {
namespace {

namespace fs = std::filesystem;

std::string numeric(const sockaddr* address) {
  const socklen_t length = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST] = {};
  if (::getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return {};
  const std::string whole = text;
  return whole.substr(0, whole.find('%'));  // the scope of a link-local address means nothing elsewhere
}

long number_in(const fs::path& file) {
  std::ifstream in(file);
  long value = -1;
  return in >> value ? value : -1;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// RDMA ports that carry this interface: of its device, the port that its number says.
std::vector<std::string> rdma_of(const std::string& interface) {
  const fs::path folder = fs::path("/sys/class/net") / interface;
  std::vector<std::string> ports;
  for (const std::string& device : names_in(folder / "device" / "infiniband")) {
    ports.push_back(device + ":" + std::to_string(std::max(0L, number_in(folder / "dev_port")) + 1));
  }
  return ports;
}

std::vector<std::string> rdma_ports() {
  std::vector<std::string> ports;
  const fs::path all = "/sys/class/infiniband";
  for (const std::string& device : names_in(all)) {
    for (const std::string& port : names_in(all / device / "ports")) ports.push_back(device + ":" + port);
  }
  return ports;
}

/// The address of this host from which packets to `host` leave; empty when unknown or loopback.
std::string address_towards(const std::string& host) {
  std::vector<std::string> targets;
  try {
    targets = resolve(host, "MASTER_ADDR");
  } catch (const Error&) {
    return {};  // said where MASTER_ADDR is used
  }
  for (const std::string& target : targets) {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(target.c_str(), "9", &hints, &found) != 0) continue;
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
    const UniqueFd probe(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!probe.valid() || ::connect(probe.get(), found->ai_addr, found->ai_addrlen) != 0) continue;
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    if (::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&local), &length) != 0) continue;
    std::string address = numeric(reinterpret_cast<const sockaddr*>(&local));
    if (!address.empty() && !is_loopback(address)) return address;
  }
  return {};
}

}  // namespace

std::vector<HostInterface> host_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<HostInterface> interfaces;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const std::string name = entry->ifa_name;
    auto known = std::find_if(interfaces.begin(), interfaces.end(), [&](const HostInterface& i) { return i.name == name; });
    if (known == interfaces.end()) {
      HostInterface interface;
      interface.name = name;
      interface.index = static_cast<int>(::if_nametoindex(name.c_str()));
      interface.up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
      interface.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
      interface.speed = number_in(fs::path("/sys/class/net") / name / "speed");
      interface.rdma = rdma_of(name);
      interfaces.push_back(std::move(interface));
      known = interfaces.end() - 1;
    }
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    std::string address = numeric(entry->ifa_addr);
    if (!address.empty()) known->addresses.push_back(std::move(address));
  }
  for (HostInterface& interface : interfaces) {
    std::stable_partition(interface.addresses.begin(), interface.addresses.end(),
                          [](const std::string& address) { return address.find(':') == std::string::npos; });
  }
  return interfaces;
}

NetworkInterface find_interface() {
  InterfaceWishes wishes;
  wishes.environment = [](const char* name) { return std::getenv(name); };
  wishes.rdma_ports = rdma_ports();
  if (const char* const master = std::getenv("MASTER_ADDR"); master != nullptr && *master != 0)
    wishes.address_to_master = address_towards(master);
  return choose_interface(host_interfaces(), wishes);
}

NetworkInterface network_interface() {
  NetworkInterface chosen = find_interface();
  log_info("Traffic between hosts goes over " + printable(chosen.name) + " (" + chosen.address +
           (chosen.rdma.empty() ? "" : ", RDMA " + join(chosen.rdma, ", ")) + "): " + chosen.reason + ".");
  return chosen;
}

}  // namespace wirewise::comm
