// The checks of `wirewise doctor` on facts made up one fault at a time, and the command on this machine.
#include "wirewise/cli/doctor_machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "wiring/machine_tree.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/host_template.h"
#include "wirewise/wiring/write.h"

namespace wirewise {
namespace {

using testing::MachineTree;
using testing_support::Program;

/// A machine with nothing wrong.
MachineFacts sound(const MachineTree& tree) {
  MachineFacts facts;
  facts.machine = inspect_machine({tree.root(), "/nowhere"});
  facts.reading = wire(facts.machine);
  facts.shm_size = facts.shm_free = 64 * kGiB;
  facts.own_addresses = {"10.0.0.7"};
  facts.interfaces = {{"ens3", 2, true, false, 25000, {"10.0.0.7"}, {}}};
  facts.chosen = comm::NetworkInterface{"ens3", "10.0.0.7", "it is the only one fit for it", {}, false};
  facts.cores = 8;
  facts.ranks = 3;
  facts.machine.gpudirect.peer_memory = "nvidia_peermem";
  return facts;
}

struct Sound : ::testing::Test {
  Sound() {
    tree.trainer();
    facts = sound(tree);
  }
  MachineTree tree;
  MachineFacts facts;
};
using DoctorMachine = Sound;

std::string titles(const std::vector<Finding>& findings) {
  std::string all;
  for (const Finding& finding : findings) all += std::string(name_of(finding.severity)) + ": " + finding.title + " " + finding.evidence + " " + finding.remedy + "\n";
  return all;
}
bool has(const std::vector<Finding>& findings, Severity severity, const std::string& words) {
  for (const Finding& finding : findings) {
    if (finding.severity == severity && (finding.title + finding.evidence + finding.remedy).find(words) != std::string::npos) return true;
  }
  return false;
}

TEST_F(DoctorMachine, NothingIsWrongWithASoundOne) {
  for (const Finding& finding : diagnose_machine(facts)) EXPECT_EQ(finding.severity, Severity::kInfo) << finding.title << " " << finding.evidence;
}

TEST_F(DoctorMachine, DockersSharedMemoryIsTooSmallForFourRanks) {
  facts.container = true;
  facts.ranks = 4;
  facts.shm_size = facts.shm_free = 64 * kMiB;  // 4 * 3 segments of 9,637,888 B are 110 MiB
  const auto findings = check_shared_memory(facts);
  EXPECT_TRUE(has(findings, Severity::kError, "/dev/shm")) << titles(findings);
  EXPECT_TRUE(has(findings, Severity::kError, "9637888 B"));
  EXPECT_TRUE(has(findings, Severity::kError, "--shm-size"));
  EXPECT_TRUE(has(findings, Severity::kError, "--ipc=host"));
  facts.shm_free = 512 * kMiB;
  EXPECT_TRUE(has(check_shared_memory(facts), Severity::kWarning, "data loaders"));
  facts.shm_writable = false;
  EXPECT_TRUE(has(check_shared_memory(facts), Severity::kError, "/dev/shm can't be written."));
  facts.shm_size.reset();
  EXPECT_TRUE(has(check_shared_memory(facts), Severity::kWarning, "no /dev/shm"));
}

TEST_F(DoctorMachine, LockedMemoryMattersWithRdma) {
  facts.memlock = 8 * kMiB;
  EXPECT_TRUE(has(check_memlock(facts), Severity::kError, "8.00 MiB"));
  facts.machine.rdma.clear();
  EXPECT_TRUE(check_memlock(facts).empty());
}

TEST_F(DoctorMachine, ALinkBelowItsWidthOrGeneration) {
  for (PciDevice& device : facts.machine.pci) {
    if (device.address == "0000:3e:00.0") device.lanes = 8;
    if (device.address == "0000:3f:00.0") device.generation = 3;
    if (device.address == "0000:3d:00.0") device.generation = 1;  // idle
  }
  const auto findings = check_pcie_links(facts);
  EXPECT_TRUE(has(findings, Severity::kWarning, "GPU1 (0000:3e:00.0) runs on fewer PCIe lanes than it could.x8 of x16")) << titles(findings);
  EXPECT_TRUE(has(findings, Severity::kWarning, "mlx5_0 (0000:3f:00.0) runs its PCIe link at a lower generation"));
  EXPECT_TRUE(has(findings, Severity::kInfo, "GPU0 (0000:3d:00.0) runs its PCIe link at a lower generation"));
}

TEST_F(DoctorMachine, ASlotThatIsNarrowerThanItsCardIsNoFault) {
  std::string above;
  for (PciDevice& device : facts.machine.pci) {
    if (device.address == "0000:3e:00.0") {
      device.lanes = 8;
      above = device.above.empty() ? "" : device.above.back();
    }
  }
  ASSERT_FALSE(above.empty());
  for (PciDevice& device : facts.machine.pci) {
    if (device.address == above) device.most_lanes = 8;
  }
  const auto findings = check_pcie_links(facts);
  EXPECT_TRUE(has(findings, Severity::kInfo, "GPU1 (0000:3e:00.0) sits in a slot of fewer lanes than it has.The card has x16, its slot x8.")) << titles(findings);
  EXPECT_FALSE(has(findings, Severity::kWarning, "GPU1 (0000:3e:00.0) runs on fewer PCIe lanes")) << titles(findings);
}

TEST_F(DoctorMachine, ASlotOfAnOlderGenerationIsNoFault) {
  std::string above;
  for (PciDevice& device : facts.machine.pci) {
    if (device.address != "0000:3f:00.0") continue;
    device.generation = 3;
    above = device.above.empty() ? "" : device.above.back();
  }
  ASSERT_FALSE(above.empty());
  ASSERT_TRUE(has(check_pcie_links(facts), Severity::kWarning, "mlx5_0 (0000:3f:00.0) runs its PCIe link at a lower generation"));
  for (PciDevice& device : facts.machine.pci) {
    if (device.address == above) device.most_generation = 3;
  }
  EXPECT_FALSE(has(check_pcie_links(facts), Severity::kWarning, "mlx5_0 (0000:3f:00.0) runs its PCIe link")) << titles(check_pcie_links(facts));
}

TEST_F(DoctorMachine, AcsAndIommuInTheWayOfPeerToPeer) {
  for (PciDevice& device : facts.machine.pci) {
    if (device.type >> 8 == 0x0604) device.acs = 0;
  }
  EXPECT_TRUE(check_peer_to_peer(facts).empty());
  for (PciDevice& device : facts.machine.pci) {
    if (device.address == "0000:3c:04.0") device.acs = 0x1d;
    if (device.address == "0000:b0:01.0") device.acs = 0x1d;  // a root port: nothing passes it from peer to peer
    if (device.address == "0000:3d:00.0") device.iommu = "DMA-FQ";
  }
  const auto findings = check_peer_to_peer(facts);
  EXPECT_TRUE(has(findings, Severity::kError, "0000:3c:04.0")) << titles(findings);
  EXPECT_FALSE(has(findings, Severity::kError, "0000:b0:01.0"));
  EXPECT_TRUE(has(findings, Severity::kWarning, "iommu=pt"));
}

TEST_F(DoctorMachine, ReadsAcsFromTheConfigurationSpaceOfTheSwitch) {
  const std::string switch_ports = "pci0000:3a/0000:3a:00.0/0000:3b:00.0/";
  const auto look = [&] { return check_peer_to_peer(gather_machine_facts({tree.root(), "/nowhere"}, 0)); };
  tree.config("pci0000:3a/0000:3a:00.0", 0x1d);  // the root port's: nothing passes it from peer to peer
  tree.config("pci0000:3a/0000:3a:00.0/0000:3b:00.0", std::nullopt);
  tree.config(switch_ports + "0000:3c:00.0", 0x10);  // upstream forwarding alone
  tree.config(switch_ports + "0000:3c:04.0", 0x00);
  tree.config(switch_ports + "0000:3c:08.0", 0x1d);  // the NIC's
  EXPECT_TRUE(look().empty()) << titles(look());
  for (const unsigned redirect : {0x04U, 0x08U, 0x1dU}) {
    tree.config(switch_ports + "0000:3c:04.0", redirect);
    const auto findings = look();
    ASSERT_EQ(findings.size(), 1U) << titles(findings);
    EXPECT_EQ(findings[0].severity, Severity::kError);
    EXPECT_NE(findings[0].evidence.find("at the switch ports 0000:3c:04.0."), std::string::npos) << findings[0].evidence;
    EXPECT_NE(findings[0].remedy.find("setpci (ECAP_ACS+6.w=0)"), std::string::npos) << findings[0].remedy;
  }
}

TEST_F(DoctorMachine, SaysThatAcsCannotBeSeenWithoutRoot) {
  const std::string switch_ports = "pci0000:3a/0000:3a:00.0/0000:3b:00.0/";
  const auto fill = [&](std::size_t bytes) {
    tree.config("pci0000:3a/0000:3a:00.0/0000:3b:00.0", 0x1d, bytes);
    for (const char* port : {"0000:3c:00.0", "0000:3c:04.0", "0000:3c:08.0"}) tree.config(switch_ports + port, 0x1d, bytes);
  };
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{256}}) {  // without root; a kernel without the extended space
    fill(bytes);
    const auto findings = check_peer_to_peer(gather_machine_facts({tree.root(), "/nowhere"}, 0));
    ASSERT_EQ(findings.size(), 1U) << titles(findings);
    EXPECT_EQ(findings[0].severity, Severity::kInfo);
    EXPECT_NE(findings[0].title.find("can't be seen"), std::string::npos);
    EXPECT_NE(findings[0].remedy.find("as root"), std::string::npos);
  }
  // A port that sleeps too deeply reads as ones: nothing is known of it either.
  for (const char* port : {"0000:3c:00.0", "0000:3c:04.0", "0000:3c:08.0"}) tree.write("sys/devices/" + switch_ports + port + "/config", std::string(4096, '\xff'));
  tree.config("pci0000:3a/0000:3a:00.0/0000:3b:00.0", 0);
  EXPECT_TRUE(has(check_peer_to_peer(gather_machine_facts({tree.root(), "/nowhere"}, 0)), Severity::kInfo, "can't be seen"));
  // Chains that lead in a circle or out of the space end.
  for (const unsigned long next : {0x100UL, 0xffcUL, 0x0ffUL}) {
    std::string space(4096, '\0');
    const unsigned long header = 0x0001 | 1UL << 16 | next << 20;
    for (std::size_t i = 0; i < 4; ++i) space[0x100 + i] = static_cast<char>(header >> (8 * i) & 0xff);
    for (const char* port : {"0000:3c:00.0", "0000:3c:04.0", "0000:3c:08.0"}) tree.write("sys/devices/" + switch_ports + port + "/config", space);
    EXPECT_TRUE(check_peer_to_peer(gather_machine_facts({tree.root(), "/nowhere"}, 0)).empty());
  }
}

