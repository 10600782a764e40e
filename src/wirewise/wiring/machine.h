// What this machine shows of itself without root: processors and memory (hwloc), the PCI tree, network and RDMA devices (sysfs), and the
// GPUs' driver (NVML, where there is one). Facts as they stand, gathered in one place; discover.h makes the graph of them, and the checks
// of `wirewise doctor` read them.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "wirewise/base/units.h"

namespace wirewise {

/// Where to look: "/" and the driver's library but in tests.
struct Places {
  std::filesystem::path root = "/";
  std::string nvml;  // path of libnvidia-ml; empty: WIREWISE_NVML, else libnvidia-ml.so.1 as the loader finds it
};

struct NumaNode {
  int number = 0;    // as the system numbers it
  int socket = -1;   // -1: in none, or not known
  std::string cpus;  // "0-31,64-95"; empty: a node of memory alone
  Bytes memory = 0;
};

struct Processors {
  int cpus = 0;                      // that this process may use
  std::string model;                 // of the first socket
  std::vector<int> sockets;          // their numbers
  std::vector<NumaNode> nodes;       // by number
};

struct PciDevice {
  std::string address;             // "0000:3b:00.0"
  std::string host_bridge;         // "pci0000:3a"
  std::vector<std::string> above;  // the bridges between host bridge and device, from the root port on
  unsigned type = 0;               // class, subclass and interface: 0x030200
  unsigned vendor = 0, model = 0;
  int numa = -1;
  std::string cpus;                // near it
  int generation = 0, most_generation = 0;  // of its link: as it runs now, and what the device could; 0: not stated
  int lanes = 0, most_lanes = 0;
  double gbyte = 0;                // GB/s each way of its link as it runs, where that is all that is stated
  std::string iommu;               // "identity", "DMA" …: how the IOMMU treats it; empty: no IOMMU, or not stated
  std::optional<unsigned> acs;     // Access Control Services that are on, where its extended configuration can be read
  bool virtual_function = false;   // of a device that is here too
};

/// A network interface, of a PCI device or not.
struct NetDevice {
  std::string name;
  std::string pci;    // empty: a virtual one
  std::string state;  // "up", "down", "unknown"
  long speed = -1;    // Mbit/s; -1: not known
  bool wireless = false;
};

struct RdmaPort {
  std::string device;      // "mlx5_0"
  int port = 1;
  std::string pci;
  std::string state;       // "ACTIVE", "DOWN"
  std::string link_layer;  // "InfiniBand", "Ethernet"
  std::string rate;        // "400 Gb/sec (4X NDR)"
  double gbit = 0;
};

struct NvmlLink {
  int number = 0;
  bool active = false;
  bool to_switch = false;
  std::string remote;  // PCI address; empty where the driver doesn't say
};

struct NvmlGpu {
  int index = 0;
  std::string name, uuid, pci;
  Bytes memory = 0;
  int compute_major = 0;
  bool mig = false;
  int generation = 0, most_generation = 0, lanes = 0, most_lanes = 0;  // of PCIe
  std::vector<NvmlLink> nvlinks;
  std::string failure;  // what the driver said instead of answering
};

struct NvmlFacts {
  bool present = false;
  std::string absence;  // why there are no facts: "no NVML: …"
  std::string driver;
  std::vector<NvmlGpu> gpus;
};

/// What GPUDirect RDMA stands on.
struct GpuDirect {
  std::string peer_memory;      // the loaded module: "nvidia_peermem", "nv_peer_mem"; empty: none
  std::string driver;           // NVIDIA's kernel driver, its version; empty: not loaded
  bool open_module = false;     // of the kind that can hand out dma-bufs
  bool dmabuf_kernel = false;   // the kernel is 5.12 or newer
};

struct Machine {
  std::string host;
  std::string kernel;
  Processors processors;
  std::vector<PciDevice> pci;  // all, by address
  std::vector<NetDevice> net;
  std::vector<RdmaPort> rdma;
  GpuDirect gpudirect;
  NvmlFacts nvml;
  std::vector<std::pair<std::string, std::string>> gpu_models;  // PCI address and name, as the kernel driver lists them
};

/// Gathers all of it; what can't be read is left at its default. Needs no root, and no GPU.
[[nodiscard]] Machine inspect_machine(const Places& places = {});

[[nodiscard]] Processors read_processors(const std::filesystem::path& root);
[[nodiscard]] std::vector<PciDevice> read_pci(const std::filesystem::path& root);
[[nodiscard]] std::vector<NetDevice> read_net(const std::filesystem::path& root);
[[nodiscard]] std::vector<RdmaPort> read_rdma(const std::filesystem::path& root);
[[nodiscard]] GpuDirect read_gpudirect(const std::filesystem::path& root);
[[nodiscard]] NvmlFacts read_nvml(const std::string& library);

/// A processor for training: a GPU or accelerator, not a console's picture or the processor's own.
[[nodiscard]] bool is_gpu(const PciDevice& device) noexcept;
/// A network controller (class 0x02) that isn't a wireless one.
[[nodiscard]] bool is_nic(const PciDevice& device) noexcept;
/// The device with this address, or null.
[[nodiscard]] const PciDevice* find_pci(const Machine& machine, const std::string& address) noexcept;
/// "00000000:3B:00.0" and "0000:3b:0.0" as Linux writes them: "0000:3b:00.0"; other texts as they are.
[[nodiscard]] std::string pci_address(std::string_view text);

}  // namespace wirewise
