#include "wirewise/wiring/hwloc_distances.h"

#include <algorithm>
#include <cmath>

#include "wirewise/wiring/link_classes.h"

namespace wirewise {
namespace {

constexpr double kCable = 25000, kXgmiCable = 50000;  // MB/s of one link, of most generations

/// A link of this bandwidth; how many cables it is isn't stated.
Link link_of(bool xgmi, double mbyte) {
  const int count = std::max(1, static_cast<int>(std::lround(mbyte / (xgmi ? kXgmiCable : kCable))));
  Link link = xgmi ? make_link(link_class("xGMI, MI200"), count, Provenance::kDriver) : nvlink_link(3, count, Provenance::kDriver);
  link.beta *= mbyte * 1e6 / link.spec;
  link.spec = mbyte * 1e6;
  link.generation = 0;
  link.source = xgmi ? "xGMI, by its speed alone" : "NVLink, by its speed alone";
  return link;
}

}  // namespace

void add_bandwidth(const HwlocBandwidth& matrix, const std::map<long long, std::string>& address, Reading& reading) {
  const std::size_t size = matrix.objects.size();
  std::map<std::string, int> gpus;
  for (const int gpu : devices_of(reading.wiring, DeviceKind::kGpu)) gpus[reading.wiring.devices[static_cast<std::size_t>(gpu)].pci] = gpu;
  std::vector<int> device;  // -1: a switch
  for (const long long object : matrix.objects) {
    const auto pci = address.find(object);
    const auto gpu = pci == address.end() ? gpus.end() : gpus.find(pci->second);
    device.push_back(gpu == gpus.end() ? -1 : gpu->second);
  }
  std::map<int, double> to_switch;
  bool any = false;
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j < size; ++j) {
      const auto mbyte = static_cast<double>(matrix.values[i * size + j]);
      if (i == j || device[i] == -1 || device[i] == device[j] || mbyte < 1000 || mbyte > 1e7) continue;  // hwloc states 1,000,000 of an object to itself
      any = true;
      if (device[j] == -1) to_switch[device[i]] += mbyte;
      else if (i < j) add_link(reading.wiring, device[i], device[j], link_of(matrix.xgmi, mbyte));
    }
  }
  if (!to_switch.empty()) {
    Device middle;
    middle.name = "nvswitch0";
    middle.kind = DeviceKind::kNvSwitch;
    middle.host = 0;
    const int at = add_device(reading.wiring, std::move(middle));
    for (const auto& [gpu, mbyte] : to_switch) add_link(reading.wiring, gpu, at, link_of(matrix.xgmi, mbyte));
  }
  if (any) reading.notes.push_back({0, 0, std::string("hwloc states the bandwidth between GPUs, not how many links it is: they are counted at ") + (matrix.xgmi ? "50" : "25") + " GB/s each."});
}

}  // namespace wirewise