TEST_F(DoctorMachine, RdmaAndGpuDirectThatAreNotUsed) {
  facts.machine.gpudirect = {};
  EXPECT_TRUE(has(check_rdma(facts), Severity::kWarning, "No GPUDirect RDMA"));
  facts.machine.gpudirect.open_module = true;
  EXPECT_TRUE(has(check_rdma(facts), Severity::kWarning, "No GPUDirect RDMA"));  // dma-buf needs the kernel, too
  facts.machine.gpudirect.dmabuf_kernel = true;
  EXPECT_TRUE(check_rdma(facts).empty());
  facts.machine.rdma.front().state = "DOWN";
  EXPECT_TRUE(has(check_rdma(facts), Severity::kWarning, "mlx5_0:1 is DOWN"));
  facts.machine.rdma.clear();
  EXPECT_TRUE(has(check_rdma(facts), Severity::kWarning, "0000:3f:00.0"));
  for (PciDevice& device : facts.machine.pci) device.virtual_function = true;
  EXPECT_FALSE(has(check_rdma(facts), Severity::kWarning, "0000:3f:00.0"));  // which a guest may have instead
}

TEST_F(DoctorMachine, AGpuFarFromEveryNic) {
  EXPECT_TRUE(check_wiring(facts.reading.wiring).empty());
  Machine machine = facts.machine;
  std::erase_if(machine.pci, [](const PciDevice& device) { return device.address == "0000:b2:00.0"; });
  EXPECT_TRUE(has(check_wiring(wire(machine).wiring), Severity::kWarning, "GPU2 (0000:b1:00.0)"));
}

