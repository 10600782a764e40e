// Which network interface a job's traffic between hosts takes. A person says it (WIREWISE_NET, or the variables that NCCL and Gloo read);
// else the interface that leads to MASTER_ADDR, else the fastest of those that are fit for it. The choice is a pure function of what the
// host shows, so that its rules can be tested without the hardware.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace wirewise::comm {

/// The interface a rank uses for its peers on other hosts.
struct NetworkInterface {
  std::string name;               // "eth0"
  std::string address;            // numeric, IPv4 or IPv6: what peers connect to
  std::string reason;             // why this one, for the log: "it leads to MASTER_ADDR"
  std::vector<std::string> rdma;  // its RDMA ports as UCX names them ("mlx5_0:1"); empty without any
  bool rdma_only = false;         // a person named an RDMA port: nothing else may carry data
};

/// An interface as the host shows it.
struct HostInterface {
  std::string name;
  int index = 0;
  bool up = false;  // and has a carrier
  bool loopback = false;
  long speed = -1;                     // Mbit/s; -1: unknown
  std::vector<std::string> addresses;  // numeric, IPv4 first
  std::vector<std::string> rdma;       // "mlx5_0:1"
};

/// What the choice depends on besides the interfaces.
struct InterfaceWishes {
  std::function<const char*(const char*)> environment;  // like getenv
  std::string address_to_master;                        // this host's address as MASTER_ADDR's host sees it; empty: unknown
  std::vector<std::string> rdma_ports;                  // all of this host, also those without an interface
};

/// Chooses. Throws bad input when a wanted interface doesn't exist, has no address or is down, or when none is fit.
[[nodiscard]] NetworkInterface choose_interface(const std::vector<HostInterface>& interfaces, const InterfaceWishes& wishes);

/// The interfaces of this host (this network namespace).
[[nodiscard]] std::vector<HostInterface> host_interfaces();

/// Chooses for this process, from its environment.
[[nodiscard]] NetworkInterface find_interface();
/// The same, and logs the choice with its reason.
[[nodiscard]] NetworkInterface network_interface();

}  // namespace wirewise::comm
