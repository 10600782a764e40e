// Checks of what is set up in software: memory, names, interfaces, cores, variables.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "wirewise/base/text.h"
#include "wirewise/cli/doctor_machine.h"
#include "wirewise/comm/listener.h"

namespace wirewise {
namespace {

constexpr Bytes kNcclSegment = 9'637'888;  // one of NCCL's shared segments; see docs/doctor.md

int likely_ranks(const MachineFacts& facts) {
  const int gpus = static_cast<int>(devices_of(facts.reading.wiring, DeviceKind::kGpu).size());
  return std::max({facts.ranks, gpus, 2});
}

std::string value_of(const MachineFacts& facts, const std::string& name) {
  const auto found = facts.variables.find(name);
  return found == facts.variables.end() ? std::string() : found->second;
}

/// Whether a list of protocols, or of those left out ("^LL,LL128"), is without LL128.
bool without_ll128(const std::string& protocols) {
  std::string list = lower_case(protocols);
  const bool left_out = list.starts_with('^');
  if (left_out) list.erase(0, 1);
  const std::vector<std::string> names = split(list, ',');
  return (std::find(names.begin(), names.end(), "ll128") != names.end()) == left_out;
}

/// Whether interfaces are named (not left out, as "^docker0,lo" does) and the first of them is a bridge of containers.
bool names_bridge(const std::string& interfaces) { return is_host_bridge(interfaces.starts_with('=') ? std::string_view(interfaces).substr(1) : std::string_view(interfaces)); }

/// Whether an interface that is no PCI device leads to no other host of a cluster, by its name. Bonds, VLANs and adapters of virtual machines
/// that aren't on PCI do lead there.
bool is_virtual(std::string_view interface) {
  static constexpr std::string_view kStarts[] = {"tun", "tap", "wg", "tailscale", "zt", "cali", "flannel", "cilium", "vxlan", "dummy", "ifb", "kube-", "nodelocaldns"};
  return is_host_bridge(interface) || std::any_of(std::begin(kStarts), std::end(kStarts), [&](std::string_view start) { return interface.starts_with(start); });
}

std::string counted(double count, const std::string& what) { return fmt::format("{:.3g} {}{}", count, what, count == 1 ? "" : "s"); }

}  // namespace

bool is_host_bridge(std::string_view interface) noexcept {
  static constexpr std::string_view kStarts[] = {"docker", "veth", "virbr", "vnet", "podman", "cni", "lxc", "lxd"};
  if (std::any_of(std::begin(kStarts), std::end(kStarts), [&](std::string_view start) { return interface.starts_with(start); })) return true;
  // Docker's networks are br- and digits; br-ex and the like lead outside.
  const std::string_view number = interface.starts_with("br-") ? interface.substr(3, interface.find_first_of(",:", 3) - 3) : std::string_view();
  return number.size() >= 6 && number.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::vector<Finding> check_shared_memory(const MachineFacts& facts) {
  const std::string fix = facts.container ? "Start the container with --shm-size=8g or --ipc=host (Kubernetes: an emptyDir of medium Memory at /dev/shm)."
                                          : "Make it larger: mount -o remount,size=8G /dev/shm, and the same in /etc/fstab.";
  if (!facts.shm_size) {
    return {{Severity::kWarning, "There is no /dev/shm.", "No file system is mounted there.", "NCCL, Gloo's and PyTorch's data loaders need it: mount -t tmpfs tmpfs /dev/shm."}};
  }
  if (!facts.shm_writable) {
    return {{Severity::kError, "/dev/shm can't be written.", "This process may create no files in /dev/shm: it is mounted read-only, or belongs to others.",
             "NCCL, Gloo's and PyTorch's data loaders need it: mount -o remount,rw,mode=1777 /dev/shm."}};
  }
  const auto ranks = static_cast<Bytes>(likely_ranks(facts));
  const Bytes free = facts.shm_free.value_or(*facts.shm_size);
  const Bytes needed = ranks * (ranks - 1) * kNcclSegment;
  const std::string evidence = fmt::format("The mount /dev/shm has {} free of {}.", format_bytes(free), format_bytes(*facts.shm_size));
  if (free < needed) {
    return {{Severity::kError, "/dev/shm is too small.",
             evidence + fmt::format(" NCCL takes segments of {} B there, one for each ordered pair of {} ranks that use it: {}. It then fails with \"No space left on device\".", kNcclSegment,
                                    ranks, format_bytes(needed)),
             fix}};
  }
  if (free < kGiB) {
    return {{Severity::kWarning, "/dev/shm is small.", evidence + " PyTorch's data loaders pass their batches through it. Wirewise itself keeps nothing there.", fix}};
  }
  return {};
}

std::vector<Finding> check_memlock(const MachineFacts& facts) {
  if (!facts.memlock || facts.machine.rdma.empty()) return {};
  const bool tight = *facts.memlock < kGiB;
  return {{tight ? Severity::kError : Severity::kInfo, fmt::format("The limit on locked memory is {}.", format_bytes(*facts.memlock)),
           fmt::format("RLIMIT_MEMLOCK of this process, on a host with RDMA ({}). RDMA locks every buffer that it sends.", facts.machine.rdma.front().device),
           facts.container ? "Start the container with --ulimit memlock=-1." : "Set memlock to unlimited in /etc/security/limits.conf, and LimitMEMLOCK=infinity for services such as slurmd."}};
}

std::vector<Finding> check_host_name(const MachineFacts& facts) {
  const std::string& name = facts.machine.host;
  if (facts.own_addresses.empty()) {
    return {{Severity::kWarning, "The host's own name can't be resolved.", "No address is known for " + name + ".",
             "Add it to /etc/hosts with an address that other hosts reach, or name addresses: MASTER_ADDR, WIREWISE_NET, GLOO_SOCKET_IFNAME."}};
  }
  if (!std::all_of(facts.own_addresses.begin(), facts.own_addresses.end(), is_loopback)) return {};
  return {{Severity::kWarning, "The host's own name resolves to itself alone.",
           name + " is " + join(facts.own_addresses, ", ") + ": ranks that tell their peers this name or address can't be reached from other hosts.",
           "Give it an address of the network in /etc/hosts, in place of " + join(facts.own_addresses, " and ") + ", or name the interface with WIREWISE_NET, NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME."}};
}

std::vector<Finding> check_interfaces(const MachineFacts& facts) {
  if (!facts.chosen) {
    return {{Severity::kWarning, "No network interface fit for other hosts.", facts.choice_failure, "This machine can train on its own; for more, bring an interface up or mend the variable."}};
  }
  std::vector<std::string> fit;
  for (const comm::HostInterface& interface : facts.interfaces) {
    const bool real = std::any_of(facts.machine.net.begin(), facts.machine.net.end(), [&](const NetDevice& net) { return net.name == interface.name && !net.pci.empty(); });
    if (interface.up && !interface.loopback && !interface.addresses.empty() && (real || !is_virtual(interface.name))) fit.push_back(interface.name + " (" + interface.addresses.front() + ")");
  }
  const bool named = !value_of(facts, "WIREWISE_NET").empty() || !value_of(facts, "NCCL_SOCKET_IFNAME").empty() || !value_of(facts, "GLOO_SOCKET_IFNAME").empty();
  if (fit.size() < 2 || named) return {};
  return {{Severity::kInfo, "Several network interfaces could carry the traffic between hosts.",
           join(fit, ", ") + ". Wirewise takes " + facts.chosen->name + ": " + facts.chosen->reason + ". Other libraries may choose another.",
           "Say which one: WIREWISE_NET=" + facts.chosen->name + ", NCCL_SOCKET_IFNAME==" + facts.chosen->name + ", GLOO_SOCKET_IFNAME=" + facts.chosen->name + "."}};
}

std::vector<Finding> check_cores(const MachineFacts& facts) {
  std::vector<Finding> findings;
  double cores = facts.cores;
  if (facts.limits.cpus && *facts.limits.cpus < cores) {
    cores = *facts.limits.cpus;
    findings.push_back({Severity::kWarning, fmt::format("The control group allows {:.3g} of the {} CPUs.", cores, facts.cores),
                        "cpu.max of this process's control group. Beyond it all its threads are stopped for the rest of the period, ranks that others wait for among them.",
                        facts.container ? "Start the container without --cpus, or with as many as ranks times threads." : "Ask the batch system for more CPUs a task."});
  }
  if (facts.limits.memory && facts.reading.wiring.devices.front().memory > 0 && *facts.limits.memory < facts.reading.wiring.devices.front().memory) {
    findings.push_back({Severity::kInfo, "The control group limits memory to " + format_bytes(*facts.limits.memory) + ".",
                        "The host has " + format_bytes(facts.reading.wiring.devices.front().memory) + ". What goes beyond the limit is killed without a message.",
                        "Plan with the limit, offloaded optimizers and pinned buffers included."});
  }
  const int ranks = facts.ranks > 0 ? facts.ranks : static_cast<int>(devices_of(facts.reading.wiring, DeviceKind::kGpu).size());
  if (ranks > cores) {
    findings.push_back({Severity::kWarning, fmt::format("{} share {}.", counted(ranks, "rank"), counted(cores, "core")), "Ranks that wait for each other take turns on a core, and every collective waits for the last.",
                        "Start no more ranks than cores."});
  } else if (const auto threads = parse_integer(value_of(facts, "OMP_NUM_THREADS")); threads && *threads > 0 && static_cast<double>(*threads) * std::max(ranks, 1) > cores) {
    findings.push_back({Severity::kWarning, fmt::format("{} of {} {} more than {}.", counted(std::max(ranks, 1), "rank"), counted(static_cast<double>(*threads), "thread"), ranks > 1 ? "are" : "is", counted(cores, "core")),
                        fmt::format("OMP_NUM_THREADS={}.", *threads), fmt::format("Set OMP_NUM_THREADS={}.", std::max(1, static_cast<int>(cores / std::max(ranks, 1))))});
  }
  return findings;
}

std::vector<Finding> check_ports(const MachineFacts& facts) {
  if (facts.port_failure.empty()) return {};
  return {{value_of(facts, "MASTER_PORT").empty() ? Severity::kInfo : Severity::kError, "The port where the ranks meet can't be used.", facts.port_failure, facts.port_remedy}};
}

std::vector<Finding> check_variables(const MachineFacts& facts) {
  struct Rule {
    const char* name;
    bool (*hurts)(const std::string& value);
    Severity severity;
    const char* title;
    const char* remedy;
  };
  static constexpr auto on = [](const std::string& value) { return value != "0"; };
  static constexpr auto any = [](const std::string&) { return true; };
  static const Rule rules[] = {
      {"NCCL_P2P_DISABLE", on, Severity::kWarning, "NCCL may not copy from GPU to GPU.", "Unset it where peer-to-peer works: without it every byte goes through host memory, NVLink unused."},
      {"NCCL_IB_DISABLE", on, Severity::kWarning, "NCCL may not use RDMA.", "Unset it where there is InfiniBand or RoCE: sockets give a fraction of the bandwidth and cost CPU time."},
      {"NCCL_SHM_DISABLE", on, Severity::kWarning, "NCCL may not use shared memory.", "Unset it: GPUs of one host that have no peer-to-peer otherwise talk through the network."},
      {"NCCL_P2P_LEVEL", [](const std::string& v) { return v == "LOC" || v == "0"; }, Severity::kWarning, "NCCL may not copy from GPU to GPU.", "Unset NCCL_P2P_LEVEL, or name a wider one such as PXB."},
      {"NCCL_NET_GDR_LEVEL", [](const std::string& v) { return v == "LOC" || v == "0"; }, Severity::kWarning, "GPUDirect RDMA is off.", "Unset NCCL_NET_GDR_LEVEL, or set PIX, PXB or PHB."},
      {"NCCL_NVLS_ENABLE", [](const std::string& v) { return v == "0"; }, Severity::kInfo, "Reductions in the NVSwitch are off.", "Unset NCCL_NVLS_ENABLE on Hopper and later."},
      {"NCCL_SOCKET_IFNAME", [](const std::string& v) { return names_bridge(v); }, Severity::kError, "NCCL is told to use an interface of containers.", "Name the interface that leads to the other hosts; bridges reach this host's containers alone."},
      {"GLOO_SOCKET_IFNAME", [](const std::string& v) { return names_bridge(v); }, Severity::kError, "Gloo is told to use an interface of containers.", "Name the interface that leads to the other hosts; bridges reach this host's containers alone."},
      {"NCCL_SOCKET_IFNAME", [](const std::string& v) { return v == "lo" || v == "=lo"; }, Severity::kError, "NCCL is told to use the loopback interface.", "Name the interface that leads to the other hosts; lo reaches this host alone."},
      {"GLOO_SOCKET_IFNAME", [](const std::string& v) { return v == "lo"; }, Severity::kError, "Gloo is told to use the loopback interface.", "Name the interface that leads to the other hosts; lo reaches this host alone."},
      {"NCCL_ALGO", any, Severity::kWarning, "NCCL's algorithm is pinned.", "Unset it: one algorithm for all sizes is wrong for most of them."},
      {"NCCL_PROTO", [](const std::string& v) { return without_ll128(v); }, Severity::kWarning, "NCCL may not use its protocol LL128.", "Unset NCCL_PROTO: LL128 gives nearly the whole bandwidth of NVLink at a small message's latency. Leave it out only where data came wrong."},
      {"NCCL_PROTO", [](const std::string& v) { return !without_ll128(v); }, Severity::kWarning, "NCCL's protocol is pinned.", "Unset it: LL halves the bandwidth of large messages, Simple adds latency to small ones, and LL128 forced where it isn't safe corrupts data."},
      {"NCCL_DEBUG", [](const std::string& v) { return v == "TRACE" || v == "trace"; }, Severity::kWarning, "NCCL traces every call.", "Set NCCL_DEBUG=WARN, or INFO while something is looked for."},
      {"NCCL_MAX_NCHANNELS", [](const std::string& v) { const auto n = parse_integer(v); return n && *n > 0 && *n < 8; }, Severity::kWarning, "NCCL may use few channels only.", "Unset NCCL_MAX_NCHANNELS: each channel is a block of threads, and few of them can't fill NVLink."},
      {"NCCL_BUFFSIZE", [](const std::string& v) { const auto n = parse_integer(v); return n && *n > 0 && *n < 1 << 20; }, Severity::kInfo, "NCCL's buffers are small.", "Unset NCCL_BUFFSIZE (4 MiB)."},
      {"NCCL_LAUNCH_MODE", [](const std::string& v) { return v == "GROUP"; }, Severity::kInfo, "NCCL launches the kernels of a process as a group.", "Unset NCCL_LAUNCH_MODE."},
      {"CUDA_LAUNCH_BLOCKING", on, Severity::kWarning, "Every CUDA launch waits for its end.", "Unset CUDA_LAUNCH_BLOCKING: nothing overlaps while it is set."},
      {"TORCH_DISTRIBUTED_DEBUG", [](const std::string& v) { return v == "DETAIL"; }, Severity::kWarning, "PyTorch checks every collective.", "Unset TORCH_DISTRIBUTED_DEBUG for real runs: each call is preceded by another."},
  };
  std::vector<Finding> findings;
  for (const Rule& rule : rules) {
    const std::string value = value_of(facts, rule.name);
    if (!value.empty() && rule.hurts(value)) findings.push_back({rule.severity, rule.title, std::string(rule.name) + "=" + value + " in the environment.", rule.remedy});
  }
  return findings;
}

std::vector<Finding> check_visible_gpus(const MachineFacts& facts) {
  const std::string visible = value_of(facts, "CUDA_VISIBLE_DEVICES");
  std::vector<Finding> findings;
  int gpus = static_cast<int>(devices_of(facts.reading.wiring, DeviceKind::kGpu).size());
  if (!visible.empty()) {
    const std::vector<std::string> names = split(visible, ',');
    std::set<std::string> distinct(names.begin(), names.end());
    if (distinct.size() < names.size()) {
      findings.push_back({Severity::kError, "A GPU is named twice.", "CUDA_VISIBLE_DEVICES=" + visible + ".", "Name each GPU once: two ranks on one GPU end with NCCL's \"Duplicate GPU detected\"."});
    }
    // CUDA reads numbers up to the first that no GPU has, and is silent about it and the rest.
    const auto absent = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
      const auto number = parse_integer(name);
      return number && (*number < 0 || *number >= gpus);
    });
    if (absent != names.end() && gpus > 0) {
      findings.push_back({Severity::kError, fmt::format("There is no GPU {}.", *absent), fmt::format("CUDA_VISIBLE_DEVICES={}, on a machine of {} GPUs: CUDA leaves it and all behind it out without a word.", visible, gpus),
                          fmt::format("Name GPUs 0 to {}.", gpus - 1)});
    }
    distinct = {names.begin(), absent};
    gpus = std::min(gpus, static_cast<int>(distinct.size()));
  }
  if (facts.ranks > gpus && gpus > 0) {
    findings.push_back({Severity::kError, fmt::format("{} ranks, but {} GPUs.", facts.ranks, gpus), visible.empty() ? "All GPUs of this machine are counted." : "CUDA_VISIBLE_DEVICES=" + visible + ".",
                        "Start as many ranks a host as GPUs: NCCL refuses two ranks on one GPU (\"Duplicate GPU detected\")."});
  }
  return findings;
}

std::vector<Finding> diagnose_machine(const MachineFacts& facts) {
  std::vector<Finding> all;
  for (const auto check : {check_shared_memory, check_memlock, check_pcie_links, check_peer_to_peer, check_rdma, check_host_name, check_interfaces, check_cores, check_ports, check_variables,
                           check_visible_gpus}) {
    for (Finding& finding : check(facts)) all.push_back(std::move(finding));
  }
  for (Finding& finding : check_wiring(facts.reading.wiring)) all.push_back(std::move(finding));
  if (facts.reading.partial) {
    for (const Note& note : facts.reading.notes) all.push_back({Severity::kWarning, "Not all of this machine can be seen.", note.text, "Mount /sys where the doctor runs: what it can't see it can't find wrong."});
  }
  sort_findings(all);
  return all;
}

}  // namespace wirewise