TEST(CheckWiring, ANicOnAnotherBridgeOfTheSameNodeIsNotFar) {
  const auto far = [](const std::string& way) {
    const Wiring wiring = read_nvidia_topo("\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tNODE\tPIX\t0-3\t0\nGPU1\tNODE\tX\t" + way + "\t0-3\t0\nmlx5_0\tPIX\t" + way + "\tX\t\t\n", "topo").wiring;
    return has(check_wiring(wiring), Severity::kWarning, "GPUs are far from every NIC.");
  };
  EXPECT_FALSE(far("NODE"));
}

TEST_F(DoctorMachine, AGpuThatDiffersFromItsPeers) {
  for (PciDevice& device : facts.machine.pci) {
    if (device.address == "0000:b1:00.0") device.lanes = 4;
  }
  EXPECT_TRUE(has(check_wiring(wire(facts.machine).wiring), Severity::kWarning, "GPU2 (0000:b1:00.0): PCIe 4 x4; the other 2: PCIe 4 x16"));
}

TEST(CheckWiring, HalvesThatDifferHaveNoOddOnes) {
  const auto models = [](const std::string& last) {
    return read_wiring("GPU 0: NVIDIA A40 (UUID: GPU-a)\nGPU 1: NVIDIA A40 (UUID: GPU-b)\nGPU 2: NVIDIA L40S (UUID: GPU-c)\nGPU 3: " + last + " (UUID: GPU-d)\n", "f").wiring;
  };
  EXPECT_TRUE(has(check_wiring(models("NVIDIA A40")), Severity::kWarning, "GPUs are of another model"));
  EXPECT_FALSE(has(check_wiring(models("NVIDIA L40S")), Severity::kWarning, "GPUs are of another model"));
}

