// What an NCCL_DEBUG=INFO log says: the communicators, which transport each pair of ranks uses, rings, trees, warnings. Logs of many ranks
// are mixed line by line, cut anywhere, and of any version from 2.1 on.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "wirewise/wiring/reading.h"

namespace wirewise {

struct NcclRank {
  std::string host;
  long long pid = 0;
  int device = -1;   // as the process numbers it
  std::string bus;   // "1a000": the bus address as NCCL prints it
  bool complete = false;  // its initialisation is said to have ended
};

struct NcclTreeNode {
  int up = -1;
  std::vector<int> down;
};

struct NcclCommunicator {
  std::string id;     // equal on all ranks from 2.18 on; empty before
  int size = 0;       // 0: not said
  int merged = 1;     // how many communicators the log doesn't tell apart here
  std::map<int, NcclRank> ranks;                                           // those in the log
  std::map<std::pair<int, int>, std::map<std::string, std::set<int>>> links;  // from, to: channels by transport
  std::map<int, std::vector<int>> rings;                                   // by channel, in order; old versions print the first 20 ranks
  std::map<int, std::map<int, NcclTreeNode>> trees;                        // by channel and rank
  int channels = 0, p2p_channels = 0, nvls_channels = 0;
  bool nvls = false, nvlink = false;                                       // the log says that they are used
  bool collnet = false;                                                    // sums in the network's switches (SHARP)
  std::set<int> unfinished;                                                // ranks whose initialisation began and isn't said to have ended
};

struct NcclWarning {
  int line = 0;
  std::string host, place, text;  // place: "include/shm.h:28"
  int count = 1;                  // of the same text
};

/// An interface that NCCL's sockets or its bootstrap take.
struct NcclInterface {
  std::string host, name, address;
  bool sockets = false;  // for data; else the bootstrap's
  bool operator==(const NcclInterface&) const = default;
};

/// A collective that PyTorch's watchdog gave up waiting for. -1 and empty: not said.
struct NcclTimeout {
  int line = 0, rank = -1;
  std::string group, operation;  // "default_pg", "ALLREDUCE"
  long long work = -1, elements = -1, milliseconds = -1;
};

/// An error of NCCL as PyTorch passes it on.
struct NcclError {
  int line = 0;
  std::string what, last;  // "unhandled system error", and NCCL's "Last error"
  int count = 1;
};

/// What a rank of an old version says of its GPU's NICs, nearest or not, in the order it numbers them.
struct NcclNicDistance {
  std::string host;
  int device = -1;                // as NVML numbers it
  std::vector<std::string> ways;  // "PIX", "SOC"
  bool operator==(const NcclNicDistance&) const = default;
};

struct NcclLog {
  bool rccl = false;  // AMD's
  std::vector<std::string> versions;  // "2.7.8+cuda10.2", each once
  std::vector<NcclCommunicator> communicators;
  std::vector<NcclWarning> warnings;
  std::map<std::string, std::string> settings;   // "NCCL_SHM_DISABLE set by environment to 1."
  std::map<std::string, std::string> networks;   // host: "IB", "Socket"
  std::map<std::string, std::string> ib_devices; // host: "hfi1_2:1/IB, hfi1_0:1/IB"
  std::map<std::string, std::string> providers;  // host: libfabric's, "efa"
  std::set<std::string> no_ib;                   // hosts where NCCL found no RDMA device
  std::vector<NcclInterface> interfaces;         // each once
  std::vector<NcclNicDistance> nic_distances;    // each once
  std::set<std::string> algorithms;              // "AllReduce RING SIMPLE"
  bool no_verbs = false;                         // libibverbs isn't installed
  bool gdr_enabled = false, gdr_disabled = false, dmabuf = false;
  std::string gdr_far;                           // why GPUDirect RDMA isn't taken: "… (distance 6 > 4)"
  int aborted = 0;                               // communicators that ranks gave up, as they say
  std::vector<NcclTimeout> timeouts;
  std::map<std::pair<std::string, int>, long long> completed;  // of a group's rank: its last work that ended, where PyTorch says so
  std::vector<NcclError> errors;
  std::vector<std::pair<std::string, std::string>> ras;  // what `ncclras` reports: name and value
  std::vector<Note> notes;
  bool partial = false;
};

/// Throws bad input when there is no line of NCCL in it.
[[nodiscard]] NcclLog read_nccl_log(std::string_view text, std::string_view file);

/// Kinds of transport, nearest first.
enum class NcclTransport : std::uint8_t { kPeer, kShared, kRdma, kSocket, kOther };
/// Of "P2P/IPC", "direct shared memory", "NET/IB/0/GDRDMA" …
[[nodiscard]] NcclTransport transport_of(std::string_view text) noexcept;

}  // namespace wirewise
