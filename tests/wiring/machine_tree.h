// A machine's /sys and /proc written by hand into a folder, so that discovery can be tried on machines that aren't there.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace wirewise::testing {

namespace fs = std::filesystem;

class MachineTree {
 public:
  MachineTree() {
    std::string name = (fs::temp_directory_path() / "wirewise-machine-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
    write("proc/sys/kernel/hostname", "trainer7\n");
    write("proc/sys/kernel/osrelease", "5.15.0-91-generic\n");
  }
  ~MachineTree() {
    std::error_code none;
    fs::remove_all(root_, none);
  }
  MachineTree(const MachineTree&) = delete;
  MachineTree& operator=(const MachineTree&) = delete;

  [[nodiscard]] const fs::path& root() const { return root_; }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path, std::ios::binary) << text;
  }
  void link(const std::string& path, const std::string& to) {
    fs::create_directories((root_ / path).parent_path());
    fs::create_symlink(root_ / to, root_ / path);
  }

  /// `sockets` sockets of `per_socket` CPUs, a NUMA node each, of 64 GiB.
  void processors(int sockets, int per_socket) {
    std::string cpuinfo, last = std::to_string(sockets * per_socket - 1), nodes = std::to_string(sockets - 1);
    for (int cpu = 0; cpu < sockets * per_socket; ++cpu) {
      const int socket = cpu / per_socket;
      const std::string at = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
      write(at + "physical_package_id", std::to_string(socket) + "\n");
      write(at + "core_id", std::to_string(cpu % per_socket) + "\n");
      write(at + "thread_siblings", hex(1u << cpu));
      write(at + "core_siblings", hex(((1u << per_socket) - 1) << (socket * per_socket)));
      cpuinfo += "processor\t: " + std::to_string(cpu) + "\nphysical id\t: " + std::to_string(socket) + "\nmodel name\t: Intel(R) Xeon(R) Platinum 8480+\n\n";
    }
    write("proc/cpuinfo", cpuinfo);
    for (const char* file : {"online", "possible", "present"}) write(std::string("sys/devices/system/cpu/") + file, "0-" + last + "\n");
    for (int node = 0; node < sockets; ++node) numa(node, ((1u << per_socket) - 1) << (node * per_socket), sockets);
    write("sys/devices/system/node/online", "0-" + nodes + "\n");
    write("sys/devices/system/node/possible", "0-" + nodes + "\n");
  }
  void numa(int node, unsigned cpus, int nodes) {
    const std::string at = "sys/devices/system/node/node" + std::to_string(node) + "/";
    write(at + "cpumap", hex(cpus));
    write(at + "meminfo", "Node " + std::to_string(node) + " MemTotal:       67108864 kB\n");
    std::string distances;
    for (int other = 0; other < nodes; ++other) distances += (other == 0 ? "" : " ") + std::string(other == node ? "10" : "21");
    write(at + "distance", distances + "\n");
  }

  struct Pci {
    std::string path;  // below sys/devices: "pci0000:3a/0000:3a:00.0/0000:3b:00.0"
    std::string type;  // "0x030200"
    std::string vendor = "0x10de";
    int numa = 0;
    std::string speed = "16.0 GT/s PCIe", most_speed = "16.0 GT/s PCIe";
    int lanes = 16, most_lanes = 16;
  };
  void pci(const Pci& device) {
    const std::string at = "sys/devices/" + device.path + "/";
    write(at + "class", device.type + "\n");
    write(at + "vendor", device.vendor + "\n");
    write(at + "device", "0x20b0\n");
    write(at + "numa_node", std::to_string(device.numa) + "\n");
    write(at + "local_cpulist", device.numa == 0 ? "0-3\n" : "4-7\n");
    write(at + "current_link_speed", device.speed + "\n");
    write(at + "max_link_speed", device.most_speed + "\n");
    write(at + "current_link_width", std::to_string(device.lanes) + "\n");
    write(at + "max_link_width", std::to_string(device.most_lanes) + "\n");
    const std::string address = fs::path(device.path).filename().string();
    link("sys/bus/pci/devices/" + address, "sys/devices/" + device.path);
  }
  /// A port of a bridge, PCI class 0x0604.
  void port(const std::string& path, int numa = 0) { pci({path, "0x060400", "0x8086", numa}); }

  /// Its configuration space as root sees it (4,096 bytes): a port of a switch with the capabilities of one, Access Control Services with these
  /// controls last among the extended ones. Without controls: a device that has no such services. `bytes` less: as others see it, 64.
  void config(const std::string& path, std::optional<unsigned> acs_control, std::size_t bytes = 4096) {
    std::string space(4096, '\0');
    const auto put = [&](std::size_t at, unsigned long value, int size) {
      for (int i = 0; i < size; ++i) space[at + static_cast<std::size_t>(i)] = static_cast<char>(value >> (8 * i) & 0xff);
    };
    put(0x00, 0x10b5, 2), put(0x02, 0x9797, 2);  // vendor, device
    put(0x04, 0x0407, 2), put(0x06, 0x0010, 2);  // command; status: has capabilities
    put(0x08, 0x060400b0, 4);                    // class, revision
    put(0x0e, 0x01, 1);                          // header of a bridge
    put(0x34, 0x40, 1);                          // first capability
    put(0x40, 0x4801, 2);                        // power management, next at 0x48
    put(0x48, 0x6805, 2);                        // message signalled interrupts, next at 0x68
    put(0x68, 0x0010, 2), put(0x6a, 0x0162, 2);  // PCI Express, a downstream port
    const auto extended = [&](std::size_t at, unsigned id, unsigned version, std::size_t next) { put(at, id | version << 16 | static_cast<unsigned long>(next) << 20, 4); };
    extended(0x100, 0x0003, 1, 0xfb4);  // serial number
    extended(0xfb4, 0x0001, 2, 0x138);  // error reporting
    extended(0x138, 0x0004, 1, acs_control ? 0xf24 : 0);  // power budgeting
    if (acs_control) {
      extended(0xf24, 0x000d, 1, 0);
      put(0xf28, 0x005f, 2);  // what it could do
      put(0xf2a, *acs_control, 2);
    }
    write("sys/devices/" + path + "/config", space.substr(0, bytes));
  }

  void net(const std::string& name, const std::string& pci_path, long speed, const std::string& state = "up") {
    write("sys/class/net/" + name + "/operstate", state + "\n");
    write("sys/class/net/" + name + "/speed", std::to_string(speed) + "\n");
    if (!pci_path.empty()) link("sys/class/net/" + name + "/device", "sys/devices/" + pci_path);
  }
  void rdma(const std::string& name, const std::string& pci_path, const std::string& rate, const std::string& layer, const std::string& state = "4: ACTIVE") {
    const std::string at = "sys/class/infiniband/" + name + "/ports/1/";
    write(at + "rate", rate + "\n");
    write(at + "link_layer", layer + "\n");
    write(at + "state", state + "\n");
    link("sys/class/infiniband/" + name + "/device", "sys/devices/" + pci_path);
  }

  /// Two sockets of four CPUs. On the first a switch with two GPUs and an InfiniBand NIC; on the second a GPU and an Ethernet NIC on
  /// root ports of one host bridge.
  void trainer() {
    processors(2, 4);
    port("pci0000:3a/0000:3a:00.0");
    port("pci0000:3a/0000:3a:00.0/0000:3b:00.0");
    for (const char* down : {"0000:3c:00.0", "0000:3c:04.0", "0000:3c:08.0"}) port(std::string("pci0000:3a/0000:3a:00.0/0000:3b:00.0/") + down);
    const std::string below = "pci0000:3a/0000:3a:00.0/0000:3b:00.0/";
    pci({below + "0000:3c:00.0/0000:3d:00.0", "0x030200"});
    pci({below + "0000:3c:04.0/0000:3e:00.0", "0x030200"});
    pci({below + "0000:3c:08.0/0000:3f:00.0", "0x020700", "0x15b3"});
    rdma("mlx5_0", below + "0000:3c:08.0/0000:3f:00.0", "200 Gb/sec (4X HDR)", "InfiniBand");
    port("pci0000:b0/0000:b0:01.0", 1);
    port("pci0000:b0/0000:b0:02.0", 1);
    pci({"pci0000:b0/0000:b0:01.0/0000:b1:00.0", "0x030200", "0x10de", 1});
    pci({"pci0000:b0/0000:b0:02.0/0000:b2:00.0", "0x020000", "0x8086", 1, "8.0 GT/s PCIe", "8.0 GT/s PCIe", 8, 8});
    net("ens3", "pci0000:b0/0000:b0:02.0/0000:b2:00.0", 25000);
    pci({"pci0000:00/0000:00:05.0", "0x030000", "0x1a03", 0, "Unknown", "Unknown", 0, 0});  // the console's picture
    net("docker0", "", -1, "down");
  }

 private:
  static std::string hex(unsigned mask) {
    char text[16];
    std::snprintf(text, sizeof text, "%08x\n", mask);
    return text;
  }
  fs::path root_;
};

}  // namespace wirewise::testing
