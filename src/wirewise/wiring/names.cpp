// Names of the wiring's enumerations, as reports print them.
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise {

std::string_view name_of(DeviceKind kind) noexcept {
  switch (kind) {
    case DeviceKind::kHost: return "host";
    case DeviceKind::kSocket: return "socket";
    case DeviceKind::kNumaNode: return "numa";
    case DeviceKind::kHostBridge: return "bridge";
    case DeviceKind::kPcieSwitch: return "pcie-switch";
    case DeviceKind::kCpu: return "cpu";
    case DeviceKind::kGpu: return "gpu";
    case DeviceKind::kNvSwitch: return "nvswitch";
    case DeviceKind::kNic: return "nic";
    case DeviceKind::kSwitch: return "switch";
  }
  return "unknown";
}

std::string_view name_of(LinkKind kind) noexcept {
  switch (kind) {
    case LinkKind::kSharedMemory: return "shared memory";
    case LinkKind::kSockets: return "sockets";
    case LinkKind::kPcie: return "pcie";
    case LinkKind::kNvlink: return "nvlink";
    case LinkKind::kEthernet: return "ethernet";
    case LinkKind::kInfiniband: return "infiniband";
    case LinkKind::kXgmi: return "xgmi";
  }
  return "unknown";
}

std::string_view name_of(Provenance provenance) noexcept {
  switch (provenance) {
    case Provenance::kSpec: return "spec";
    case Provenance::kDriver: return "driver";
    case Provenance::kMeasured: return "measured";
    case Provenance::kAssumed: return "assumed";
  }
  return "unknown";
}

std::string_view name_of(Format format) noexcept {
  switch (format) {
    case Format::kNvidiaTopo: return "nvidia-smi topo";
    case Format::kNcclXml: return "NCCL XML";
    case Format::kSlurmConf: return "Slurm topology.conf";
    case Format::kSlurmYaml: return "Slurm topology.yaml";
    case Format::kNodeList: return "node list";
    case Format::kSlurmNodes: return "Slurm nodes";
    case Format::kIbstat: return "ibstat";
    case Format::kIbvDevinfo: return "ibv_devinfo";
    case Format::kIbnetdiscover: return "ibnetdiscover";
    case Format::kNvidiaQuery: return "nvidia-smi query";
    case Format::kNvidiaList: return "nvidia-smi list";
    case Format::kNvlinkStatus: return "nvidia-smi nvlink";
    case Format::kNvidiaReport: return "nvidia-smi report";
    case Format::kNvidiaTable: return "nvidia-smi table";
    case Format::kRocmTopo: return "rocm-smi topo";
    case Format::kIblinkinfo: return "iblinkinfo";
    case Format::kHwlocXml: return "hwloc XML";
    case Format::kNcclTests: return "nccl-tests";
    case Format::kNumactl: return "numactl";
    case Format::kLscpu: return "lscpu";
    case Format::kClusterToml: return "cluster.toml";
    case Format::kJson: return "wirewise JSON";
    case Format::kThisMachine: return "this machine";
  }
  return "unknown";
}

}  // namespace wirewise
