#include "wirewise/sim/costs.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "wirewise/base/error.h"
#include "wirewise/sim/traffic.h"

namespace wirewise {
namespace {

void check_rate(const std::string& what, double rate) {
  if (std::isfinite(rate) && rate > 0) return;
  throw bad_input("a device's " + what + " is " + std::to_string(rate) + ", but must be a positive number.",
                  "Measure or set it.");
}

template <typename Map>
std::optional<typename Map::mapped_type> find(const Map& map, const typename Map::key_type& key) {
  const auto found = map.find(key);
  if (found == map.end()) return std::nullopt;
  return found->second;
}

/// Links merged into the one that limits them.
Link slower(const Link& a, const Link& b) {
  Link link = a.beta <= b.beta ? a : b;
  link.alpha = std::max(a.alpha, b.alpha);
  return link;
}

bool joins_hosts(LinkKind kind) { return kind == LinkKind::kEthernet || kind == LinkKind::kInfiniband; }

bool is_compute(OpKind kind) { return kind == OpKind::kForward || kind == OpKind::kBackward || kind == OpKind::kRecompute; }

}  // namespace

bool is_communication(OpKind kind) noexcept { return is_collective(kind) && kind != OpKind::kClip; }

Costs::Costs(const Schedule& schedule, const Model& model, const Wiring& wiring, const DeviceRates& rates,
             const MeasuredCosts& measured)
    : model_(model), wiring_(wiring), rates_(rates), measured_(measured), mesh_(schedule.strategy, schedule.ranks) {
  check_rate("FLOP/s", rates.flops_per_second);
  check_rate("memory bandwidth", rates.memory);
  if (wiring.rank_device.size() < static_cast<std::size_t>(schedule.ranks)) {
    throw bad_input("the wiring holds " + std::to_string(wiring.rank_device.size()) + " ranks, but the schedule has " +
                        std::to_string(schedule.ranks) + ".",
                    "Describe a device for every rank.");
  }
  const auto check_device = [&](const std::string& what, int device) {
    if (device >= 0 && static_cast<std::size_t>(device) < wiring.devices.size()) return;
    throw bad_input(
        what + " names device " + std::to_string(device) + " of a wiring with " + std::to_string(wiring.devices.size()) + ".",
        "Name one that the wiring describes.");
  };
  for (int device : wiring.rank_device) check_device("a rank", device);
  device_link_.resize(wiring.devices.size());
  for (const auto& link : wiring.links) {
    check_device("a link", link.from);
    check_rate("link bandwidth", link.beta);
    auto& known = device_link_.at(static_cast<std::size_t>(link.from));
    known = known.beta > 0 ? slower(known, link) : link;
    const Device& from = wiring.devices[static_cast<std::size_t>(link.from)];
    if (!joins_hosts(link.kind) || from.kind == DeviceKind::kSwitch) continue;
    const auto [entry, fresh] = host_link_.try_emplace(from.host, link);
    if (!fresh) entry->second = slower(entry->second, link);
  }
}

Seconds Costs::of(const Program& program, const Op& op) const {
  if (is_compute(op.kind)) return compute(op);
  if (const auto line = find(measured_.by_bytes, op.kind)) return line->alpha + line->per_byte * static_cast<double>(op.bytes);
  if (op.kind == OpKind::kStep) return step(program, op);
  if (op.kind == OpKind::kFree) return 0;
  return collective(program, op);
}

Seconds Costs::compute(const Op& op) const {
  const UnitKind unit = op.unit < 0 ? UnitKind::kCustom : model_.units.at(static_cast<std::size_t>(op.unit)).kind;
  if (const auto seconds = find(measured_.compute, {op.kind, unit, op.segment})) return *seconds;
  if (op.kind == OpKind::kRecompute && op.unit >= 0) return forward_of_segments(op);
  return std::max(op.flops / rates_.flops_per_second, static_cast<double>(op.bytes) / rates_.memory);
}

Seconds Costs::forward_of_segments(const Op& op) const {
  const auto& unit = model_.units.at(static_cast<std::size_t>(op.unit));
  Seconds total = 0;
  for (std::size_t s = 0; s < unit.segments.size(); ++s) {
    const int segment = static_cast<int>(s);
    if (op.segment >= 0 && op.segment != segment) continue;
    const auto seconds = find(measured_.compute, {OpKind::kForward, unit.kind, segment});
    total += seconds ? *seconds : unit.segments[s].cost.forward / rates_.flops_per_second;
  }
  return total;
}

Seconds Costs::step(const Program& program, const Op& op) const {
  // Op::bytes is the float32 gradient: read once; master weights and moments are read and written, parameters written.
  const double stepped = static_cast<double>(op.bytes);
  double traffic = stepped;
  bool has_master = false;
  double parameter_bytes = 0;  // relative to the float32 gradient's
  for (BufferId id : op.writes) {
    const auto& buffer = program.buffers.at(static_cast<std::size_t>(id));
    if (buffer.aliased) continue;  // the parameters, seen whole
    has_master = has_master || buffer.role == BufferRole::kMaster;
    if (buffer.role == BufferRole::kParam) {
      parameter_bytes = static_cast<double>(size_of(buffer.dtype)) / static_cast<double>(size_of(DType::kFloat32));
    } else {
      traffic += 2 * stepped;
    }
  }
  traffic += stepped * parameter_bytes * (has_master ? 1 : 2);
  return traffic / rates_.memory;
}

Seconds Costs::collective(const Program& program, const Op& op) const {
  const double bytes = static_cast<double>(op.bytes);
  // The norm's partial sums read every gradient; what is all-reduced are a few numbers.
  const Seconds local = op.kind == OpKind::kClip ? bytes / rates_.memory : 0;
  const auto group = mesh_.group_of(program.ranks.front(), op.group);
  if (group.size() == 1) return local;
  std::vector<int> hosts;
  for (const int rank : group) {
    const auto device = static_cast<std::size_t>(wiring_.rank_device[static_cast<std::size_t>(rank)]);
    hosts.push_back(wiring_.devices[device].host);
  }
  const Traffic traffic = traffic_of(program, op, hosts);
  const Link memory = slowest_link(group);
  const Seconds here = local + memory.alpha + traffic.inside / memory.beta;
  if (traffic.hosts == 1) return here;
  const Link network = slowest_network(hosts);
  return here + network.alpha + traffic.between / network.beta;
}

Link Costs::slowest_network(std::span<const int> hosts) const {
  Link slowest;
  for (const int host : hosts) {
    const auto found = host_link_.find(host);
    if (found == host_link_.end()) {
      throw bad_input("host " + std::to_string(host) + " of the wiring has no link to the others.", "Describe its network in the wiring.");
    }
    slowest = slowest.beta > 0 ? slower(slowest, found->second) : found->second;
  }
  return slowest;
}

Link Costs::slowest_link(std::span<const int> ranks) const {
  Link slowest;
  for (int rank : ranks) {
    const auto device = static_cast<std::size_t>(wiring_.rank_device[static_cast<std::size_t>(rank)]);
    const Link& link = device_link_.at(device);
    if (link.beta <= 0) {
      throw bad_input("rank " + std::to_string(rank) + "'s device " + wiring_.devices[device].name + " has no link to its peers.",
                      "Describe the link in the wiring.");
    }
    slowest = slowest.beta > 0 ? slower(slowest, link) : link;
  }
  return slowest;
}

}  // namespace wirewise
