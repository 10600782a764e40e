#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/group.h"
#include "wirewise/wiring/write.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostBisected = 1024;  // GPUs; more take too long

std::string line_of(const Wiring& wiring, const std::vector<int>& gpus) {
  try {
    const GroupBandwidth all = group_bandwidth(wiring, gpus, GroupCollective::kAllReduce);
    std::string text = fmt::format("all-reduce of {} GPUs: {:.4g} GB/s bus bandwidth ({}, {})", gpus.size(), all.bus / 1e9, printable(all.why), name_of(all.provenance));
    if (gpus.size() <= kMostBisected) text += fmt::format("; {:.4g} GB/s a direction cross the middle", bisection(wiring, gpus) / 1e9);
    return text;
  } catch (const Error& error) {
    return fmt::format("all-reduce of {} GPUs: not known, {}", gpus.size(), printable(error.sentence()));
  }
}

}  // namespace

std::string write_groups(const Wiring& wiring) {
  std::vector<std::pair<std::string, std::vector<std::string>>> lines;  // what, and the hosts that get it
  for (int host : devices_of(wiring, DeviceKind::kHost)) {
    const Device& device = wiring.devices[static_cast<std::size_t>(host)];
    const std::vector<int> gpus = devices_of(wiring, DeviceKind::kGpu, device.host);
    if (gpus.size() < 2) continue;
    const std::string line = line_of(wiring, gpus);
    auto same = std::find_if(lines.begin(), lines.end(), [&](const auto& other) { return other.first == line; });
    if (same == lines.end()) same = lines.insert(lines.end(), {line, {}});
    same->second.push_back(printable(device.name));
  }
  std::string text;
  for (const auto& [line, hosts] : lines) text += (hosts.size() == 1 ? hosts.front() : fmt::format("{} hosts, each", hosts.size())) + ": " + line + "\n";
  const std::vector<int> all = devices_of(wiring, DeviceKind::kGpu);
  if (hosts_of(wiring) > 1 && all.size() > 1) text += "all hosts: " + line_of(wiring, all) + "\n";
  return text;
}

}  // namespace wirewise
