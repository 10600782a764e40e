// Network interfaces, RDMA devices, and what GPUDirect RDMA needs of the kernel.
#include <cstdlib>

#include "wirewise/base/text.h"
#include "wirewise/wiring/machine.h"
#include "wirewise/wiring/sysfs.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

namespace fs = std::filesystem;

/// "4: ACTIVE" is "ACTIVE".
std::string after_colon(const std::string& text) {
  const std::size_t colon = text.find(':');
  return colon == std::string::npos ? text : std::string(trimmed(std::string_view(text).substr(colon + 1)));
}

}  // namespace

std::vector<NetDevice> read_net(const fs::path& root) {
  std::vector<NetDevice> all;
  const fs::path folder = root / "sys/class/net";
  for (const std::string& name : sysfs::names_in(folder)) {
    const fs::path at = folder / name;
    if (name == "lo" || !sysfs::exists(at / "operstate")) continue;  // bonding_masters is a file
    NetDevice device;
    device.name = name;
    if (sysfs::exists(at / "device")) device.pci = sysfs::pci_of(at / "device");
    device.state = sysfs::line_of(at / "operstate");
    const auto speed = sysfs::number_of(at / "speed");
    device.speed = speed && *speed > 0 ? static_cast<long>(*speed) : -1;
    device.wireless = sysfs::exists(at / "wireless") || sysfs::exists(at / "phy80211");
    all.push_back(std::move(device));
  }
  return all;
}

std::vector<RdmaPort> read_rdma(const fs::path& root) {
  std::vector<RdmaPort> all;
  const fs::path folder = root / "sys/class/infiniband";
  for (const std::string& name : sysfs::names_in(folder)) {
    for (const std::string& number : sysfs::names_in(folder / name / "ports")) {
      const auto index = parse_integer(number);
      if (!index || *index < 1 || *index > 255) continue;
      const fs::path at = folder / name / "ports" / number;
      RdmaPort port;
      port.device = name;
      port.port = static_cast<int>(*index);
      if (sysfs::exists(folder / name / "device")) port.pci = sysfs::pci_of(folder / name / "device");
      port.state = after_colon(sysfs::line_of(at / "state"));
      port.link_layer = sysfs::line_of(at / "link_layer");
      port.rate = sysfs::line_of(at / "rate");
      port.gbit = std::strtod(port.rate.c_str(), nullptr);
      all.push_back(std::move(port));
    }
  }
  return all;
}

GpuDirect read_gpudirect(const fs::path& root) {
  GpuDirect facts;
  for (const char* module : {"nvidia_peermem", "nv_peer_mem"}) {
    if (facts.peer_memory.empty() && sysfs::exists(root / "sys/module" / module)) facts.peer_memory = module;
  }
  // "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (…)"
  const std::string version = sysfs::line_of(root / "proc/driver/nvidia/version");
  facts.open_module = version.find("Open Kernel Module") != std::string::npos;
  for (const std::string& word : split(version, ' ')) {
    if (facts.driver.empty() && word.find('.') != std::string::npos && word[0] >= '1' && word[0] <= '9') facts.driver = word;
  }
  const std::vector<std::string> kernel = split(sysfs::line_of(root / "proc/sys/kernel/osrelease"), '.');
  const auto major = kernel.empty() ? std::nullopt : parse_integer(kernel[0]);
  const auto minor = kernel.size() < 2 ? std::nullopt : parse_integer(std::string_view(kernel[1]).substr(0, kernel[1].find_first_not_of("0123456789")));
  facts.dmabuf_kernel = major && minor && (*major > 5 || (*major == 5 && *minor >= 12));
  return facts;
}

}  // namespace wirewise
