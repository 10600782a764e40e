#include "wirewise/plan/rank_places.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "wirewise/base/text.h"
#include "wirewise/wiring/placement_model.h"
#include "wirewise/wiring/relation.h"

namespace wirewise {
namespace {

constexpr int kMostCpus = 1 << 16;

const Device& device_at(const Wiring& wiring, int device) { return wiring.devices[static_cast<std::size_t>(device)]; }

/// "GPU3" is 3.
std::optional<int> number_in_name(const std::string& name) {
  const auto number = name.starts_with("GPU") ? parse_integer(std::string_view(name).substr(3)) : std::nullopt;
  if (!number || *number < 0 || *number >= kMostCpus) return std::nullopt;
  return static_cast<int>(*number);
}

/// As CUDA numbers it by PCI_BUS_ID: the number in its name, which counts GPUs that the description leaves out; but where names don't follow
/// the PCI addresses, or have no numbers, its place among the host's GPUs by PCI address, or in the graph.
int number_of_gpu(const Wiring& wiring, int device, const std::vector<int>& gpus) {
  std::vector<int> order = gpus;
  const bool known = std::all_of(order.begin(), order.end(), [&](int gpu) { return !device_at(wiring, gpu).pci.empty(); });
  if (known) std::sort(order.begin(), order.end(), [&](int a, int b) { return lower_case(device_at(wiring, a).pci) < lower_case(device_at(wiring, b).pci); });
  const auto own = number_in_name(device_at(wiring, device).name);
  const auto out_of_order = [&](int a, int b) {
    const auto first = number_in_name(device_at(wiring, a).name), second = number_in_name(device_at(wiring, b).name);
    return !first || !second || *first >= *second;
  };
  if (own && (!known || std::adjacent_find(order.begin(), order.end(), out_of_order) == order.end())) return *own;
  return static_cast<int>(std::find(order.begin(), order.end(), device) - order.begin());
}

/// CPUs near each device: its own, or those of its NUMA node.
std::string cpus_near(const Wiring& wiring, int device, const std::map<std::pair<int, int>, std::string>& of_node) {
  const Device& at = device_at(wiring, device);
  if (!at.cpus.empty()) return at.cpus;
  const auto found = of_node.find({at.host, at.numa});
  return found == of_node.end() ? "" : found->second;
}

/// The NICs of a slot's ports; where the description joins them to no network, the nearest ones of the host.
std::vector<int> nics_near(const Wiring& wiring, const PlacementModel& model, const Relations& relations, const std::vector<int>& of_host, std::size_t slot) {
  std::vector<int> nics;
  for (const Port& port : model.slots()[slot].ports) {
    const int nic = wiring.links[static_cast<std::size_t>(model.pipes()[static_cast<std::size_t>(port.node)].link)].from;
    if (device_at(wiring, nic).kind == DeviceKind::kNic && std::find(nics.begin(), nics.end(), nic) == nics.end()) nics.push_back(nic);
  }
  if (!model.slots()[slot].ports.empty()) return nics;
  Connection nearest = Connection::kUnknown;
  for (const int nic : of_host) nearest = std::min(nearest, relations.between(model.slots()[slot].device, nic).pcie);
  for (const int nic : of_host) {
    if (relations.between(model.slots()[slot].device, nic).pcie == nearest && nearest != Connection::kUnknown) nics.push_back(nic);
  }
  return nics;
}

/// Drivers name RDMA devices (mlx5_0, irdma1), the system interfaces (eth0, enp3s0f0).
bool speaks_rdma(const Wiring& wiring, const std::vector<int>& links, int nic) {
  const bool infiniband = std::any_of(links.begin(), links.end(), [&](int link) { return wiring.links[static_cast<std::size_t>(link)].kind == LinkKind::kInfiniband; });
  const std::string& name = device_at(wiring, nic).name;
  return infiniband || name.find('_') != std::string::npos || name.starts_with("irdma");
}

/// The CPUs as runs without gaps where these are equally long and hold a CPU for each rank, else as one. Linux numbers the threads of
/// cores so: of "0-19,40-59" CPU 40 is on the core of CPU 0, and no two ranks are to share a core.
std::vector<std::vector<int>> alike_runs(const std::vector<int>& cpus, std::size_t ranks) {
  std::vector<std::vector<int>> runs;
  for (const int cpu : cpus) {
    if (runs.empty() || runs.back().back() + 1 != cpu) runs.emplace_back();
    runs.back().push_back(cpu);
  }
  const bool alike = std::all_of(runs.begin(), runs.end(), [&](const auto& run) { return run.size() == runs.front().size() && run.size() >= ranks; });
  if (!alike) return {cpus};
  return runs;
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
  std::set<int> cpus;
  for (const std::string& part : split(text, ',')) {
    const auto dash = part.find('-');
    const auto first = parse_integer(std::string_view(part).substr(0, dash));
    const auto last = dash == std::string::npos ? first : parse_integer(std::string_view(part).substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMostCpus) return {};
    for (long long cpu = *first; cpu <= *last; ++cpu) cpus.insert(static_cast<int>(cpu));
  }
  return {cpus.begin(), cpus.end()};
}

std::string cpu_list(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]) + (last > i ? "-" + std::to_string(cpus[last]) : "");
    i = last + 1;
  }
  return text;
}

