// Outputs as the tools print them, written by hand: each small, with what its reader must tell apart.
#pragma once

#include <string_view>

namespace wirewise::posted {

/// Two GPUs: one at work at a slow link with half its lanes, divided by MIG, its fabric not up; one that rests.
inline constexpr std::string_view kNvidiaReport = R"TEXT(==============NVSMI LOG==============

Timestamp                                 : Fri Nov 20 10:33:13 2020
Driver Version                            : 535.104.05
CUDA Version                              : 12.2

Attached GPUs                             : 2
GPU 00000000:17:00.0
    Product Name                          : NVIDIA A40
    Persistence Mode                      : Enabled
    MIG Mode
        Current                           : Enabled
        Pending                           : Enabled
    MIG Devices
        MIG Device
            Index                         : 0
            FB Memory Usage
                Total                     : 4864 MiB
                Used                      : 1 MiB
    GPU UUID                              : GPU-1
    PCI
        Bus Id                            : 00000000:17:00.0
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 1
                Device Max                : 4
                Host Max                  : 5
            Link Width
                Max                       : 16x
                Current                   : 8x
    Performance State                     : P0
    FB Memory Usage
        Total                             : 46068 MiB
        Used                              : 4 MiB
    ECC Mode
        Current                           : Enabled
    Fabric
        State                             : In Progress
        Status                            : N/A
    Processes                             : None

GPU 00000000:65:00.0
    Product Name                          : NVIDIA A40
    PCI
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 1
            Link Width
                Max                       : 16x
                Current                   : 16x
    Performance State                     : P8
)TEXT";

/// The same machine as XML: the first GPU works at generation 3 of 4, the second waits for a reset.
inline constexpr std::string_view kNvidiaXml = R"TEXT(<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<driver_version>535.104.05</driver_version>
	<attached_gpus>2</attached_gpus>
	<gpu id="00000000:17:00.0">
		<product_name>NVIDIA A40</product_name>
		<mig_mode>
			<current_mig>Disabled</current_mig>
		</mig_mode>
		<pci>
			<pci_bus_id>00000000:17:00.0</pci_bus_id>
			<pci_gpu_link_info>
				<pcie_gen>
					<max_link_gen>4</max_link_gen>
					<current_link_gen>3</current_link_gen>
				</pcie_gen>
				<link_widths>
					<max_link_width>16x</max_link_width>
					<current_link_width>16x</current_link_width>
				</link_widths>
			</pci_gpu_link_info>
		</pci>
		<performance_state>P0</performance_state>
		<fb_memory_usage>
			<total>46068 MiB</total>
		</fb_memory_usage>
		<ecc_mode>
			<current_ecc>Enabled</current_ecc>
		</ecc_mode>
		<processes>
			<process_info>
				<process_name>a &amp; b</process_name>
			</process_info>
		</processes>
	</gpu>
	<gpu id="00000000:65:00.0">
		<product_name>NVIDIA A40</product_name>
		<remapped_rows>
			<remapped_row_pending>Yes</remapped_row_pending>
		</remapped_rows>
	</gpu>
</nvidia_smi_log>
)TEXT";

/// nvidia-smi by itself: a name cut off, uncorrected errors, MIG.
inline constexpr std::string_view kNvidiaTable = R"TEXT(Fri Oct  6 09:11:02 2023
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.104.05             Driver Version: 535.104.05   CUDA Version: 12.2     |
|-----------------------------------------+----------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf           Pwr:Usage/Cap |         Memory-Usage | GPU-Util  Compute M. |
|                                         |                      |               MIG M. |
|=========================================+======================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  | 00000000:07:00.0 Off |                    2 |
| N/A   31C    P0              62W / 400W |      4MiB / 81920MiB |      7%      Default |
|                                         |                      |              Enabled |
+-----------------------------------------+----------------------+----------------------+
|   1  NVIDIA GeForce RTX ...         Off | 00000000:0B:00.0 Off |                  N/A |
| 30%   31C    P8              12W / 350W |      1MiB / 24576MiB |      0%      Default |
|                                         |                      |                  N/A |
+-----------------------------------------+----------------------+----------------------+

+---------------------------------------------------------------------------------------+
| Processes:                                                                            |
|  GPU   GI   CI        PID   Type   Process name                            GPU Memory |
|        ID   ID                                                             Usage      |
|=======================================================================================|
|    0   N/A  N/A      1234      C   python                                       3MiB |
+---------------------------------------------------------------------------------------+
)TEXT";

