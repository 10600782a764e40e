#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/group_time.h"
#include "wirewise/wiring/write.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostBisected = 256;  // GPUs; more take too long

/// The GPUs of a graph; where it has none, ranks' cores.
std::vector<int> members_of(const Wiring& wiring) {
  std::vector<int> gpus = devices_of(wiring, DeviceKind::kGpu);
  return gpus.empty() ? devices_of(wiring, DeviceKind::kCpu) : gpus;
}

std::string counted(const Wiring& wiring, const std::vector<int>& members) {
  const bool cores = wiring.devices[static_cast<std::size_t>(members.front())].kind == DeviceKind::kCpu;
  return fmt::format("{} {}", members.size(), cores ? "cores" : "GPUs");
}

/// What messages of a size get, a line each, indented.
std::string by_size(const Wiring& wiring, const std::vector<int>& gpus, std::span<const Bytes> sizes) {
  std::string text;
  for (const Bytes size : sizes) {
    const GroupTime one = group_time(wiring, gpus, GroupCollective::kAllReduce, size);
    const std::string from = fmt::format("({}, {}{})", name_of(one.large.algorithm), printable(one.from), one.at_least ? "; latency of links alone" : "");
    if (one.at_least) text += fmt::format("\n  {:>12}: at least {}, at most {:.4g} GB/s {}", format_bytes(size), format_seconds(one.time), one.bus / 1e9, from);
    else text += fmt::format("\n  {:>12}: {:>10}, {:.4g} GB/s {}", format_bytes(size), format_seconds(one.time), one.bus / 1e9, from);
  }
  return text;
}

std::string line_of(const Wiring& wiring, const std::vector<int>& gpus, std::span<const Bytes> sizes, std::string_view caveat) {
  try {
    const GroupBandwidth all = group_bandwidth(wiring, gpus, GroupCollective::kAllReduce);
    std::string text = fmt::format("all-reduce of {}: {:.4g} GB/s bus bandwidth ({}, {}{}{})", counted(wiring, gpus), all.bus / 1e9, printable(all.why), words_of(all.provenance), caveat.empty() ? "" : "; ", caveat);
    if (gpus.size() <= kMostBisected) text += fmt::format("; {:.4g} GB/s a direction cross the middle", bisection(wiring, gpus) / 1e9);
    return text + by_size(wiring, gpus, sizes);
  } catch (const Error& error) {
    return fmt::format("all-reduce of {}: not known, {}", counted(wiring, gpus), printable(error.sentence()));
  }
}

/// Equal for hosts that are wired alike, whatever they are called.
std::string shape_of(const Wiring& host) {
  std::string shape;
  for (const Device& device : host.devices) shape += fmt::format("{}{};", static_cast<int>(device.kind), device.nvls ? "+" : "");
  for (const Link& link : host.links) shape += fmt::format("{}-{}:{}:{}:{}:{};", link.from, link.to, static_cast<int>(link.kind), link.beta, link.lanes, static_cast<int>(link.provenance));
  return shape;
}

}  // namespace

std::string_view words_of(Provenance provenance) noexcept { return provenance == Provenance::kSpec ? "as tabled" : name_of(provenance); }

std::string write_groups(const Wiring& wiring, std::span<const Bytes> sizes, std::string_view caveat) {
  std::vector<std::pair<std::string, std::vector<std::string>>> lines;  // what, and the hosts that get it
  std::map<std::string, std::size_t> known;                            // hosts that are wired alike: their line
  for (const Wiring& host : hosts_apart(wiring)) {
    const std::vector<int> gpus = members_of(host);
    if (gpus.size() < 2) continue;
    const auto [shape, first] = known.try_emplace(shape_of(host), lines.size());
    if (first) {
      std::string line = line_of(host, gpus, sizes, caveat);
      const auto same = std::find_if(lines.begin(), lines.end(), [&](const auto& other) { return other.first == line; });
      shape->second = static_cast<std::size_t>(same - lines.begin());
      if (same == lines.end()) lines.emplace_back(std::move(line), std::vector<std::string>{});
    }
    const std::vector<int> itself = devices_of(host, DeviceKind::kHost);
    lines[shape->second].second.push_back(itself.empty() ? "a host" : printable(host.devices[static_cast<std::size_t>(itself.front())].name));
  }
  std::string text;
  for (const auto& [line, hosts] : lines) text += (hosts.size() == 1 ? hosts.front() : fmt::format("{} hosts, each", hosts.size())) + ": " + line + "\n";
  const std::vector<int> all = members_of(wiring);
  if (hosts_of(wiring) > 1 && all.size() > 1) text += "all hosts: " + line_of(wiring, all, sizes, caveat) + "\n";
  return text;
}

}  // namespace wirewise
