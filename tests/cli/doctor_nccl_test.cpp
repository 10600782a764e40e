// What is said of NCCL logs, against logs as NCCL 2.14 to 2.28 and PyTorch print them, written by hand.
#include "wirewise/cli/doctor_nccl.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "wirewise/base/text.h"
#include "wiring/field.h"

namespace wirewise {
namespace {

struct Job {
  int hosts = 1, each = 4, channels = 4, nvls_channels = 0;
  std::string inside = "P2P/CUMEM", between = "NET/IB/0/GDRDMA", network = "IB", interface = "eth0";
  std::string id = "0xabc";
  std::vector<std::string> said{};  // by every rank, before its connections
  bool one_process = false, initialised = true, ended = true;
  bool same_address = false;
};

std::string text_of(const Job& job) {
  std::string text;
  const int ranks = job.hosts * job.each;
  const auto device = [&](int rank) { return std::to_string(rank) + "[" + std::to_string(rank % job.each) + "]"; };
  for (int rank = 0; rank < ranks; ++rank) {
    const int host = rank / job.each, gpu = rank % job.each;
    const std::string who = "gpu-" + std::to_string(host) + ":" + std::to_string(job.one_process ? 100 : 100 + gpu) + ":" + std::to_string(200 + gpu) + " [" + std::to_string(gpu) + "] NCCL INFO ";
    const std::string address = job.interface + ":10.0.0." + std::to_string(job.same_address ? 1 : host + 1) + "<0>";
    const auto say = [&](const std::string& line) { text += who + line + "\n"; };
    const std::string init = "ncclCommInitRank comm 0x5" + std::to_string(rank) + " rank " + std::to_string(rank) + " nranks " + std::to_string(ranks) + " cudaDev " + std::to_string(gpu) + " nvmlDev " + std::to_string(gpu) +
                             " busId " + std::to_string(gpu + 1) + "b000" + (job.id.empty() ? "" : " commId " + job.id);
    say("Bootstrap : Using " + address);
    if (rank == 0) text += "NCCL version 2.21.5+cuda12.4\n";
    if (job.network == "IB") say("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB " + address);
    if (job.network == "Socket") {
      say("NET/IB : No device found.");
      say("NET/IB : Using [RO]; OOB " + address);
      say("NET/Socket : Using [0]" + address);
    }
    say("Using network " + job.network);
    if (job.initialised) say(init + " - Init START");
    for (const std::string& line : job.said) say(line);
    for (int channel = 0; rank == 0 && channel < job.channels; ++channel) {
      std::string order;
      for (int r = 0; r < ranks; ++r) order += " " + std::to_string(r);
      say("Channel 0" + std::to_string(channel) + "/0" + std::to_string(job.channels) + " :" + order);
    }
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (int channel = 0; channel < job.channels; ++channel) {
      const std::string number = "Channel 0" + std::to_string(channel) + "/0 : ";
      if (next / job.each == host) say(number + device(rank) + " -> " + device(next) + " via " + job.inside);
      else say(number + device(rank) + " -> " + device(next) + " [send] via " + job.between);
      if (before / job.each != host) say(number + device(before) + " -> " + device(rank) + " [receive] via " + job.between);
    }
    if (!job.ended) continue;
    say(std::to_string(job.channels) + " coll channels, " + std::to_string(job.channels) + " collnet channels, " + std::to_string(job.nvls_channels) + " nvls channels, 8 p2p channels, 1 p2p channels per peer");
    if (job.initialised) say(init + " - Init COMPLETE");
  }
  return text;
}

std::string watchdog(int rank, const std::string& operation, int work) {
  const std::string number = std::to_string(rank);
  return "[rank" + number + "]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank " + number + "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" + std::to_string(work) + ", OpType=" + operation +
         ", NumelIn=8652160, NumelOut=8652160, Timeout(ms)=600000) ran for 600081 milliseconds before timing out.\n";
}

std::string say(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) text += std::string(name_of(finding.severity)) + ": " + finding.title + " | " + finding.evidence + " | " + finding.remedy + "\n";
  return text;
}
std::string said_of(const std::string& log) { return say(diagnose_nccl(read_nccl_log(log, "log"))); }
std::string said_of(const Job& job) { return said_of(text_of(job)); }

#define SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)
#define KEEPS_SILENT(text, part) EXPECT_EQ((text).find(part), std::string::npos) << (text)

TEST(DoctorNccl, ASoundRunHasNothingWrong) {
  for (const Job& job : {Job{.inside = "P2P/CUMEM"}, Job{.inside = "P2P/IPC"}, Job{.inside = "P2P/direct pointer"}, Job{.hosts = 2}, Job{.hosts = 2, .between = "NET/IBext_v8/1(3)/GDRDMA/Shared", .network = "IBext_v8"}}) {
    const std::string text = said_of(job);
    KEEPS_SILENT(text, "error: ");
    KEEPS_SILENT(text, "warning: ");
    SAYS(text, "peer-to-peer between GPUs: yes");
    SAYS(text, job.hosts == 1 ? "Communicator of 4 ranks on one host." : "Communicator of 8 ranks on 2 hosts.");
    EXPECT_EQ(text.find("GPUDirect RDMA: yes") != std::string::npos, job.hosts == 2) << text;
  }
}

TEST(DoctorNccl, OneProcessMayDriveAllGpus) {
  for (const char* id : {"0xabc", ""}) {
    for (const int hosts : {1, 2}) {
      Job job{.hosts = hosts, .id = id};
      job.one_process = true;
      const NcclLog log = read_nccl_log(text_of(job), "log");
      ASSERT_EQ(log.communicators.size(), 1U) << id << hosts;
      EXPECT_EQ(log.communicators[0].ranks.size(), static_cast<std::size_t>(4 * hosts));
      EXPECT_EQ(log.communicators[0].merged, 1);
    }
  }
}

TEST(DoctorNccl, LinesMayHaveWhatLaunchersPutBeforeThem) {
  const std::string plain = text_of({.hosts = 2});
  const std::string expected = said_of(plain);
  for (const char* before : {"[default3]:", "[1,3]<stdout>:", "(RayWorker pid=77, ip=10.0.0.3) ", " 3: ", "2026-01-01T00:00:00.000001Z ", "worker-3  | ", "[2026-01-02 03:04:05] ", "\x1b[36m", "[rank3]: "}) {
    std::string text;
    for (const std::string& line : split(plain, '\n')) {
      if (!line.empty()) text += before + line + "\x1b[0m\r\n";
    }
    EXPECT_EQ(said_of(text), expected) << before;
  }
}

TEST(DoctorNccl, WithoutHostNamesDevicesTellRanksApart) {
  std::string text;
  for (const std::string& line : split(text_of({}), '\n')) text += (line.starts_with("gpu-") ? "node " + line.substr(line.find('[')) : line) + "\n";
  const NcclLog log = read_nccl_log(text, "log");
  ASSERT_EQ(log.communicators.size(), 1U);
  EXPECT_EQ(log.communicators[0].ranks.size(), 4U);
}

TEST(DoctorNccl, BridgesOfContainersLeadNowhere) {
  for (const char* name : {"docker0", "br-1a2b3c", "veth12", "virbr0", "lo"}) {
    const std::string text = said_of(Job{.hosts = 2, .between = "NET/Socket/0", .network = "Socket", .interface = name});
    SAYS(text, "error: NCCL takes an interface that leads to no other host.");
    SAYS(text, std::string(name) + " (10.0.0.1) on gpu-0");
    SAYS(text, "NCCL_SOCKET_IFNAME=^docker,lo,veth,virbr,br-");
    KEEPS_SILENT(text, "although there is RDMA");  // "[RO]" is no adapter
    SAYS(text, "NCCL found no RDMA device.");
  }
  KEEPS_SILENT(said_of(Job{.hosts = 1, .network = "Socket", .interface = "docker0"}), "error: ");  // one host needs no other
}

TEST(DoctorNccl, OneAddressForTwoHosts) {
  Job job{.hosts = 2, .between = "NET/Socket/0", .network = "Socket"};
  job.same_address = true;
  SAYS(said_of(job), "error: Hosts tell NCCL the same address. | 10.0.0.1 is that of gpu-0, gpu-1");
  job.same_address = false;
  KEEPS_SILENT(said_of(job), "error: ");
  SAYS(said_of(job), "warning: Hosts talk over TCP sockets.");
}

TEST(DoctorNccl, ContainersWithoutTheLibraryOfRdma) {
  SAYS(said_of(Job{.hosts = 2, .between = "NET/Socket/0", .network = "Socket", .said = {"Failed to open libibverbs.so[.1]"}}), "NCCL didn't find libibverbs");
}

TEST(DoctorNccl, HostsWithDifferentNetworks) {
  std::string text = text_of({.hosts = 2, .between = "NET/Socket/0"});
  for (std::size_t at = text.find("gpu-1:"); at != std::string::npos; at = text.find("gpu-1:", at + 1)) {
    const std::size_t end = text.find('\n', at);
    const std::size_t word = text.find("Using network IB\n", at);
    if (word != std::string::npos && word < end) text.replace(word, 16, "Using network Socket");
  }
  SAYS(said_of(text), "error: Hosts use different networks. | IB on gpu-0; Socket on gpu-1.");
}

TEST(DoctorNccl, LibfabricAndItsProvider) {
  const std::string sound = said_of(Job{.hosts = 2, .between = "NET/AWS Libfabric/0/GDRDMA", .network = "AWS Libfabric", .said = {"NET/OFI Selected Provider is efa (found 4 nics)"}});
  KEEPS_SILENT(sound, "warning: ");
  SAYS(sound, "NET/AWS Libfabric with GPUDirect RDMA (RDMA): 2 pairs, 3→4 7→0");
  const std::string slow = said_of(Job{.hosts = 2, .between = "NET/Libfabric/0", .network = "Libfabric", .said = {"NET/OFI Selected provider is tcp;ofi_rxm, fabric is 10.0.0.0/16 (found 1 nics)"}});
  SAYS(slow, "warning: The libfabric plugin uses TCP in place of the adapter. | tcp;ofi_rxm on gpu-0, tcp;ofi_rxm on gpu-1.");
  NcclLog log = read_nccl_log("a:1:2 [0] NCCL INFO Assigned NET plugin Libfabric to comm\nb:1:2 [0] NCCL INFO Using network AWS Libfabric\n", "log");
  EXPECT_EQ(log.networks.at("a"), "Libfabric");
  EXPECT_EQ(log.networks.at("b"), "AWS Libfabric");
}

TEST(DoctorNccl, GpuDirectThatIsPossibleButNotTaken) {
  const std::string text = said_of(Job{.hosts = 2, .between = "NET/IB/0", .said = {"NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'", "GPU Direct RDMA Disabled for GPU 0 / HCA 0 (distance 6 > 4)"}});
  SAYS(text, "warning: No GPUDirect RDMA: traffic between hosts stops in host memory. | NCCL says: GPU Direct RDMA Disabled for GPU 0 / HCA 0 (distance 6 > 4).");
  SAYS(text, "GPUDirect RDMA: no");
  KEEPS_SILENT(text, "GPUDirect RDMA: yes");
  SAYS(said_of(Job{.hosts = 2, .between = "NET/IB/0", .said = {"NET/IB : GPU Direct RDMA (DMABUF) enabled for HCA 0 'mlx5_0'"}}), "The adapters can");
}

TEST(DoctorNccl, SumsInSwitchesWhereTheyAreUsed) {
  const char* const possible = "NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)";
  SAYS(said_of(Job{.nvls_channels = 16, .said = {possible}}), "with reductions in the NVSwitch (NVLS)");
  SAYS(said_of(Job{.said = {possible, "NVLS comm 0x5500 headRank 0 nHeads 8 buffSize 4194304"}}), "with reductions in the NVSwitch (NVLS)");
  KEEPS_SILENT(said_of(Job{.said = {possible}}), "(NVLS)");
  KEEPS_SILENT(said_of(Job{.said = {"NVLS multicast support is not available on dev 0"}}), "(NVLS)");
  SAYS(said_of(Job{.hosts = 2, .said = {"CollNet 00/0 : 0 [receive] via COLLNET/SHARP/0/GDRDMA"}}), "(CollNet, SHARP): yes");
  KEEPS_SILENT(said_of(Job{.hosts = 2}), "SHARP");
  SAYS(said_of(Job{.hosts = 2, .between = "P2P/MNNVL"}), "NVLink: yes");
}

TEST(DoctorNccl, Settings) {
  SAYS(said_of(Job{.inside = "SHM/direct/direct", .said = {"NCCL_P2P_DISABLE set by environment to 1."}}), "NCCL may not copy from GPU to GPU. | NCCL_P2P_DISABLE=1");
  for (const char* protocols : {"^LL128", "Simple", "LL,Simple", "^ll,ll128"}) SAYS(said_of(Job{.said = {std::string("NCCL_PROTO set by environment to ") + protocols}}), "NCCL may not use its protocol LL128.");
  SAYS(said_of(Job{.said = {"NCCL_PROTO set by environment to LL128"}}), "NCCL's protocol is pinned.");
  SAYS(said_of(Job{.said = {"NCCL_SOCKET_IFNAME set by environment to docker0"}}), "error: NCCL is told to use an interface of containers.");
  KEEPS_SILENT(said_of(Job{.said = {"NCCL_SOCKET_IFNAME set by environment to ^docker0,lo"}}), "error: ");
}

TEST(DoctorNccl, ARankThatDoesNotComeToACollective) {
  std::string text = text_of({.hosts = 2});
  for (const int rank : {0, 1, 2, 3, 4, 6, 7}) text += watchdog(rank, "ALLREDUCE", 1234);
  text += "gpu-0:100:999 [0] NCCL INFO comm 0x50 rank 0 nranks 8 cudaDev 0 busId 1b000 - Abort COMPLETE\n";
  const std::string said = said_of(text);
  SAYS(said, "error: A collective timed out: ALLREDUCE number 1234. | Line ");
  SAYS(said, "ranks 0-4, 6-7 waited 600.1 s for 8652160 elements. Rank 5 does not report it.");
  SAYS(said, "warning: Ranks gave communicators up.");
  EXPECT_EQ(read_nccl_log(text, "log").communicators.size(), 1U);  // the line of the abort makes none
}

TEST(DoctorNccl, RanksInDifferentCollectives) {
  const std::string said = said_of(watchdog(0, "ALLREDUCE", 7) + watchdog(1, "BROADCAST", 7));
  SAYS(said, "error: Ranks wait in different collectives. | Number 7 is ALLREDUCE on some ranks and BROADCAST on others.");
  KEEPS_SILENT(said_of(watchdog(0, "ALLREDUCE", 7) + watchdog(1, "ALLREDUCE", 7)), "different collectives");
}

TEST(DoctorNccl, TimeoutsOfGroupsAndOfOldVersions) {
  const std::string group =
      "[rank2]:[E ProcessGroupNCCL.cpp:607] [PG ID 3 PG GUID 9(tp) Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8, OpType=_ALLGATHER_BASE, NumelIn=4, NumelOut=8, Timeout(ms)=1000) ran for 1001 "
      "milliseconds before timing out.\n"
      "[rank3]:[E ProcessGroupNCCL.cpp:2168] [PG ID 3 PG GUID 9(tp) Rank 3]  failure detected by watchdog at work sequence id: 8 PG status: last enqueued work: 5, last completed work: 5\n";
  const std::string said = said_of(group);
  SAYS(said, "_ALLGATHER_BASE number 8. | Line 1: rank 2 waited 1.001 s for 4 elements in group tp. Rank 3 had not come so far");
  SAYS(said_of("[E ProcessGroupNCCL.cpp:821] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(OpType=BROADCAST, Timeout(ms)=1800000) ran for 1808499 milliseconds before timing out.\n"),
       "A collective timed out: BROADCAST. | Line 1: rank 2 waited 1808 s.");
}

TEST(DoctorNccl, InitialisationThatDoesNotEnd) {
  Job job{.hosts = 2};
  job.ended = false;
  SAYS(said_of(job), "info: The init");  // it has connected: rather the log was cut
  job.channels = 0;
  SAYS(said_of(job), "warning: The initialisation of a communicator didn't end in this log. | Ranks 0-7 of 8 began it");
  KEEPS_SILENT(said_of(Job{.hosts = 2}), "didn't end");
  job.ended = true;
  job.initialised = false;
  KEEPS_SILENT(said_of(job), "didn't end");
}

TEST(DoctorNccl, WarningsAndTheirMeaning) {
  const struct {
    const char* warning;
    const char* title;
    const char* remedy;
  } cases[] = {
      {"Call to ibv_reg_mr failed with error Cannot allocate memory", "error: RDMA could not lock the memory", "memlock"},
      {"Error: network IBX not found.", "error: NCCL finds no network of the name", "NCCL_NET"},
      {"Mismatched NCCL version detected : rank 0 version 21805 rank 3 version 22105", "error: Ranks run different versions of NCCL.", "LD_LIBRARY_PATH"},
      {"NET/IB: Got completion from peer 10.0.0.1<41234> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_RDMA_WRITE(1)", "error: An RDMA transfer got no answer", "cables"},
      {"NET/IB : Got completion from peer 10.0.0.1<41234> with status=12 opcode=0 len=0 vendor err 129", "error: An RDMA transfer got no answer", "cables"},
      {"Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000", "error: Two ranks are on one GPU.", "LOCAL_RANK"},
      {"Cuda failure 802 'system not yet initialized'", "error: The NVSwitches aren't set up", "fabricmanager"},
      {"P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case given their connectivity", "error: Peer-to-peer is off between GPUs that NVLink joins.", "nvlink --status"},
      {"Cuda failure 'out of memory'", "error: A GPU has no memory left", "NCCL_BUFFSIZE"},
      {"Message truncated : received 1024 bytes instead of 256", "error: The ranks don't agree on what they call.", "branches"},
      {"Bootstrap : no socket interface found", "error: NCCL finds no network interface.", "NCCL_SOCKET_IFNAME"},
      {"socketStartConnect: Connect to 172.17.0.1<43251> failed : No route to host", "error: A rank could not reach another: there is no route.", "NCCL_SOCKET_IFNAME"},
      {"NUMA auto balancing enabled which can lead to variability in the RCCL performance!", "warning: The kernel moves memory", "numa_balancing"},
      {"Error while creating shared memory segment /dev/shm/nccl-ZFz5NE (size 9637888)", "error: /dev/shm is full", "shm-size"},
      {"Something that nobody has seen", "warning: NCCL warned.", ""},
  };
  for (const auto& one : cases) {
    const std::string said = said_of(std::string("\ngpu-0:1:9 [0] misc/some.cc:190 NCCL WARN ") + one.warning + "\n");
    SAYS(said, one.title);
    SAYS(said, one.remedy);
    SAYS(said, std::string("Line 2, gpu-0, misc/some.cc:190: ") + one.warning);
  }
  const std::string ras = said_of("gpu-0:1:9 [1] ras/client_support.cc:159 NCCL WARN Call to bind failed: Address already in use\n");
  KEEPS_SILENT(ras, "error: ");
}

TEST(DoctorNccl, ErrorsAsPyTorchPassesThemOn) {
  const std::string torch =
      "[rank0]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\n"
      "[rank0]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. \n"
      "[rank0]: Last error:\n"
      "[rank0]: Call to ibv_reg_mr failed with error Cannot allocate memory\n";
  SAYS(said_of(torch), "error: RDMA could not lock the memory that it needs. | Line 1: unhandled system error: Call to ibv_reg_mr failed");
  const std::string both = said_of("NCCL version 2.21.5+cuda12.4\ngpu-0:1:9 [0] misc/ibvwrap.cc:190 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory\n" + torch);
  EXPECT_EQ(both.find("could not lock"), both.rfind("could not lock")) << both;  // once
  KEEPS_SILENT(both, "Several versions");
  SAYS(said_of("RuntimeError: NCCL error in: ../ProcessGroupNCCL.cpp:1269, internal error, NCCL version 2.14.3\n"), "error: NCCL ended with \"internal error\".");
  SAYS(said_of("NCCL version 2.18.5+cuda12.2\nNCCL version 2.21.5+cuda12.4\n"), "warning: Several versions of NCCL are in this log. | 2.18.5+cuda12.2, 2.21.5+cuda12.4.");
}

TEST(DoctorNccl, InterfacesDifferBetweenHostsNotWithinThem) {
  const auto log_of = [](const std::vector<std::pair<std::string, std::vector<std::string>>>& hosts) {
    std::string text;
    int rank = 0;
    for (const auto& [host, names] : hosts) {
      for (const std::string& name : names) {
        text += host + ":10" + std::to_string(rank) + ":20 [0] NCCL INFO Bootstrap : Using [0]" + name + ":10.0.0." + std::to_string(rank) + "<0>\n";
        ++rank;
      }
    }
    return said_of(text);
  };
  KEEPS_SILENT(log_of({{"gpu-0", {"ib0", "ib1"}}}), "different names");
  KEEPS_SILENT(log_of({{"gpu-0", {"ib0", "ib1"}}, {"gpu-1", {"ib1", "ib0"}}}), "different names");
  SAYS(log_of({{"gpu-0", {"ib0", "ib1"}}, {"gpu-1", {"eth0"}}}), "info: Hosts meet over interfaces of different names. | eth0 on gpu-1; ib0 and ib1 on gpu-0.");
}

TEST(DoctorNccl, HostsOfTheFieldMeetOverInterfacesOfOneName) {
  WIREWISE_NEEDS_FIELD();
  const std::vector<std::string> files = field::files("nccllog");
  ASSERT_FALSE(files.empty());
  for (const std::string& file : files) KEEPS_SILENT(said_of(*field::text(file)), "different names");
}

TEST(DoctorNccl, WorstFirst) {
  const std::string text = text_of({.hosts = 2, .between = "NET/Socket/0", .network = "Socket"}) + "gpu-0:1:9 [0] init.cc:1 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000\n";
  const std::vector<Finding> findings = diagnose_nccl(read_nccl_log(text, "log"));
  std::vector<Severity> order;
  for (const Finding& finding : findings) order.push_back(finding.severity);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end())) << say(findings);
  EXPECT_EQ(order.front(), Severity::kError);
  EXPECT_EQ(order.back(), Severity::kInfo);
  EXPECT_NE(std::find(order.begin(), order.end(), Severity::kWarning), order.end());
}

TEST(DoctorNccl, TheNetworkThatIsUsedIsNamed) {
  const std::string efa = said_of(Job{.hosts = 2, .between = "NET/AWS Libfabric/0", .network = "AWS Libfabric"});
  SAYS(efa, "No connection over NET/AWS Libfabric is marked GDRDMA.");
  SAYS(efa, "EFA reads GPUs' memory on p4d");
  EXPECT_EQ(efa.find("nvidia_peermem"), std::string::npos);
  SAYS(said_of(Job{.hosts = 2, .between = "NET/IB/0"}), "No connection over NET/IB is marked GDRDMA.");
}

TEST(DoctorNccl, TheVersionIsSaid) {
  SAYS(said_of(Job{.said = {"NCCL version 2.21.5+cuda12.4"}}), "NCCL 2.21.5+cuda12.4; peer-to-peer");
}

}  // namespace
}  // namespace wirewise
