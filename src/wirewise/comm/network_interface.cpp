// The choice itself; what the host shows is read in host_interfaces.cpp.
#include "wirewise/comm/network_interface.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <tuple>

#include "wirewise/base/error.h"
#include "wirewise/base/nearest.h"
#include "wirewise/base/text.h"

namespace wirewise::comm {
namespace {

using Interfaces = std::vector<const HostInterface*>;

constexpr const char* kOwn = "WIREWISE_NET";
constexpr const char* kNccl = "NCCL_SOCKET_IFNAME";
constexpr const char* kGloo = "GLOO_SOCKET_IFNAME";

// How the interfaces that join containers and virtual machines to their host are called.
constexpr std::array<std::string_view, 13> kVirtual = {"docker", "veth",   "br-",   "virbr", "vnet",   "cni",      "flannel",
                                                       "cali",   "podman", "lxcbr", "lxdbr", "cilium", "tailscale"};

bool is_virtual(const HostInterface& interface) {
  return std::any_of(kVirtual.begin(), kVirtual.end(), [&](std::string_view prefix) { return interface.name.starts_with(prefix); });
}

bool is_ipv6(const std::string& address) { return address.find(':') != std::string::npos; }

bool is_link_local(const std::string& address) {
  in6_addr six{};
  if (::inet_pton(AF_INET6, address.c_str(), &six) == 1) return six.s6_addr[0] == 0xfe && (six.s6_addr[1] & 0xc0) == 0x80;
  return address.starts_with("169.254.");
}

/// The address that peers are told. Of the family that leads to the master, where there is one; link-local IPv4 only when nothing else is
/// there, IPv6 never: it means nothing without the peer's own interface.
std::string address_of(const HostInterface& interface, const InterfaceWishes& wishes, bool link_local) {
  const std::string& master = wishes.address_to_master;
  const std::vector<std::string>& all = interface.addresses;
  if (!master.empty() && std::find(all.begin(), all.end(), master) != all.end()) return master;
  std::string best;
  for (const std::string& address : all) {
    if (is_link_local(address) && (!link_local || is_ipv6(address))) continue;
    if (best.empty() || (is_link_local(best) && !is_link_local(address))) best = address;
    if (!master.empty() && !is_link_local(address) && is_ipv6(best) != is_ipv6(master) && is_ipv6(address) == is_ipv6(master))
      best = address;
  }
  return best;
}

bool leads_to_master(const HostInterface& interface, const InterfaceWishes& wishes) {
  return !wishes.address_to_master.empty() && !interface.loopback &&
         std::find(interface.addresses.begin(), interface.addresses.end(), wishes.address_to_master) != interface.addresses.end();
}

/// Best first.
void rank(Interfaces& interfaces, const InterfaceWishes& wishes) {
  const auto key = [&](const HostInterface* interface) {
    return std::tuple(!leads_to_master(*interface, wishes), interface->rdma.empty(), -interface->speed, interface->index);
  };
  std::stable_sort(interfaces.begin(), interfaces.end(), [&](const HostInterface* a, const HostInterface* b) { return key(a) < key(b); });
}

/// Why the first of `ranked` is first.
std::string reason_of(const Interfaces& ranked, const InterfaceWishes& wishes) {
  const HostInterface& first = *ranked.front();
  if (leads_to_master(first, wishes)) return "it leads to MASTER_ADDR";
  if (ranked.size() == 1) return "it is the only one fit for it";
  const HostInterface& second = *ranked[1];
  if (first.rdma.empty() != second.rdma.empty()) return "it has RDMA (" + join(first.rdma, ", ") + ")";
  if (first.speed > second.speed) return "it is the fastest (" + std::to_string(first.speed) + " Mbit/s)";
  return "it comes first of " + std::to_string(ranked.size()) + " that are fit for it";
}

std::string listing(const std::vector<HostInterface>& interfaces) {
  std::vector<std::string> parts;
  for (const HostInterface& interface : interfaces) {
    parts.push_back(printable(interface.name) +
                    (interface.up ? interface.addresses.empty() ? " (no address)" : " (" + interface.addresses[0] + ")" : " (down)"));
  }
  return parts.empty() ? "none" : join(parts, ", ");
}

NetworkInterface result_of(const HostInterface& interface, std::string address, std::string reason) {
  return {interface.name, std::move(address), std::move(reason), interface.rdma, false};
}

[[noreturn]] void refuse_unknown(const char* variable, const std::string& wanted, const std::vector<HostInterface>& interfaces,
                                 const InterfaceWishes& wishes) {
  std::vector<std::string> names;
  for (const HostInterface& interface : interfaces) names.push_back(interface.name);
  for (const std::string& port : wishes.rdma_ports) names.push_back(port);
  const std::optional<std::string> near = nearest(wanted, names);
  throw bad_input(std::string(variable) + "=" + printable(wanted) + " names no network interface of this host.",
                  (near ? "Did you mean " + printable(*near) + "? " : std::string()) + "It has " + listing(interfaces) +
                      (wishes.rdma_ports.empty() ? "" : "; RDMA ports " + join(wishes.rdma_ports, ", ")) + ".");
}

/// The first usable one of `wanted`; throws when there are some and none is.
std::optional<NetworkInterface> first_usable(const Interfaces& wanted, const InterfaceWishes& wishes, const std::string& reason,
                                             const std::string& setting) {
  for (const HostInterface* interface : wanted) {
    std::string address = address_of(*interface, wishes, true);
    if (interface->up && !address.empty()) return result_of(*interface, std::move(address), reason);
  }
  if (wanted.empty()) return std::nullopt;
  const HostInterface& first = *wanted.front();
  throw bad_input(setting + " names the network interface " + printable(first.name) + ", which " +
                      (!first.up                 ? "is down."
                       : first.addresses.empty() ? "has no address."
                                                 : "has no address that other hosts can use."),
                  "Bring it up and give it an address, or name another.");
}

NetworkInterface automatic(const std::vector<HostInterface>& interfaces, const InterfaceWishes& wishes, const std::string& excluded) {
  Interfaces fit;
  Interfaces virtuals;
  for (const HostInterface& interface : interfaces) {
    if (!interface.up || interface.loopback || address_of(interface, wishes, false).empty()) continue;
    (is_virtual(interface) ? virtuals : fit).push_back(&interface);
  }
  const bool only_virtual = fit.empty();
  Interfaces& ranked = only_virtual ? virtuals : fit;
  if (ranked.empty()) {
    throw bad_input(
        "This host has no network interface that ranks on other hosts can reach" + excluded + ": it has " + listing(interfaces) + ".",
        std::string("Bring one up, or name one with ") + kOwn + ".");
  }
  rank(ranked, wishes);
  std::string reason = reason_of(ranked, wishes);
  if (only_virtual) reason += " (a virtual one: there is no other)";
  return result_of(*ranked.front(), address_of(*ranked.front(), wishes, false), reason + excluded);
}

std::optional<NetworkInterface> by_exact_names(const char* variable, const std::string& value,
                                               const std::vector<HostInterface>& interfaces, const InterfaceWishes& wishes) {
  Interfaces wanted;
  for (const std::string& name : split(value, ',')) {
    for (const HostInterface& interface : interfaces) {
      const bool has_address = std::find(interface.addresses.begin(), interface.addresses.end(), name) != interface.addresses.end();
      if (interface.name == name || has_address) wanted.push_back(&interface);
    }
  }
  const std::string setting = std::string(variable) + "=" + printable(value);
  auto found = first_usable(wanted, wishes, setting + " names it", setting);
  if (!found) return std::nullopt;
  for (const std::string& name : split(value, ',')) {  // named by address: that one
    for (const HostInterface* interface : wanted) {
      if (interface->name != found->name) continue;
      if (std::find(interface->addresses.begin(), interface->addresses.end(), name) != interface->addresses.end()) found->address = name;
    }
  }
  return found;
}

/// "mlx5_0:1", or "mlx5_0" for its first port.
std::optional<NetworkInterface> by_rdma_port(const std::string& value, const std::vector<HostInterface>& interfaces,
                                             const InterfaceWishes& wishes) {
  for (const std::string& name : split(value, ',')) {
    for (const std::string& port : wishes.rdma_ports) {
      if (port != name && port != name + ":1") continue;
      const auto has_port = [&](const HostInterface& i) { return i.up && std::find(i.rdma.begin(), i.rdma.end(), port) != i.rdma.end(); };
      const auto owner = std::find_if(interfaces.begin(), interfaces.end(), has_port);
      const bool usable = owner != interfaces.end() && !address_of(*owner, wishes, true).empty();
      NetworkInterface result = usable ? result_of(*owner, address_of(*owner, wishes, true), {}) : automatic(interfaces, wishes, {});
      result.reason = std::string(kOwn) + "=" + printable(value) + " names the RDMA port " + port;
      result.rdma = {port};
      result.rdma_only = true;
      return result;
    }
  }
  return std::nullopt;
}

/// NCCL's syntax: a list of prefixes, "=" before it for exact names, "^" before that to exclude.
NetworkInterface by_nccl(const std::string& value, const std::vector<HostInterface>& interfaces, const InterfaceWishes& wishes) {
  std::string_view rest = value;
  const bool exclude = rest.starts_with('^');
  if (exclude) rest.remove_prefix(1);
  const bool exact = rest.starts_with('=');
  if (exact) rest.remove_prefix(1);
  const std::vector<std::string> names = split(rest, ',');
  const auto matches = [&](const HostInterface& interface, const std::string& name) {
    return !name.empty() && (exact ? interface.name == name : interface.name.starts_with(name));
  };
  const std::string setting = std::string(kNccl) + "=" + printable(value);
  if (exclude) {
    std::vector<HostInterface> left;
    for (const HostInterface& interface : interfaces) {
      if (std::none_of(names.begin(), names.end(), [&](const std::string& name) { return matches(interface, name); }))
        left.push_back(interface);
    }
    return automatic(left, wishes, " (without those that " + setting + " excludes)");
  }
  Interfaces wanted;
  for (const std::string& name : names) {
    Interfaces group;
    for (const HostInterface& interface : interfaces) {
      if (matches(interface, name)) group.push_back(&interface);
    }
    rank(group, wishes);
    wanted.insert(wanted.end(), group.begin(), group.end());
  }
  if (auto found = first_usable(wanted, wishes, setting + " names it", setting)) return *found;
  refuse_unknown(kNccl, std::string(rest), interfaces, wishes);
}

}  // namespace

NetworkInterface choose_interface(const std::vector<HostInterface>& interfaces, const InterfaceWishes& wishes) {
  const auto value_of = [&](const char* variable) {
    const char* const value = wishes.environment(variable);
    return value == nullptr ? std::string() : std::string(value);
  };
  if (const std::string own = value_of(kOwn); !own.empty()) {
    if (const auto port = by_rdma_port(own, interfaces, wishes)) return *port;
    if (const auto named = by_exact_names(kOwn, own, interfaces, wishes)) return *named;
    refuse_unknown(kOwn, own, interfaces, wishes);
  }
  if (const std::string nccl = value_of(kNccl); !nccl.empty()) return by_nccl(nccl, interfaces, wishes);
  if (const std::string gloo = value_of(kGloo); !gloo.empty()) {
    if (const auto named = by_exact_names(kGloo, gloo, interfaces, wishes)) return *named;
    refuse_unknown(kGloo, gloo, interfaces, wishes);
  }
  return automatic(interfaces, wishes, {});
}

}  // namespace wirewise::comm
