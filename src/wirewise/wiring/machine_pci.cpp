// The PCI tree is the folders' own: /sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0 is a device behind a root port of a host bridge.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "wirewise/base/text.h"
#include "wirewise/wiring/machine.h"
#include "wirewise/wiring/sysfs.h"

namespace wirewise {
namespace {

namespace fs = std::filesystem;

unsigned hex_of(const std::string& text) {
  char* end = nullptr;
  const unsigned long value = std::strtoul(text.c_str(), &end, 16);
  return end == text.c_str() ? 0 : static_cast<unsigned>(value);
}

/// "16.0 GT/s PCIe" is generation 4; "Unknown", and what isn't there, 0.
int generation_of(const std::string& speed) {
  const double rate = std::strtod(speed.c_str(), nullptr);
  const double steps[] = {2.5, 5, 8, 16, 32, 64};
  for (int i = 0; i < 6; ++i) {
    if (std::abs(rate - steps[i]) < 0.1) return i + 1;
  }
  return 0;
}

/// Virtual devices state 0 or 255 lanes.
int lanes_of(const fs::path& file) {
  const auto lanes = sysfs::number_of(file);
  return lanes && *lanes > 0 && *lanes <= 32 ? static_cast<int>(*lanes) : 0;
}

/// The control register of a device's Access Control Services. The kernel shows more than the first 64 bytes to root alone.
std::optional<unsigned> acs_of(const fs::path& config_file) {
  const std::string config = sysfs::text_of(config_file, 4096);
  const auto byte = [&](std::size_t at) { return static_cast<unsigned>(static_cast<unsigned char>(config[at])); };
  if (config.size() < 4096) return std::nullopt;
  std::size_t at = 0x100;
  for (int steps = 0; steps < 512 && at >= 0x100 && at + 8 <= config.size(); ++steps) {
    const unsigned header = byte(at) | byte(at + 1) << 8 | byte(at + 2) << 16 | byte(at + 3) << 24;
    if (header == 0xffffffff) return std::nullopt;  // it sleeps, and answers nothing
    if ((header & 0xffff) == 0x000d) return byte(at + 6) | byte(at + 7) << 8;
    at = header >> 20;
  }
  return 0u;  // has none
}

}  // namespace

std::vector<PciDevice> read_pci(const fs::path& root) {
  std::vector<PciDevice> devices;
  const fs::path all = root / "sys/bus/pci/devices";
  for (const std::string& name : sysfs::names_in(all)) {
    if (!sysfs::is_pci_address(name)) continue;
    const fs::path folder = all / name;
    PciDevice device;
    device.address = name;
    for (const std::string& part : sysfs::real_parts(folder)) {
      if (part.starts_with("pci") && part.find(':') != std::string::npos) {
        device.host_bridge = part;
        device.above.clear();
      } else if (sysfs::is_pci_address(part) && part != name) {
        device.above.push_back(part);
      }
    }
    device.type = hex_of(sysfs::line_of(folder / "class"));
    device.vendor = hex_of(sysfs::line_of(folder / "vendor"));
    device.model = hex_of(sysfs::line_of(folder / "device"));
    const auto numa = sysfs::number_of(folder / "numa_node");
    device.numa = numa && *numa >= 0 && *numa < 1 << 20 ? static_cast<int>(*numa) : -1;
    device.cpus = sysfs::line_of(folder / "local_cpulist");
    device.generation = generation_of(sysfs::line_of(folder / "current_link_speed"));
    device.most_generation = generation_of(sysfs::line_of(folder / "max_link_speed"));
    device.lanes = lanes_of(folder / "current_link_width");
    device.most_lanes = lanes_of(folder / "max_link_width");
    device.iommu = sysfs::line_of(folder / "iommu_group/type");
    device.virtual_function = sysfs::exists(folder / "physfn");
    if (device.type >> 8 == 0x0604) device.acs = acs_of(folder / "config");
    devices.push_back(std::move(device));
  }
  return devices;
}

bool is_gpu(const PciDevice& device) noexcept {
  const unsigned type = device.type >> 8;
  constexpr unsigned kNvidia = 0x10de, kAmd = 0x1002, kIntel = 0x8086, kHabana = 0x1da3;
  if (type >> 8 == 0x12) return device.vendor == kNvidia || device.vendor == kAmd || device.vendor == kHabana;
  if (type >> 8 != 0x03) return false;
  if (device.vendor == kIntel) return !device.address.ends_with(":00:02.0");  // the processor's own
  return device.vendor == kNvidia || device.vendor == kAmd || (type == 0x0302 && device.vendor != 0x1af4);
}

bool is_nic(const PciDevice& device) noexcept { return device.type >> 16 == 0x02; }

const PciDevice* find_pci(const Machine& machine, const std::string& address) noexcept {
  const auto found = std::find_if(machine.pci.begin(), machine.pci.end(), [&](const PciDevice& device) { return device.address == address; });
  return found == machine.pci.end() ? nullptr : &*found;
}

std::string pci_address(std::string_view text) {
  std::string lower = lower_case(text);
  if (lower.size() == 16 && lower[8] == ':' && lower.starts_with("0000")) lower.erase(0, 4);
  return sysfs::is_pci_address(lower) ? lower : std::string(text);
}

}  // namespace wirewise
