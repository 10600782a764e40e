#include "wirewise/wiring/formats.h"

namespace wirewise {

std::string_view printed_by(Format format) noexcept {
  switch (format) {
    case Format::kNvidiaTopo: return "nvidia-smi topo -m, topo -p2p r";
    case Format::kNvidiaReport: return "nvidia-smi -q, also with -x or -d";
    case Format::kNvidiaTable: return "nvidia-smi";
    case Format::kNvidiaList: return "nvidia-smi -L";
    case Format::kNvidiaQuery: return "nvidia-smi --query-gpu=... --format=csv";
    case Format::kNvlinkStatus: return "nvidia-smi nvlink -s, -c, -R";
    case Format::kRocmTopo: return "rocm-smi --showtopo, amd-smi topology";
    case Format::kNcclXml: return "NCCL_TOPO_DUMP_FILE, NCCL_GRAPH_DUMP_FILE";
    case Format::kHwlocXml: return "lstopo --of xml";
    case Format::kLscpu: return "lscpu";
    case Format::kNumactl: return "numactl --hardware";
    case Format::kIbstat: return "ibstat";
    case Format::kIbvDevinfo: return "ibv_devinfo";
    case Format::kIbnetdiscover: return "ibnetdiscover";
    case Format::kIblinkinfo: return "iblinkinfo";
    case Format::kSlurmConf: return "topology.conf, slurm.conf, scontrol show topology";
    case Format::kSlurmYaml: return "topology.yaml";
    case Format::kSlurmNodes: return "scontrol show nodes, slurmd -C";
    case Format::kNodeList: return "node lists and host files: n[1-8]; node1 slots=2; node1:2; node1 2";
    case Format::kNcclTests: return "nccl-tests (all_reduce_perf and its kind)";
    case Format::kClusterToml: return "cluster.toml, and names that wirewise topo list gives";
    case Format::kJson: return "wirewise topo --json";
    case Format::kThisMachine: return "this machine";
  }
  return "unknown";
}

std::string format_list() {
  std::string list;
  for (int i = 0; i < static_cast<int>(Format::kThisMachine); ++i) list += "  " + std::string(printed_by(static_cast<Format>(i))) + "\n";
  return list;
}

}  // namespace wirewise
