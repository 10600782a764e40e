#include "wirewise/wiring/listed_gpus.h"

#include <algorithm>

#include "wirewise/base/text.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/machine.h"

namespace wirewise {

void add_listed_host(Wiring& wiring) {
  Device host;
  host.name = "host0";
  host.host = 0;
  add_device(wiring, std::move(host));
}

int add_listed_gpu(Wiring& wiring, int index, const std::string& model) {
  Device gpu;
  gpu.name = "GPU" + std::to_string(index);
  gpu.kind = DeviceKind::kGpu;
  gpu.host = 0;
  gpu.placed = false;
  gpu.model = model;
  const int at = add_device(wiring, std::move(gpu));
  add_link(wiring, 0, at, pcie_link(0, 0, Provenance::kAssumed));
  return at;
}

void set_listed_pcie(Reading& reading, int gpu, const PcieSeen& seen, std::optional<bool> idle, int line) {
  const bool busy = idle.has_value() && !*idle;
  const bool slowed = seen.generation > 0 && seen.generation < seen.most_generation;
  const int generation = busy && seen.generation > 0 ? seen.generation : std::max(seen.generation, seen.most_generation);
  const int lanes = seen.lanes > 0 ? seen.lanes : seen.most_lanes;
  for (Link& link : reading.wiring.links) {
    if ((link.from != gpu && link.to != gpu) || link.kind != LinkKind::kPcie) continue;
    Link stated = pcie_link(generation, lanes, Provenance::kDriver);
    stated.from = link.from;
    stated.to = link.to;
    link = std::move(stated);
  }
  const std::string& name = reading.wiring.devices[static_cast<std::size_t>(gpu)].name;
  const std::string runs = name + "'s PCIe link runs at generation " + std::to_string(seen.generation) + " of " + std::to_string(seen.most_generation);
  if (slowed && busy) {
    reading.notes.push_back({line, 0, runs + ", and the GPU isn't idle.",
                             "Set the slot's generation in the BIOS to automatic, seat the card and its riser again, and look for corrected errors in dmesg and for replays in nvidia-smi -q."});
  }
  if (slowed && !idle) reading.notes.push_back({line, 0, runs + "; whether the GPU idles, and slows it therefore, isn't said: look again while it works."});
  if (seen.lanes > 0 && seen.lanes < seen.most_lanes) {
    reading.notes.push_back({line, 0, name + "'s PCIe link has " + std::to_string(seen.lanes) + " lanes of " + std::to_string(seen.most_lanes) + ", which idling changes nothing of.",
                             "Seat the card again, clean its contacts, look for a riser or a slot that is shared; then a BIOS setting that splits the slot (bifurcation)."});
  }
}

bool not_stated(std::string_view value) noexcept {
  return value.empty() || value == "N/A" || value == "[N/A]" || value == "[Not Supported]" || value == "Not Supported" || value == "[Unknown Error]" || value == "Unknown Error" ||
         value == "[Insufficient Permissions]" || value == "Requested functionality has been deprecated";
}

std::string listed_pci(std::string_view text) {
  const std::string pci = pci_address(lower_case(text));
  return pci.find_first_not_of("0123456789abcdef:.") != std::string::npos || pci.find(':') == std::string::npos || pci.size() > 20 ? std::string() : pci;
}

std::optional<bool> rests(std::string_view performance_state) noexcept {
  if (performance_state.size() < 2 || performance_state[0] != 'P') return std::nullopt;
  const auto number = parse_integer(performance_state.substr(1));
  if (!number || *number < 0 || *number > 15) return std::nullopt;
  return *number >= 5;
}

bool at_work(std::string_view utilization) noexcept {
  const auto number = parse_integer(utilization.substr(0, utilization.find_first_of(" %")));
  return number && *number > 0;
}

}  // namespace wirewise