/// nvidia-smi -q of one GPU at generation 3 of 4, on 8 of 16 lanes.
std::string smi_q(const std::string& state, const std::string& more = {}, const std::string& width = "8x", const std::string& most_width = "16x", const std::string& slot = "N/A") {
  return "==============NVSMI LOG==============\n\nAttached GPUs : 1\nGPU 00000000:01:00.0\n    Product Name : NVIDIA A40\n    PCI\n        GPU Link Info\n            PCIe Generation\n"
         "                Max : 4\n                Current : 3\n                Host Max : " + slot + "\n            Link Width\n                Max : " + most_width + "\n                Current : " + width +
         "\n    Performance State : " + state + "\n" + more;
}

TEST(DoctorFrom, ALinkBelowWhatItCouldIsAWarningWhereIdlingDoesNotExplainIt) {
  const auto warned = [](const std::string& text, const std::string& words) {
    for (const Finding& finding : check_reading(read_wiring(text, "smiq.txt"), "smiq.txt")) {
      if (finding.severity == Severity::kWarning && finding.title.find(words) != std::string::npos) return !finding.remedy.empty();
    }
    return false;
  };
  const std::string generation = "runs at generation 3 of 4", width = "has 8 lanes of 16";
  EXPECT_TRUE(warned(smi_q("P0"), generation));
  EXPECT_TRUE(warned(smi_q("P0"), width));
  EXPECT_FALSE(warned(smi_q("P8"), generation));  // GPUs slow their link while they idle
  EXPECT_TRUE(warned(smi_q("P8"), width));        // but give no lanes up
  EXPECT_TRUE(warned(smi_q("P8", "    Utilization\n        Gpu : 35 %\n"), generation));
  EXPECT_FALSE(warned(smi_q("P8", "    Utilization\n        Gpu : 0 %\n"), generation));
  EXPECT_FALSE(warned(smi_q("P0", "    Clocks Event Reasons\n        Idle : Active\n"), generation));
  EXPECT_FALSE(warned(smi_q("P0", "", "8x", "8x"), "lanes"));       // a slot of eight
  EXPECT_FALSE(warned(smi_q("P0", "", "8x", "8x", "3"), "generation"));  // of PCIe 3
  const std::string head = "index, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, pcie.link.width.max, pstate, utilization.gpu [%]\n";
  EXPECT_TRUE(warned(head + "0, 3, 4, 8, 16, P8, 12 %\n", generation));
  EXPECT_FALSE(warned(head + "0, 3, 4, 8, 16, P8, 0 %\n", generation));
  EXPECT_TRUE(warned(head + "0, 3, 4, 8, 16, P8, 0 %\n", width));
  // Said once more by our own dump, and of each of several hosts.
  EXPECT_TRUE(warned(write_json(read_wiring(smi_q("P0"), "f")), generation));
  std::string two;
  for (const std::string host : {"n1", "n2"}) {
    for (const std::string& line : split(smi_q("P0"), '\n')) two += host + ": " + line + "\n";
  }
  EXPECT_TRUE(warned(two, "n2: GPU0's PCIe link " + generation));
}

