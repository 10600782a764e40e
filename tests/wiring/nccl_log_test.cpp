// NCCL logs, against what a person reads in them.
#include "wirewise/wiring/nccl_log.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "wiring/reader_fuzz.h"

namespace wirewise {
namespace {

std::set<std::string> transports(const NcclCommunicator& one, int from, int to) {
  std::set<std::string> names;
  const auto found = one.links.find({from, to});
  if (found == one.links.end()) return names;
  for (const auto& [transport, channels] : found->second) names.insert(transport);
  return names;
}
using Names = std::set<std::string>;
using Ranks = std::vector<int>;

TEST(NcclLog, FourV100InOneHost) {
  for (const char* name : {"nccl2.7-v100-16gb-1node-4gpu-12ch.log", "nccl2.7-v100-32gb-1node-4gpu-12ch.log"}) {
    WIREWISE_FIELD_TEXT(text, std::string("nccllog/") + name);
    const NcclLog log = read_nccl_log(text, name);
    EXPECT_EQ(log.versions, std::vector<std::string>{"2.7.8+cuda10.2"});
    EXPECT_EQ(log.networks.at("node00"), "IB");
    ASSERT_EQ(log.communicators.size(), 1u);
    const NcclCommunicator& one = log.communicators.front();
    EXPECT_EQ(one.size, 4);
    EXPECT_EQ(one.ranks.size(), 4u);
    EXPECT_EQ(one.ranks.at(0).bus, "1a000");
    EXPECT_EQ(one.ranks.at(3).bus, "8a000");
    EXPECT_EQ(one.channels, 12);
    EXPECT_EQ(one.rings.size(), 12u);
    EXPECT_EQ(one.rings.at(0), (Ranks{0, 1, 2, 3}));
    EXPECT_EQ(one.rings.at(11), (Ranks{0, 3, 2, 1}));
    for (int a = 0; a < 4; ++a) {
      for (int b = 0; b < 4; ++b) EXPECT_EQ(transports(one, a, b), a == b ? Names{} : Names{"P2P/IPC"});
    }
    EXPECT_EQ(one.trees.at(0).at(0).up, -1);
    EXPECT_EQ(one.trees.at(0).at(0).down, Ranks{1});
    EXPECT_EQ(one.trees.at(1).at(2).up, 0);
    EXPECT_FALSE(log.partial);
  }
}

TEST(NcclLog, FourHostsOfEightA100) {
  WIREWISE_FIELD_TEXT(text, "nccllog/nccl2.10-a100-4node-32gpu-opa.log");
  const NcclLog log = read_nccl_log(text, "log");
  EXPECT_EQ(log.versions, std::vector<std::string>{"2.10.3+cuda11.3"});
  ASSERT_EQ(log.communicators.size(), 1u);
  const NcclCommunicator& one = log.communicators.front();
  EXPECT_EQ(one.size, 32);
  EXPECT_EQ(one.ranks.size(), 32u);
  EXPECT_EQ(one.channels, 2);
  EXPECT_EQ(one.ranks.at(8).host, "node03");  // Slurm gave the second eight to node03
  EXPECT_EQ(one.ranks.at(25).host, "node02");
  EXPECT_EQ(transports(one, 0, 1), Names{"P2P/IPC/read"});
  EXPECT_EQ(transports(one, 7, 8), (Names{"NET/IB/1", "NET/IB/3"}));  // sent by adapter 3, received by 1
  EXPECT_EQ(transports(one, 31, 0), (Names{"NET/IB/1", "NET/IB/3"}));
  EXPECT_TRUE(transports(one, 0, 2).empty());
  EXPECT_EQ(one.rings.at(0).size(), 20u);  // all that this version prints
  EXPECT_EQ(one.trees.at(0).at(0).down, (Ranks{1, 16}));
  EXPECT_EQ(one.trees.at(1).at(0).up, 8);
}

TEST(NcclLog, FourHostsOfFourV100) {
  WIREWISE_FIELD_TEXT(text, "nccllog/nccl2.10-v100-4node-16gpu-opa.log");
  const NcclLog log = read_nccl_log(text, "log");
  ASSERT_EQ(log.communicators.size(), 1u);
  const NcclCommunicator& one = log.communicators.front();
  EXPECT_EQ(one.size, 16);
  EXPECT_EQ(one.rings.size(), 4u);
  EXPECT_EQ(one.rings.at(1), (Ranks{0, 3, 2, 1, 4, 7, 6, 5, 8, 11, 10, 9, 12, 15, 14, 13}));
  EXPECT_EQ(transports(one, 0, 4), Names{"NET/IB/1"});
  EXPECT_EQ(transports(one, 10, 14), Names{"NET/IB/3"});
  EXPECT_EQ(transports(one, 12, 13), Names{"P2P/IPC"});
}

TEST(NcclLog, TreesOf64RanksSayHowManyThereAre) {
  WIREWISE_FIELD_TEXT(text, "nccllog/nccl2.7-v100-16node-64gpu-rings-trees-only.log");
  const NcclLog log = read_nccl_log(text, "log");
  ASSERT_EQ(log.communicators.size(), 1u);
  const NcclCommunicator& one = log.communicators.front();
  EXPECT_EQ(one.size, 64);
  EXPECT_TRUE(one.links.empty());
  EXPECT_EQ(one.channels, 4);
  const int roots[] = {0, 2, 4, 6};
  for (int channel = 0; channel < 4; ++channel) EXPECT_EQ(one.trees.at(channel).at(roots[channel]).up, -1);
  EXPECT_EQ(one.trees.at(0).at(0).down, (Ranks{1, 32}));
  EXPECT_EQ(one.trees.at(0).at(40).down, (Ranks{41, 36, 44}));
}

TEST(NcclLog, GroupsOfFourInEachHostAreToldApart) {
  WIREWISE_FIELD_TEXT(text, "nccllog/megatron-3d-n16-single-rank-comms.log");
  const NcclLog log = read_nccl_log(text, "log");
  EXPECT_TRUE(log.partial);  // "... (cut)"
  int whole = 0;
  for (const NcclCommunicator& one : log.communicators) {
    EXPECT_EQ(one.merged, 1);
    EXPECT_EQ(one.size, 4);
    std::set<std::string> hosts;
    for (const auto& [rank, facts] : one.ranks) hosts.insert(facts.host);
    EXPECT_EQ(hosts.size(), 1u);
    int complete = 0;
    for (const auto& [rank, facts] : one.ranks) complete += facts.complete ? 1 : 0;
    whole += complete == 4 ? 1 : 0;
  }
  EXPECT_EQ(whole, 8);  // node05, 07, 08, 10, 12, 13, 14 and 15 finished on all four ranks
}

TEST(NcclLog, TwoCommunicatorsMixedLineByLine) {
  WIREWISE_FIELD_TEXT(text, "nccllog/megatron-ds-zero-n16-multi-comm-interleaved.log");
  const NcclLog log = read_nccl_log(text, "log");
  EXPECT_TRUE(log.partial);
  ASSERT_EQ(log.communicators.size(), 2u);
  const NcclCommunicator& small = log.communicators[0];
  EXPECT_EQ(small.size, 4);
  EXPECT_EQ(small.rings.size(), 12u);
  EXPECT_EQ(small.ranks.at(0).host, "node12");
  const NcclCommunicator& large = log.communicators[1];
  EXPECT_EQ(large.size, 64);
  int complete = 0;
  for (const auto& [rank, facts] : large.ranks) complete += facts.complete ? 1 : 0;
  EXPECT_EQ(complete, 41);
  EXPECT_EQ(transports(large, 12, 13), Names{"P2P/IPC"});
}

TEST(NcclLog, NewerLinesOfManySubsystems) {
  WIREWISE_FIELD_TEXT(text, "nccllog/nccl-docs-2.2x-by-subsystem.log");
  const NcclLog log = read_nccl_log(text, "log");
  EXPECT_EQ(log.settings.at("NCCL_SHM_DISABLE"), "1");
  EXPECT_TRUE(log.dmabuf);
  EXPECT_EQ(log.algorithms, Names{"AllReduce RING SIMPLE"});
  Names all;
  bool nvls = false;
  for (const NcclCommunicator& one : log.communicators) {
    nvls = nvls || one.nvls;
    for (const std::string& name : transports(one, 0, 1)) all.insert(name);
  }
  EXPECT_EQ(all, (Names{"SHM/direct/direct", "NET/Socket/0", "P2P/CUMEM"}));
  EXPECT_TRUE(nvls);
}

TEST(NcclLog, SharedMemoryThatRanOut) {
  WIREWISE_FIELD_TEXT(text, "nccllog/nccl2.4-shm-posix-fallocate-warn.log");
  const NcclLog log = read_nccl_log(text, "log");
  ASSERT_EQ(log.warnings.size(), 1u);
  EXPECT_EQ(log.warnings[0].line, 7);
  EXPECT_EQ(log.warnings[0].host, "hostA");
  EXPECT_EQ(log.warnings[0].place, "include/shm.h:28");
  EXPECT_EQ(log.warnings[0].text, "Call to posix_fallocate failed : No space left on device");
  EXPECT_EQ(transport_of(*transports(log.communicators.at(0), 3, 2).begin()), NcclTransport::kShared);
}

TEST(NcclLog, HealthReport) {
  WIREWISE_FIELD_TEXT(text, "nccllog/ras-status-256ranks.txt");
  const NcclLog log = read_nccl_log(text, "log");
  EXPECT_EQ(log.versions, std::vector<std::string>{"2.26.2+cuda12.4"});
  ASSERT_EQ(log.ras.size(), 2u);
  EXPECT_EQ(log.ras[0].second, "32 nodes, 8 processes a node, 1 GPUs a process, 256 GPUs");
  EXPECT_EQ(log.ras[1].second, "1 communicators of 256 ranks on 32 nodes: RUNNING OK");
}

// Hand-written from here.

const char* const kModern =
    "[2025-01-02 03:04:05] gpu-a:100:150 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId 0xabc - Init START\n"
    "1: gpu-b:200:250 [0] NCCL INFO ncclCommInitRank comm 0x2 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId 0xabc - Init START\n"
    "gpu-a:100:151 [1] NCCL INFO ncclCommInitRank comm 0x3 rank 0 nranks 2 cudaDev 1 nvmlDev 1 busId 2b000 commId 0xdef - Init START\n"
    "gpu-a:100:150 [0] NCCL INFO Channel 00/16 : 0 1\n"
    "gpu-a:100:150 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA\n"
    "gpu-a:100:150 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMAgpu-b:200:250 [0] NCCL INFO Channel 01/0 : 1[0] -> 0[0] [send] via NET/Socket/1\n"
    "gpu-a:100:150 [0] NCCL INFO 16 coll channels, 16 collnet channels, 8 nvls channels, 32 p2p channels, 2 p2p channels per peer\n"
    "gpu-a:100:150 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId 0xabc - Init COMPLETE\n"
    "gpu-a:100:151 [1] NCCL INFO Channel 03/0 : 0[1] -> 1[";

TEST(NcclLog, IdsTellCommunicatorsApartAndMixedLinesAreCut) {
  const NcclLog log = read_nccl_log(kModern, "log");
  ASSERT_EQ(log.communicators.size(), 2u);
  const NcclCommunicator& one = log.communicators[0];
  EXPECT_EQ(one.id, "0xabc");
  EXPECT_EQ(one.ranks.at(1).host, "gpu-b");
  EXPECT_EQ(transports(one, 0, 1), Names{"NET/IB/0/GDRDMA"});
  EXPECT_EQ(transports(one, 1, 0), (Names{"NET/IB/0/GDRDMA", "NET/Socket/1"}));
  EXPECT_EQ(one.nvls_channels, 8);
  EXPECT_EQ(log.communicators[1].id, "0xdef");
  EXPECT_TRUE(log.partial);
  ASSERT_FALSE(log.notes.empty());
  EXPECT_EQ(log.notes.back().line, 9);
}

TEST(NcclLog, ATimeGluedToAHostIsNoPartOfItsName) {
  const NcclLog log = read_nccl_log(
      "  | 2026-01-31T12:00:00.123-07:00 | node4:79:79 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.4<0>\n"
      "  | 2026-01-31T12:00:00.456-07:00node4:79:79 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.4<0>\n"
      "2026-01-31T12:00:00Znode4:79:79 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.4<0>\n",
      "t");
  ASSERT_EQ(log.interfaces.size(), 1u);
  EXPECT_EQ(log.interfaces.front().host, "node4");
}

TEST(NcclLog, ACommunicatorsNameThatIsCutOffMakesNoOther) {
  const auto begun = [](int rank, const std::string& id) {
    return "n" + std::to_string(rank) + ":7:9 [0] NCCL INFO ncclCommInitRank comm 0xa" + std::to_string(rank) + " rank " + std::to_string(rank) + " nranks 4 cudaDev 0 busId 1b000 commId " + id;
  };
  const std::string end = " - Init START\n";
  const NcclLog log = read_nccl_log(begun(0, "0x9f1234") + end + begun(1, "0x9f1234") + end + "n2:7:9 [0] NCCL INFO 8 coll channels, 0 collnet channels, 0 nvls channels, 8 p2p channels, 8 p2p channels per peer\n" + begun(3, "0x9f12"), "t");
  ASSERT_EQ(log.communicators.size(), 1u);
  EXPECT_EQ(log.communicators.front().id, "0x9f1234");
  EXPECT_EQ(log.communicators.front().ranks.size(), 3u);
  EXPECT_EQ(log.communicators.front().channels, 8);
  // Two names are two communicators, however much is missing of a third line.
  EXPECT_GE(read_nccl_log(begun(0, "0x9f1234") + end + begun(1, "0x77") + end + begun(3, "0x9f12"), "t").communicators.size(), 2u);
}

TEST(NcclLog, WhatIsLeftOfPyTorchsReport) {
  const NcclLog log = read_nccl_log("[rank0]: ncclInternalError: Internal check failed.\n[rank0]: Last error:\n[rank0]: Bootstrap : no socket interface found\n", "t");
  ASSERT_EQ(log.errors.size(), 1u);
  EXPECT_EQ(log.errors.front().what, "internal error");
  EXPECT_EQ(log.errors.front().last, "Bootstrap : no socket interface found");
  // The whole report is one error.
  EXPECT_EQ(read_nccl_log("[rank0]: torch.distributed.DistBackendError: NCCL error in: x.hpp:317, internal error, NCCL version 2.27.3\n[rank0]: ncclInternalError: Internal check failed.\n", "t").errors.size(), 1u);
}

TEST(NcclLog, RcclIsToldByWhatOnlyItWrites) {
  const NcclLog tree = read_nccl_log("n1:26:76 [0] NCCL INFO CPU/0 (1/2/4)\nn1:26:76 [0] NCCL INFO     + XGMI[24.0] - GPU/4C000\n", "t");
  EXPECT_TRUE(tree.rccl);
  ASSERT_EQ(tree.communicators.size(), 1u);
  EXPECT_TRUE(tree.communicators.front().nvlink);
  EXPECT_TRUE(read_nccl_log("n1:1:2 [0] NCCL INFO Channel 00/0 : 1[c6000] -> 0[c1000] via P2P/IPC comm 0x95cd nRanks 08\n", "t").rccl);
  const NcclLog named = read_nccl_log("RCCL version : 2.22.3-develop:83d38d9\nn1:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/IPC\n", "t");
  EXPECT_TRUE(named.rccl);
  ASSERT_EQ(named.versions.size(), 1u);
  EXPECT_EQ(named.versions.front().substr(0, 6), "2.22.3");
  EXPECT_FALSE(read_nccl_log("NCCL version 2.21.5+cuda12.4\nn1:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/IPC\n", "t").rccl);
}

TEST(NcclLog, RefusesWhatIsNoLog) {
  EXPECT_THROW((void)read_nccl_log("", "log"), Error);
  EXPECT_THROW((void)read_nccl_log("GPU0 GPU1\nhello\n", "log"), Error);
}

TEST(NcclLog, NoTextBreaksTheReader) {
  std::vector<std::string> pieces;  // of logs that are long
  for (const std::string& text : fuzz::with_field({kModern}, "nccllog")) {
    for (std::size_t at = 0; at < text.size(); at += 6000) pieces.push_back(text.substr(at, 6000));
  }
  fuzz::run(pieces, {" -> ", "[", "]", ":", "/", "Channel 00/02 :", "Trees [0] 1/-1/-1->0->-1", "nranks", "rank", "commId", "Init COMPLETE", "NCCL INFO", "NCCL WARN", "via", "-1", "99999999999999999999", "\n"}, [](const std::string& text) {
    for (const NcclCommunicator& one : read_nccl_log(text, "fuzz").communicators) ASSERT_GE(one.size, 0);
  });
}

}  // namespace
}  // namespace wirewise
