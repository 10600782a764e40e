// How two devices of a host are joined, in the words of nvidia-smi topo -m.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wirewise/wiring/wiring.h"

namespace wirewise {

/// Nearest first, as far as PCIe goes.
enum class Connection : std::uint8_t {
  kSelf,
  kPix,      // at most one PCIe switch
  kPxb,      // several PCIe switches, but no host bridge
  kPhb,      // a host bridge
  kNode,     // host bridges of one NUMA node
  kSys,      // NUMA nodes
  kNetwork,  // different hosts
  kUnknown,  // the place of one of them isn't known
};

struct Relation {
  Connection pcie = Connection::kUnknown;
  int nvlinks = 0;  // between two GPUs, directly or through NVSwitches; 0: none
  bool xgmi = false;  // they are AMD's xGMI; without a number the way leads over the xGMI of other GPUs
};

/// "X", "NV12", "XGMI1", "XGMI", "PIX", "PXB", "PHB", "NODE", "SYS", "NET" or "?": NVLinks and xGMI where there are any.
[[nodiscard]] std::string name_of(const Relation& relation);

/// Relations of one graph, whose devices' places are looked up once.
class Relations {
 public:
  explicit Relations(const Wiring& wiring);
  [[nodiscard]] Relation between(int a, int b) const;

 private:
  [[nodiscard]] Connection by_pcie(int a, int b) const;
  [[nodiscard]] Relation gpu_links(int a, int b) const;

  const Wiring& wiring_;
  std::vector<std::vector<int>> out_;
  std::vector<int> parent_;  // towards the host; -1 of hosts and of what hangs on none
  std::vector<int> hive_;    // of GPUs that xGMI joins, over each other too; -1 of all else
};

}  // namespace wirewise