TEST(DoctorFrom, WorstFirstWithTheLine) {
  Reading reading;
  reading.notes = {{3, 0, "a remark.", ""}, {7, 0, "it is broken.", "Mend it."}, {0, 0, "another remark.", ""}};
  const std::vector<Finding> findings = check_reading(reading, "file");
  ASSERT_EQ(findings.size(), 3U);
  EXPECT_EQ(findings[0].title, "it is broken.");
  EXPECT_EQ(findings[0].evidence, "file:7");
  EXPECT_EQ(findings[1].evidence, "file:3");
  EXPECT_EQ(findings[2].evidence, "file");
}

TEST(DoctorFrom, WhatAFileSaysIsWrongHasARemedy) {
  const std::string text = smi_q("P0", "    Remapped Rows\n        Pending : Yes\n        Remapping Failure Occurred : Yes\n    Clocks Event Reasons\n        HW Slowdown : Active\n    Fabric\n        State : In Progress\n"
                                       "    ECC Errors\n        Volatile\n            DRAM Uncorrectable : 3\n", "16x");
  std::size_t warnings = 0;
  for (const Finding& finding : check_reading(read_wiring(text, "f"), "f")) {
    warnings += finding.severity == Severity::kWarning ? 1 : 0;
    EXPECT_FALSE(finding.severity == Severity::kWarning && finding.remedy.empty()) << finding.title;
  }
  EXPECT_EQ(warnings, 6U);  // generation, rows that wait, rows that failed, slowed, fabric, memory
}

TEST_F(DoctorMachine, NamesAndInterfaces) {
  facts.own_addresses = {"127.0.1.1"};
  EXPECT_TRUE(has(check_host_name(facts), Severity::kWarning, "trainer7 is 127.0.1.1"));
  for (const char* address : {"127.0.1.1", "127.0.0.1"}) {  // Debian's line, and Fedora's
    facts.own_addresses = {address};
    const std::vector<Finding> findings = check_host_name(facts);
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_NE(findings[0].remedy.find(std::string("in place of ") + address + ","), std::string::npos) << findings[0].remedy;
  }
  facts.own_addresses = {"127.0.1.1", "10.0.0.7"};  // others reach one of them
  EXPECT_TRUE(check_host_name(facts).empty());
  facts.own_addresses = {};
  EXPECT_TRUE(has(check_host_name(facts), Severity::kWarning, "can't be resolved"));
  facts.machine.net.push_back({"ens4", "0000:b2:00.1", "up", 25000, false});
  facts.interfaces.push_back({"ens4", 3, true, false, 25000, {"192.168.0.7"}, {}});
  EXPECT_TRUE(has(check_interfaces(facts), Severity::kInfo, "ens3 (10.0.0.7), ens4 (192.168.0.7)"));
  facts.variables["WIREWISE_NET"] = "ens3";
  EXPECT_TRUE(check_interfaces(facts).empty());
  facts.variables.clear();
  // No PCI devices themselves: bonds and VLANs lead to other hosts, bridges and tunnels don't.
  for (const char* name : {"docker0", "cali12ab", "tailscale0", "bond0"}) facts.interfaces.push_back({name, 4, true, false, 25000, {"172.17.0.1"}, {}});
  const std::string found = titles(check_interfaces(facts));
  EXPECT_NE(found.find("bond0 (172.17.0.1)"), std::string::npos) << found;
  for (const char* name : {"docker0", "cali12ab", "tailscale0"}) EXPECT_EQ(found.find(name), std::string::npos) << found;
}

