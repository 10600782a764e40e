#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "wirewise/base/text.h"
#include "wirewise/wiring/relation.h"
#include "wirewise/wiring/write.h"

namespace wirewise {

std::string write_matrix(const Wiring& wiring) {
  const Relations relations(wiring);
  const auto itself = devices_by_host(wiring, DeviceKind::kHost), gpus = devices_by_host(wiring, DeviceKind::kGpu), nics = devices_by_host(wiring, DeviceKind::kNic);
  std::string text;
  for (std::size_t host = 0; host < itself.size(); ++host) {
    std::vector<int> shown = gpus[host];
    shown.insert(shown.end(), nics[host].begin(), nics[host].end());
    if (shown.empty()) continue;
    if (itself.size() > 1) text += printable(wiring.devices[static_cast<std::size_t>(itself[host].front())].name) + "\n";
    std::size_t width = 6;
    const auto name = [&](int device) { return printable(wiring.devices[static_cast<std::size_t>(device)].name); };
    for (int device : shown) width = std::max(width, name(device).size());
    std::size_t cpus = std::string_view("CPU Affinity").size();
    for (const int device : shown) cpus = std::max(cpus, printable(wiring.devices[static_cast<std::size_t>(device)].cpus).size());
    text += std::string(width, ' ');
    std::vector<std::size_t> widths;  // of each column
    for (int column : shown) {
      widths.push_back(std::max<std::size_t>(4, name(column).size()));
      for (int row : shown) widths.back() = std::max(widths.back(), name_of(relations.between(row, column)).size());
      text += "  " + fmt::format("{:<{}}", name(column), widths.back());
    }
    // Heads and N/A as nvidia-smi has them: readers tell the columns by their order.
    text += fmt::format("  {:<{}}  NUMA Affinity\n", "CPU Affinity", cpus);
    for (int row : shown) {
      text += fmt::format("{:<{}}", name(row), width);
      for (std::size_t i = 0; i < shown.size(); ++i) text += "  " + fmt::format("{:<{}}", name_of(relations.between(row, shown[i])), widths[i]);
      const Device& device = wiring.devices[static_cast<std::size_t>(row)];
      text += fmt::format("  {:<{}}", device.cpus.empty() ? "N/A" : printable(device.cpus), cpus);
      text += device.numa >= 0 ? fmt::format("  {}\n", device.numa) : "  N/A\n";
    }
  }
  return text;
}

}  // namespace wirewise