/// Three GPUs in a chain of xGMI, a fourth on PCIe, in two NUMA nodes.
inline constexpr std::string_view kRocmTopo = R"TEXT(======================= ROCm System Management Interface =======================
=========================== Weight between two GPUs ============================
       GPU0         GPU1         GPU2         GPU3         
GPU0   0            15           30           40           
GPU1   15           0            15           40           
GPU2   30           15           0            40           
GPU3   40           40           40           0            

============================ Hops between two GPUs =============================
       GPU0         GPU1         GPU2         GPU3         
GPU0   0            1            1            2            
GPU1   1            0            1            2            
GPU2   1            1            0            2            
GPU3   2            2            2            0            

========================== Link Type between two GPUs ==========================
       GPU0         GPU1         GPU2         GPU3         
GPU0   0            XGMI         XGMI         PCIE         
GPU1   XGMI         0            XGMI         PCIE         
GPU2   XGMI         XGMI         0            PCIE         
GPU3   PCIE         PCIE         PCIE         0            

================================== Numa Nodes ==================================
GPU[0]		: (Topology) Numa Node: 0
GPU[0]		: (Topology) Numa Affinity: 0
GPU[1]		: (Topology) Numa Node: 0
GPU[1]		: (Topology) Numa Affinity: 0
GPU[2]		: (Topology) Numa Node: 1
GPU[2]		: (Topology) Numa Affinity: 1
GPU[3]		: (Topology) Numa Node: 1
GPU[3]		: (Topology) Numa Affinity: 1
============================= End of ROCm SMI Log ==============================
)TEXT";

/// amd-smi topology of two GPUs that four cables join.
inline constexpr std::string_view kAmdTopology = R"TEXT(ACCESS TABLE:
             0000:0c:00.0 0000:22:00.0
0000:0c:00.0 ENABLED      ENABLED
0000:22:00.0 ENABLED      ENABLED

WEIGHT TABLE:
             0000:0c:00.0 0000:22:00.0
0000:0c:00.0 0            15
0000:22:00.0 15           0

HOPS TABLE:
             0000:0c:00.0 0000:22:00.0
0000:0c:00.0 0            1
0000:22:00.0 1            0

LINK TYPE TABLE:
             0000:0c:00.0 0000:22:00.0
0000:0c:00.0 SELF         XGMI
0000:22:00.0 XGMI         SELF

NUMA BW TABLE:
             0000:0c:00.0 0000:22:00.0
0000:0c:00.0 N/A          50000-200000
0000:22:00.0 50000-200000 N/A

ATOMICS TABLE:
             0000:0c:00.0 0000:22:00.0
0000:0c:00.0 SELF         64,32
0000:22:00.0 64,32        SELF
)TEXT";