TEST_F(DoctorMachine, MoreRanksThanCoresAndGpus) {
  EXPECT_TRUE(check_cores(facts).empty());
  facts.variables["OMP_NUM_THREADS"] = "4";
  EXPECT_TRUE(has(check_cores(facts), Severity::kWarning, "Set OMP_NUM_THREADS=2."));
  facts.ranks = 0;
  facts.variables["OMP_NUM_THREADS"] = "64";
  facts.reading.wiring = {};  // without GPUs one rank at least is meant
  facts.reading.wiring.devices.emplace_back();
  EXPECT_TRUE(has(check_cores(facts), Severity::kWarning, "1 rank of 64 threads is more than 8 cores."));
  facts.reading = wire(facts.machine);
  facts.ranks = 3;
  facts.limits.cpus = 2.0;
  EXPECT_TRUE(has(check_cores(facts), Severity::kWarning, "allows 2 of the 8 CPUs"));
  EXPECT_TRUE(has(check_cores(facts), Severity::kWarning, "3 ranks share 2 cores."));
  facts.ranks = 4;
  EXPECT_TRUE(has(check_visible_gpus(facts), Severity::kError, "4 ranks, but 3 GPUs."));
  facts.variables["CUDA_VISIBLE_DEVICES"] = "0,1,1";
  EXPECT_TRUE(has(check_visible_gpus(facts), Severity::kError, "A GPU is named twice."));
  facts.ranks = 2;
  facts.variables["CUDA_VISIBLE_DEVICES"] = "0,3,1";  // of GPUs 0 to 2: CUDA shows GPU 0 alone
  EXPECT_TRUE(has(check_visible_gpus(facts), Severity::kError, "There is no GPU 3."));
  EXPECT_TRUE(has(check_visible_gpus(facts), Severity::kError, "2 ranks, but 1 GPUs."));
  facts.variables["CUDA_VISIBLE_DEVICES"] = "2,0";
  EXPECT_TRUE(check_visible_gpus(facts).empty());
}

TEST_F(DoctorMachine, WorstFirst) {
  facts.variables = {{"NCCL_NVLS_ENABLE", "0"}, {"NCCL_ALGO", "Ring"}, {"NCCL_SOCKET_IFNAME", "lo"}};  // information, warning, error
  std::vector<Severity> order;
  for (const Finding& finding : diagnose_machine(facts)) order.push_back(finding.severity);
  order.erase(std::unique(order.begin(), order.end()), order.end());
  EXPECT_EQ(order, (std::vector<Severity>{Severity::kError, Severity::kWarning, Severity::kInfo}));
}

