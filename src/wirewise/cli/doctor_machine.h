// `wirewise doctor`: what is wrong with a machine for distributed training. Facts are gathered in one place; each check is a pure function
// of them, so that it can be tried on machines that aren't there.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/base/cgroup.h"
#include "wirewise/cli/doctor.h"
#include "wirewise/comm/network_interface.h"
#include "wirewise/wiring/discover.h"

namespace wirewise {

struct MachineFacts {
  Machine machine;
  Reading reading;
  int ranks = 0;                                 // that are meant to run here; 0: not said
  std::map<std::string, std::string> variables;  // those that the checks know
  bool container = false;
  std::optional<Bytes> shm_size, shm_free;       // of /dev/shm; none: there is no such mount
  bool shm_writable = true;                      // by this process
  std::optional<Bytes> memlock;                  // none: unlimited
  std::vector<std::string> own_addresses;        // what the host's own name resolves to
  std::vector<comm::HostInterface> interfaces;
  std::optional<comm::NetworkInterface> chosen;
  std::string choice_failure;                    // why none could be chosen
  int cores = 1;                                 // by affinity
  CgroupLimits limits;
  std::string port_failure;                      // why MASTER_PORT can't be listened on
  std::string port_remedy;
};

[[nodiscard]] MachineFacts gather_machine_facts(const Places& places, int ranks);

/// Whether an interface by its name joins containers or virtual machines to their host, and leads to no other one: "docker0", "veth12".
[[nodiscard]] bool is_host_bridge(std::string_view interface) noexcept;

/// All checks, worst first.
[[nodiscard]] std::vector<Finding> diagnose_machine(const MachineFacts& facts);

// One subject each.
[[nodiscard]] std::vector<Finding> check_shared_memory(const MachineFacts& facts);
[[nodiscard]] std::vector<Finding> check_memlock(const MachineFacts& facts);
[[nodiscard]] std::vector<Finding> check_host_name(const MachineFacts& facts);
[[nodiscard]] std::vector<Finding> check_interfaces(const MachineFacts& facts);
[[nodiscard]] std::vector<Finding> check_cores(const MachineFacts& facts);
[[nodiscard]] std::vector<Finding> check_ports(const MachineFacts& facts);
[[nodiscard]] std::vector<Finding> check_variables(const MachineFacts& facts);
[[nodiscard]] std::vector<Finding> check_pcie_links(const MachineFacts& facts);
[[nodiscard]] std::vector<Finding> check_peer_to_peer(const MachineFacts& facts);
[[nodiscard]] std::vector<Finding> check_rdma(const MachineFacts& facts);
[[nodiscard]] std::vector<Finding> check_visible_gpus(const MachineFacts& facts);
/// What a graph alone shows: GPUs that differ from their peers, NICs far from their GPUs.
[[nodiscard]] std::vector<Finding> check_wiring(const Wiring& wiring);
/// The same of what `file` describes, with what its reader noted, worst first.
[[nodiscard]] std::vector<Finding> check_reading(const Reading& reading, const std::string& file);

}  // namespace wirewise