std::vector<RankPlace> rank_places(const Wiring& wiring, std::span<const int> device) {
  const PlacementModel model(wiring, device);
  std::map<int, std::string> host_names;
  const Relations relations(wiring);
  const auto out = links_by_device(wiring);
  std::map<int, std::vector<int>> gpus, nics;
  std::map<std::pair<int, int>, std::string> of_node;
  for (std::size_t i = 0; i < wiring.devices.size(); ++i) {
    const Device& each = wiring.devices[i];
    if (each.kind == DeviceKind::kHost) host_names[each.host] = each.name;
    if (each.kind == DeviceKind::kGpu) gpus[each.host].push_back(static_cast<int>(i));
    if (each.kind == DeviceKind::kNic) nics[each.host].push_back(static_cast<int>(i));
    if (each.kind == DeviceKind::kNumaNode && !each.cpus.empty()) of_node[{each.host, each.numa}] = each.cpus;
  }
  std::vector<RankPlace> places;
  std::map<int, int> node_of_host, ranks_on;
  std::map<std::pair<int, std::string>, std::vector<std::size_t>> sharing;  // host and CPUs: ranks
  for (std::size_t r = 0; r < device.size(); ++r) {
    const Device& at = device_at(wiring, device[r]);
    RankPlace place;
    place.rank = static_cast<int>(r);
    place.host = host_names[at.host];
    place.node = node_of_host.try_emplace(at.host, static_cast<int>(node_of_host.size())).first->second;
    place.local_rank = ranks_on[at.host]++;
    place.device = at.name;
    place.numa = at.numa;
    if (at.kind == DeviceKind::kGpu) place.gpu = number_of_gpu(wiring, device[r], gpus[at.host]);
    for (const int nic : nics_near(wiring, model, relations, nics[at.host], r)) {
      auto& names = speaks_rdma(wiring, out[static_cast<std::size_t>(nic)], nic) ? place.rdma_nics : place.interfaces;
      names.push_back(device_at(wiring, nic).name);
    }
    const std::string near = cpus_near(wiring, device[r], of_node);
    if (!near.empty()) sharing[{at.host, near}].push_back(r);
    places.push_back(std::move(place));
  }
  for (const auto& [key, ranks] : sharing) {
    const std::vector<std::vector<int>> runs = alike_runs(parse_cpu_list(key.second), ranks.size());
    const std::size_t each = runs.empty() ? 0 : runs.front().size() / ranks.size();
    if (each == 0) continue;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      std::vector<int> own;
      for (const std::vector<int>& run : runs) own.insert(own.end(), run.begin() + static_cast<std::ptrdiff_t>(i * each), run.begin() + static_cast<std::ptrdiff_t>((i + 1) * each));
      places[ranks[i]].cpus = cpu_list(own);
    }
  }
  return places;
}

}  // namespace wirewise