/// Two hosts at a leaf, one at half width, a third without cable, a spine that is not described.
inline constexpr std::string_view kIblinkinfo = R"TEXT(CA: node1 mlx5_0:
      0x0c42a10300a1b2c1      4    1[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>       2    3[  ] "MF0;leaf1:QM8700/U1" ( )
CA: node2 mlx5_0:
      0x0c42a10300a1b2d1      5    1[  ] ==( 2X        53.125 Gbps Active/  LinkUp)==>       2    4[  ] "MF0;leaf1:QM8700/U1" ( Could be 4X )
CA: node3 mlx5_0:
      0x0c42a10300a1b2e1      9    1[  ] ==(                Down/ Polling)==>             [  ] "" ( )
Switch: 0x0c42a103008d7a10 MF0;leaf1:QM8700/U1:
           2    1[  ] ==(                Down/ Polling)==>             [  ] "" ( )
           2    3[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>       4    1[  ] "node1 mlx5_0" ( )
           2    4[  ] ==( 2X        53.125 Gbps Active/  LinkUp)==>       5    1[  ] "node2 mlx5_0" ( Could be 4X )
           2   41[  ] ==( 4X       106.25 Gbps Active/  LinkUp)==>       7    2[  ] "MF0;spine1:QM9700/U1" ( )
)TEXT";

/// A part of it, with -l.
inline constexpr std::string_view kIblinkinfoLines = R"TEXT(0x0c42a103008d7a10 "            MF0;leaf1:QM8700/U1"      2    1[  ] ==(                Down/ Polling)==>             [  ] "" ( )
0x0c42a103008d7a10 "            MF0;leaf1:QM8700/U1"      2    3[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>  0x0c42a10300a1b2c1      4    1[  ] "node1 mlx5_0" ( )
0x0c42a103008d7a10 "            MF0;leaf1:QM8700/U1"      2    4[  ] ==( 2X        53.125 Gbps Active/  LinkUp)==>  0x0c42a10300a1b2d1      5    1[  ] "node2 mlx5_0" ( Could be 4X )
0x0c42a10300a1b2c1 "                   node1 mlx5_0"      4    1[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>  0x0c42a103008d7a10      2    3[  ] "MF0;leaf1:QM8700/U1" ( )
0x0c42a10300a1b2d1 "                   node2 mlx5_0"      5    1[  ] ==( 2X        53.125 Gbps Active/  LinkUp)==>  0x0c42a103008d7a10      2    4[  ] "MF0;leaf1:QM8700/U1" ( Could be 4X )
)TEXT";

/// Two sockets: a GPU and an RDMA card behind one PCIe switch at the first, a GPU that rests at the second.
inline constexpr std::string_view kHwloc = R"TEXT(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" allowed_cpuset="0x0000000f" nodeset="0x00000003" complete_nodeset="0x00000003" allowed_nodeset="0x00000003" gp_index="1">
    <info name="HostName" value="far7"/>
    <object type="Package" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="2">
      <info name="CPUModel" value="AMD EPYC 7763 64-Core Processor"/>
      <object type="NUMANode" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="3" local_memory="68719476736"/>
      <object type="Core" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4">
        <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="5"/>
      </object>
      <object type="Core" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="6">
        <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="7"/>
      </object>
      <object type="Bridge" gp_index="20" bridge_type="0-1" depth="0" bridge_pci="0000:[40-45]">
        <object type="Bridge" gp_index="21" bridge_type="1-1" depth="1" bridge_pci="0000:[41-45]" pci_busid="0000:40:01.1" pci_type="0604 [1022:1483] [0000:0000] 00" pci_link_speed="31.507692">
          <object type="Bridge" gp_index="22" bridge_type="1-1" depth="2" bridge_pci="0000:[42-45]" pci_busid="0000:41:00.0" pci_type="0604 [1000:c010] [0000:0000] b0" pci_link_speed="31.507692">
            <object type="Bridge" gp_index="23" bridge_type="1-1" depth="3" bridge_pci="0000:[43-43]" pci_busid="0000:42:00.0" pci_type="0604 [1000:c010] [0000:0000] b0" pci_link_speed="31.507692">
              <object type="PCIDev" gp_index="24" pci_busid="0000:43:00.0" pci_type="0302 [10de:20b2] [10de:1463] a1" pci_link_speed="31.507692">
                <object type="OSDev" gp_index="25" name="nvml0" subtype="NVML" osdev_type="1">
                  <info name="GPUModel" value="NVIDIA A100-SXM4-80GB"/>
                </object>
              </object>
            </object>
            <object type="Bridge" gp_index="26" bridge_type="1-1" depth="3" bridge_pci="0000:[44-44]" pci_busid="0000:42:01.0" pci_type="0604 [1000:c010] [0000:0000] b0" pci_link_speed="15.753846">
              <object type="PCIDev" gp_index="27" pci_busid="0000:44:00.0" pci_type="0207 [15b3:101b] [15b3:0007] 00" pci_link_speed="15.753846">
                <object type="OSDev" gp_index="28" name="ib0" osdev_type="2"/>
                <object type="OSDev" gp_index="29" name="mlx5_0" osdev_type="3">
                  <info name="Port1State" value="4"/>
                </object>
              </object>
            </object>
          </object>
        </object>
      </object>
    </object>
    <object type="Package" os_index="1" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="8">
      <object type="NUMANode" os_index="1" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="9" local_memory="34359738368"/>
      <object type="Core" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="10">
        <object type="PU" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="11"/>
      </object>
      <object type="Core" os_index="3" cpuset="0x00000008" complete_cpuset="0x00000008" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="12">
        <object type="PU" os_index="3" cpuset="0x00000008" complete_cpuset="0x00000008" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="13"/>
      </object>
      <object type="Bridge" gp_index="30" bridge_type="0-1" depth="0" bridge_pci="0000:[c0-c1]">
        <object type="Bridge" gp_index="31" bridge_type="1-1" depth="1" bridge_pci="0000:[c1-c1]" pci_busid="0000:c0:01.1" pci_type="0604 [1022:1483] [0000:0000] 00" pci_link_speed="31.507692">
          <object type="PCIDev" gp_index="32" pci_busid="0000:c1:00.0" pci_type="0302 [10de:20b2] [10de:1463] a1" pci_link_speed="3.938462"/>
        </object>
      </object>
    </object>
  </object>
</topology>
)TEXT";

}  // namespace wirewise::posted
