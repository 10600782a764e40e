// A kind of host as data/hosts/*.toml describes it: NUMA nodes, PCIe, GPUs, NICs and NVLinks, ready to be copied into a graph many times.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wirewise/wiring/settings.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise {

struct HostTemplate {
  std::string name, about;
  std::vector<std::string> sources;
  Wiring wiring;            // the host is device 0, and all are of host 0
  std::vector<int> ports;   // NICs that the network joins, in order; -1: one that was taken out, whose place stays empty
  std::string port_class;   // what their ports are, a class of links.toml; empty where there is no NIC
  int domain_hosts = 0;     // hosts whose GPUs one NVSwitch outside of them joins; 0: none
  bool domain_nvls = false;
  std::vector<Link> domain;  // `from` a GPU, to that NVSwitch
};

/// Reads one description of a host. Throws bad input with its place.
[[nodiscard]] HostTemplate read_host_template(Settings& settings, std::string name);
/// The one that data/hosts holds under this name. Throws bad input with the nearest name.
[[nodiscard]] HostTemplate shipped_host(std::string_view name);

}  // namespace wirewise
