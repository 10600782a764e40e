// The one place that looks at this machine for `wirewise doctor`.
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/doctor_machine.h"
#include "wirewise/comm/listener.h"
#include "wirewise/wiring/sysfs.h"

namespace wirewise {
namespace {

constexpr std::array kVariables = {"NCCL_P2P_DISABLE",   "NCCL_IB_DISABLE",  "NCCL_SHM_DISABLE", "NCCL_P2P_LEVEL",       "NCCL_NET_GDR_LEVEL",      "NCCL_NVLS_ENABLE",
                                   "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_ALGO",      "NCCL_PROTO",           "NCCL_DEBUG",              "NCCL_MAX_NCHANNELS",
                                   "NCCL_BUFFSIZE",      "NCCL_LAUNCH_MODE", "OMP_NUM_THREADS",  "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING",    "TORCH_DISTRIBUTED_DEBUG",
                                   "WIREWISE_NET",       "MASTER_ADDR",      "MASTER_PORT",      "NCCL_IB_HCA"};

void look_at_memory(MachineFacts& facts, const Places& places) {
  struct statvfs shm {};
  const auto mount = places.root / "dev/shm";
  if (::statvfs(mount.c_str(), &shm) == 0) {
    facts.shm_size = static_cast<Bytes>(shm.f_blocks) * shm.f_frsize;
    facts.shm_free = static_cast<Bytes>(shm.f_bavail) * shm.f_frsize;
    facts.shm_writable = ::access(mount.c_str(), W_OK | X_OK) == 0;
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) facts.memlock = limit.rlim_cur;
}

void look_at_network(MachineFacts& facts) {
  try {
    facts.own_addresses = resolve(facts.machine.host, "the host's name");
  } catch (const Error&) {  // an empty list says it
  }
  facts.interfaces = comm::host_interfaces();
  comm::InterfaceWishes wishes;
  wishes.environment = [](const char* name) { return std::getenv(name); };
  for (const RdmaPort& port : facts.machine.rdma) wishes.rdma_ports.push_back(port.device + ":" + std::to_string(port.port));
  try {
    facts.chosen = comm::choose_interface(facts.interfaces, wishes);
  } catch (const Error& error) {
    facts.choice_failure = error.what();
  }
}

/// Tries the port where rank 0 would listen, where that is this host and no rank runs yet.
void look_at_port(MachineFacts& facts) {
  if (std::getenv("RANK") != nullptr || std::getenv("SLURM_STEP_ID") != nullptr) return;
  const std::string port = facts.variables.contains("MASTER_PORT") ? facts.variables["MASTER_PORT"] : "29500";
  const auto number = parse_integer(port);
  if (!number || *number < 1 || *number > 65535) {
    facts.port_failure = "MASTER_PORT=" + port + " is no port.";
    facts.port_remedy = "Ports are 1 to 65535; those below 1024 need root.";
    return;
  }
  std::string address = "127.0.0.1";
  if (facts.variables.contains("MASTER_ADDR")) {
    try {
      address = resolve(facts.variables["MASTER_ADDR"], "MASTER_ADDR").front();
    } catch (const Error& error) {
      facts.port_failure = error.sentence();
      facts.port_remedy = error.remedy();
      return;
    }
    const auto mine = [&](const comm::HostInterface& interface) {
      return std::find(interface.addresses.begin(), interface.addresses.end(), address) != interface.addresses.end();
    };
    if (!is_loopback(address) && std::none_of(facts.interfaces.begin(), facts.interfaces.end(), mine)) return;  // another host's
  }
  try {
    const Listener listener(address, static_cast<std::uint16_t>(*number), "MASTER_PORT");
  } catch (const Error& error) {
    facts.port_failure = error.sentence();
    facts.port_remedy = error.remedy();
  }
}

}  // namespace

MachineFacts gather_machine_facts(const Places& places, int ranks) {
  MachineFacts facts;
  facts.machine = inspect_machine(places);
  facts.reading = wire(facts.machine);
  facts.ranks = ranks;
  for (const char* name : kVariables) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != 0) facts.variables[name] = value;
  }
  facts.container = sysfs::exists(places.root / ".dockerenv") || sysfs::exists(places.root / "run/.containerenv") || std::getenv("KUBERNETES_SERVICE_HOST") != nullptr ||
                    std::getenv("container") != nullptr;
  facts.cores = std::max(1, static_cast<int>(allowed_cpus().size()));
  facts.limits = cgroup_limits(places.root);
  look_at_memory(facts, places);
  look_at_network(facts);
  look_at_port(facts);
  return facts;
}

}  // namespace wirewise