TEST_F(DoctorMachine, VariablesThatHurt) {
  const std::map<std::string, std::string> bad{{"NCCL_P2P_DISABLE", "1"}, {"NCCL_IB_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "1"}, {"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_ALGO", "Ring"},
                                               {"NCCL_PROTO", "LL128"},   {"NCCL_DEBUG", "TRACE"}};
  for (const auto& [name, value] : bad) {
    facts.variables = {{name, value}};
    const auto findings = check_variables(facts);
    ASSERT_EQ(findings.size(), 1u) << name;
    EXPECT_EQ(findings[0].evidence, name + "=" + value + " in the environment.");
  }
  for (const char* name : {"docker0", "=docker0", "veth12,ens3", "br-0a1b2c3d4e5f"}) {
    facts.variables = {{"NCCL_SOCKET_IFNAME", name}};
    EXPECT_TRUE(has(check_variables(facts), Severity::kError, "interface of containers")) << name;
  }
  facts.variables = {{"NCCL_P2P_DISABLE", "0"}, {"NCCL_DEBUG", "INFO"}, {"NCCL_SOCKET_IFNAME", "^docker0,lo"}};
  EXPECT_TRUE(check_variables(facts).empty());
  facts.variables = {{"NCCL_SOCKET_IFNAME", "br-ex"}};  // OpenShift's way out
  EXPECT_TRUE(check_variables(facts).empty());
  facts.variables = {{"NCCL_P2P_DISABLE", "0"}, {"NCCL_DEBUG", "INFO"}, {"NCCL_SOCKET_IFNAME", "ens3"}};
  EXPECT_TRUE(check_variables(facts).empty());
}

TEST_F(DoctorMachine, AdaptersThatNcclIsToldOfAndThatAreNotThere) {
  const std::string there = facts.machine.rdma.front().device;
  for (const std::string& list : {there, "=" + there + ":1", std::string("^mlx5_77"), there.substr(0, there.size() - 1)}) {
    facts.variables = {{"NCCL_IB_HCA", list}};
    EXPECT_FALSE(has(check_rdma(facts), Severity::kWarning, "NCCL_IB_HCA")) << list;
  }
  for (const std::string& list : {std::string("mlx5_77"), "=" + there + ":1,mlx5_77:1"}) {
    facts.variables = {{"NCCL_IB_HCA", list}};
    EXPECT_TRUE(has(check_rdma(facts), Severity::kWarning, "there is no mlx5_77.")) << list;
    EXPECT_TRUE(has(check_rdma(facts), Severity::kWarning, "Its adapters are " + there)) << titles(check_rdma(facts));
  }
  facts.variables = {{"NCCL_IB_HCA", "=" + there.substr(0, there.size() - 1)}};  // with "=" these very names
  EXPECT_TRUE(has(check_rdma(facts), Severity::kWarning, "aren't here"));
}

TEST(DoctorCommand, ExitsWithOneForErrorsAlone) {
  Program fine({"doctor", "--json"}, {{"NCCL_ALGO", "Ring"}, {"NCCL_SOCKET_IFNAME", ""}, {"MASTER_PORT", ""}});
  const int code = fine.wait();
  const auto findings = nlohmann::json::parse(fine.out()).at("findings");
  bool error = false;
  for (const auto& finding : findings) error = error || finding.at("severity") == "error";
  EXPECT_EQ(code, error ? 1 : 0);
  Program wrong({"doctor", "--json"}, {{"NCCL_SOCKET_IFNAME", "lo"}});
  EXPECT_EQ(wrong.wait(), 1);
  EXPECT_NE(wrong.out().find("NCCL_SOCKET_IFNAME=lo"), std::string::npos);
}

TEST(DoctorCommand, RanksAreForThisMachine) {
  testing_support::Program program({"doctor", "--from", "dgx-1", "--ranks", "2"});
  EXPECT_EQ(program.wait(), 2) << program.out();
  EXPECT_NE(program.err().find("--ranks is for this machine"), std::string::npos) << program.err();
}

TEST(DoctorCommand, ReadsTheWiringOfAFile) {
  MachineTree tree;
  tree.write("topo", "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tSYS\tPIX\t0-3\t0\nGPU1\tSYS\tX\tSYS\t4-7\t1\nNIC0\tPIX\tSYS\tX\t\t\n");
  Program program({"doctor", "--from", (tree.root() / "topo").string()});
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_NE(program.out().find("GPU1: the nearest NIC is on another NUMA node"), std::string::npos) << program.out();
}

TEST(DoctorCommand, ExplainsAnNcclLog) {
  MachineTree tree;
  tree.write("log", "a:1:1 [0] NCCL INFO Channel 00 : 0[1a000] -> 1[1b000] via SHM/direct/direct\n\na:1:2 [1] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device\n");
  Program program({"doctor", "nccl", (tree.root() / "log").string(), "--json"});
  EXPECT_EQ(program.wait(), 1);
  EXPECT_NE(program.out().find(R"("from":0,"to":1,"transport":"SHM/direct/direct")"), std::string::npos) << program.out();
  EXPECT_NE(program.out().find("--shm-size=8g or --ipc=host"), std::string::npos);
  Program none({"doctor", "nccl", (tree.root() / "absent").string()});
  EXPECT_EQ(none.wait(), 2);
}

TEST(DoctorCommand, RanksMayHaveALogEach) {
  MachineTree tree;
  // As NCCL_DEBUG_FILE=nccl.%h.%p leaves them; the first ends without a newline.
  tree.write("nccl.a.1", "a:1:1 [0] NCCL INFO Channel 00 : 0[1a000] -> 1[1b000] via SHM/direct/direct");
  tree.write("nccl.a.2", "a:2:2 [1] NCCL INFO Channel 00 : 1[1b000] -> 0[1a000] via P2P/IPC\n");
  Program program({"doctor", "nccl", (tree.root() / "nccl.a.1").string(), (tree.root() / "nccl.a.2").string(), "--json"});
  program.wait();
  EXPECT_NE(program.out().find(R"("from":0,"to":1,"transport":"SHM/direct/direct")"), std::string::npos) << program.out() << program.err();
  EXPECT_NE(program.out().find(R"("from":1,"to":0,"transport":"P2P/IPC")"), std::string::npos) << program.out();
  Program none({"doctor", "nccl", (tree.root() / "nccl.a.1").string(), (tree.root() / "absent").string()});
  EXPECT_EQ(none.wait(), 2);
  EXPECT_NE(none.err().find("absent"), std::string::npos);
}

TEST(DoctorCommand, ComparesAnNcclLogWithAnotherSource) {
  // The log of a virtual machine says PIX of every GPU; nvidia-smi says that half of them are on the other socket.
  MachineTree tree;
  std::string log;
  for (int gpu = 0; gpu < 2; ++gpu) log += "gpu0:1" + std::to_string(gpu) + ":2 [" + std::to_string(gpu) + "] NCCL INFO CUDA Dev 0[" + std::to_string(gpu) + "], IB NIC distance :  PIX\n";
  tree.write("log", log);
  const auto topo = [&](const std::string& of_gpu1) {
    tree.write("topo", "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\nGPU0\tX\tSYS\tPIX\t0-3\nGPU1\tSYS\tX\t" + of_gpu1 + "\t4-7\nmlx5_0\tPIX\t" + of_gpu1 + "\tX\t\n");
    Program program({"doctor", "nccl", (tree.root() / "log").string(), "--from", (tree.root() / "topo").string()});
    EXPECT_EQ(program.wait(), 0) << program.err();
    return program.out();
  };
  const std::string differ = topo("SYS");
  EXPECT_NE(differ.find("warning: NCCL and"), std::string::npos) << differ;
  EXPECT_NE(differ.find("GPU1 on gpu0: PIX in the log, SYS in "), std::string::npos) << differ;
  EXPECT_EQ(differ.find("GPU0 on"), std::string::npos) << differ;
  tree.write("log", log + "gpu0:11:2 [1] NCCL INFO CUDA Dev 0[1], IB NIC distance :  SOC\n");
  EXPECT_NE(topo("PIX").find("GPU1 on gpu0: SYS in the log, PIX in "), std::string::npos);
  tree.write("log", log);
  EXPECT_NE(topo("PIX").find("agree"), std::string::npos);
  tree.write("log", "a:1:1 [0] NCCL INFO Channel 00 : 0[1a000] -> 1[1b000] via SHM/direct/direct\n");
  EXPECT_NE(topo("PIX").find("say nothing about the same"), std::string::npos);
}

TEST(DoctorCommand, NamesTheGpuWhoseNvlinksDifferFromItsPeers) {
  // One of eight has a single NVLink that leads nowhere known: its peers have 18 to the switch.
  Wiring wiring = shipped_host("hgx-h100").wiring;
  EXPECT_TRUE(check_wiring(wiring).empty()) << titles(check_wiring(wiring));
  const int gpu = find_device(wiring, "GPU3", 0);
  for (Link& link : wiring.links) {
    if (link.kind == LinkKind::kNvlink && (link.from == gpu || link.to == gpu)) link.lanes = 1;
  }
  EXPECT_TRUE(has(check_wiring(wiring), Severity::kWarning, "GPU3: 1 NVLinks; the other 7: 18 NVLinks")) << titles(check_wiring(wiring));
}

}  // namespace
}  // namespace wirewise
