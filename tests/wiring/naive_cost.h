// What a step's communication costs on a placement, by the definition in placement_cost.h and in as few ideas as it takes: links of the
// graph, ways between two devices by breadth-first search, and for each flow its bytes added to every link that it passes. It shares no code
// with what it checks: no trees, no weights, no units put together beforehand. Slow, and only for machines of a few devices.
//
//   In a phase all groups send at once, and a link's time is the bytes of all over its rate. Members that NVSwitches join, or that are on one
//   host, are a unit. Within a unit a ring passes its bytes over each link between any two members, once each way; all-to-all is a flow from
//   each to each; a chain's pair one both ways. NVSwitches first, else direct NVLinks (a ring: all that fit beside each other, a pair: its own
//   link), else PCIe. Units reach each other over their members' nearest ports, as many lines as the unit with the most ports has, each with an
//   equal part, from a port's nearest member on (those equally near have equally many of them); a ring that passes PCIe within a unit needs no link of it twice.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "wirewise/wiring/placement.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise::placement_test {

class NaiveCost {
 public:
  explicit NaiveCost(const Wiring& wiring) : wiring_(wiring) {}

  /// Nothing where the machine has too many rings for an exhaustive search.
  std::optional<double> seconds(const RankTraffic& traffic, const std::vector<int>& device) {
    double sum = 0;
    unknown_ = false;
    for (const TrafficPhase& phase : traffic.phases) {
      bytes_.clear();
      slowest_ = 0;
      for (const std::vector<int>& ranks : phase.groups) {
        std::vector<int> members;
        for (const int rank : ranks) members.push_back(device[index(rank)]);
        if (members.size() > 1 && phase.bytes > 0) group(phase, members);
      }
      for (const auto& [link, bytes] : bytes_) slowest_ = std::max(slowest_, bytes / rate_of(link));
      sum += slowest_;
    }
    if (unknown_) return std::nullopt;
    return sum;
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  using Way = std::vector<int>;  // links, one direction

  [[nodiscard]] const Link& link(int i) const { return wiring_.links[index(i)]; }
  [[nodiscard]] const Device& of(int i) const { return wiring_.devices[index(i)]; }

  /// Uplinks of a switch count together; elsewhere a link is its own.
  [[nodiscard]] double rate_of(int i) const {
    if (of(link(i).from).kind != DeviceKind::kSwitch || of(link(i).to).kind != DeviceKind::kSwitch) return link(i).beta;
    const bool up = of(link(i).from).level < of(link(i).to).level;
    const int lower = up ? link(i).from : link(i).to;
    double rate = 0;
    for (const Link& other : wiring_.links) {
      if (other.from == lower && of(other.to).kind == DeviceKind::kSwitch && of(other.to).level > of(lower).level) rate += other.beta;
    }
    return rate;
  }

  /// The shortest way over links that `take` allows; the first that is found.
  Way way(int from, int to, const std::function<bool(const Link&)>& take) const {
    std::map<int, int> by{{from, -1}};
    std::vector<int> reached{from};
    for (std::size_t i = 0; i < reached.size() && !by.contains(to); ++i) {
      for (int l = 0; l < static_cast<int>(wiring_.links.size()); ++l) {
        if (link(l).from == reached[i] && take(link(l)) && by.try_emplace(link(l).to, l).second) reached.push_back(link(l).to);
      }
    }
    Way found;
    for (int at = to; at != from; at = link(by.at(at)).from) found.insert(found.begin(), by.at(at));
    return found;
  }
  Way pcie(int from, int to) const {
    return way(from, to, [](const Link& l) { return l.kind == LinkKind::kPcie || l.kind == LinkKind::kSockets || l.kind == LinkKind::kSharedMemory; });
  }
  Way network(int from, int to) const {
    return way(from, to, [](const Link& l) { return l.kind == LinkKind::kEthernet || l.kind == LinkKind::kInfiniband; });
  }

  void flow(const Way& over, double bytes) {
    for (const int l : over) bytes_[l] += bytes;
  }
  /// Each link of the ways between any two of `ends`, each way, once.
  void round_trip(const std::vector<Way>& ways, double bytes) {
    std::set<int> passed;
    for (const Way& each : ways) passed.insert(each.begin(), each.end());
    flow(Way(passed.begin(), passed.end()), bytes);
  }
  template <class WayOf>
  void ring(const std::vector<int>& ends, double bytes, WayOf way_of) {
    std::vector<Way> ways;
    for (const int a : ends) {
      for (const int b : ends) {
        if (a != b) ways.push_back(way_of(a, b));
      }
    }
    round_trip(ways, bytes);
  }

  [[nodiscard]] std::set<int> switches_of(int device) const {
    std::set<int> found;
    for (const Link& l : wiring_.links) {
      if (l.from == device && l.kind == LinkKind::kNvlink && of(l.to).kind == DeviceKind::kNvSwitch) found.insert(l.to);
    }
    return found;
  }
  [[nodiscard]] bool one_unit(int a, int b) const {
    if (switches_of(a) != switches_of(b)) return false;
    return !switches_of(a).empty() || of(a).host == of(b).host;
  }
  [[nodiscard]] int direct(int a, int b) const {
    for (int l = 0; l < static_cast<int>(wiring_.links.size()); ++l) {
      if (link(l).from == a && link(l).to == b && link(l).kind == LinkKind::kNvlink) return l;
    }
    return -1;
  }
  /// Whether GPUs of a host are joined directly at all.
  [[nodiscard]] bool meshed(int host) const {
    return std::any_of(wiring_.links.begin(), wiring_.links.end(),
                       [&](const Link& l) { return l.kind == LinkKind::kNvlink && of(l.from).host == host && of(l.from).kind == DeviceKind::kGpu && of(l.to).kind == DeviceKind::kGpu; });
  }

  /// Two devices of a unit, both ways, over NVLinks of their own (which no other pair shares) or PCIe.
  void pair(int a, int b, double bytes) {
    if (const int l = direct(a, b); l != -1) {
      slowest_ = std::max(slowest_, bytes / link(l).beta);
      return;
    }
    flow(pcie(a, b), bytes);
    flow(pcie(b, a), bytes);
  }

  void inside(TrafficPattern pattern, const std::vector<int>& members, double bytes) {
    if (members.size() < 2) return;
    if (!switches_of(members[0]).empty()) {
      // A ring leaves each member once and enters it once; all-to-all and chains are flows from each to each.
      const double out = pattern == TrafficPattern::kAllToAll ? bytes * static_cast<double>(members.size() - 1) : bytes;
      for (const int member : members) {
        for (int l = 0; l < static_cast<int>(wiring_.links.size()); ++l) {
          if (link(l).from == member && link(l).kind == LinkKind::kNvlink) bytes_[l] += out;
        }
      }
      return;
    }
    if (pattern == TrafficPattern::kAllToAll) {
      const bool nvlinks = meshed(of(members[0]).host);
      for (const int a : members) {
        for (const int b : members) {
          if (a >= b) continue;
          if (nvlinks) {
            pair(a, b, bytes);
          } else {
            flow(pcie(a, b), bytes);
            flow(pcie(b, a), bytes);
          }
        }
      }
      return;
    }
    if (pattern == TrafficPattern::kChain || (members.size() == 2 && meshed(of(members[0]).host))) {
      pair(members[0], members[1], bytes);
      if (pattern == TrafficPattern::kRing && direct(members[0], members[1]) == -1) pass(members);
      return;
    }
    if (const double rate = rings(members); rate > 0) {
      slowest_ = std::max(slowest_, bytes / rate);
      return;
    }
    ring(members, bytes, [&](int a, int b) { return pcie(a, b); });
    pass(members);
  }

  /// The ring of these has been over PCIe.
  void pass(const std::vector<int>& members) {
    for (const int a : members) {
      for (const int b : members) {
        if (a == b) continue;
        const Way over = pcie(a, b);
        passed_.insert(over.begin(), over.end());
      }
    }
  }

  /// The most rings that visit all members and share no lane in one direction, found by trying all, at the rate of the slowest lane.
  double rings(const std::vector<int>& members) {
    const std::size_t n = members.size();
    std::vector<int> lanes(n * n, 0);
    double slowest = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        const int l = i == j ? -1 : direct(members[i], members[j]);
        if (l == -1) continue;
        lanes[i * n + j] = std::max(1, link(l).lanes);
        slowest = std::min(slowest, link(l).beta / lanes[i * n + j]);
      }
    }
    const auto known = known_.find(lanes);
    if (known != known_.end()) {
      if (known->second < 0) unknown_ = true;
      return known->second > 0 ? known->second * slowest : 0;
    }
    std::vector<std::vector<std::size_t>> cycles;
    std::vector<std::size_t> order{0};
    const std::function<void()> extend = [&] {
      if (order.size() == n) {
        if (lanes[order.back() * n] > 0) cycles.push_back(order);
        return;
      }
      for (std::size_t to = 1; to < n; ++to) {
        if (std::find(order.begin(), order.end(), to) != order.end() || lanes[order.back() * n + to] == 0) continue;
        order.push_back(to);
        extend();
        order.pop_back();
      }
    };
    extend();
    int steps = 0;
    std::map<std::pair<std::size_t, std::vector<int>>, int> best;
    const std::function<int(std::size_t, std::vector<int>&)> pack = [&](std::size_t first, std::vector<int>& left) -> int {
      if (first == cycles.size() || ++steps > kMostSteps) return 0;
      const auto [of_these, fresh] = best.try_emplace({first, left}, 0);
      if (!fresh) return of_these->second;
      int most = pack(first + 1, left);
      const auto& cycle = cycles[first];
      bool fits = true;
      for (std::size_t i = 0; i < n; ++i) fits = fits && left[cycle[i] * n + cycle[(i + 1) % n]] > 0;
      if (fits) {
        for (std::size_t i = 0; i < n; ++i) --left[cycle[i] * n + cycle[(i + 1) % n]];
        most = std::max(most, 1 + pack(first, left));
        for (std::size_t i = 0; i < n; ++i) ++left[cycle[i] * n + cycle[(i + 1) % n]];
      }
      best[{first, left}] = most;
      return most;
    };
    std::vector<int> left = lanes;
    int count = pack(0, left);
    if (steps > kMostSteps) {
      count = -1;
      unknown_ = true;
    }
    known_[lanes] = count;
    return count > 0 ? count * slowest : 0;
  }

  struct Port {
    int nic = -1, leaf = -1;
    int member = -1;  // through which the unit reaches it
    std::size_t depth = 0;  // links that its way and the member's have in common
  };
  /// The ports of a host that are nearest to a device: those whose ways meet deepest in its tree.
  std::vector<Port> ports_of(int device) const {
    const int host = of(device).host;
    int root = -1;
    for (int i = 0; i < static_cast<int>(wiring_.devices.size()); ++i) {
      if (of(i).kind == DeviceKind::kHost && of(i).host == host) root = i;
    }
    double fastest = 0;
    const auto leaves_host = [&](const Link& l) { return of(l.from).host == host && of(l.to).kind == DeviceKind::kSwitch && (l.kind == LinkKind::kEthernet || l.kind == LinkKind::kInfiniband); };
    for (const Link& l : wiring_.links) fastest = std::max(fastest, leaves_host(l) ? l.beta : 0);
    std::vector<Port> nearest;
    std::size_t deepest = 0;
    const Way own = pcie(root, device);
    for (const Link& l : wiring_.links) {
      if (!leaves_host(l) || l.beta * 2 < fastest) continue;
      const Way to = pcie(root, l.from);
      std::size_t common = 0;
      while (common < own.size() && common < to.size() && own[common] == to[common]) ++common;
      if (!nearest.empty() && common < deepest) continue;
      if (common > deepest) nearest.clear();
      deepest = common;
      nearest.push_back({l.from, l.to, device, common});
    }
    return nearest;
  }

  void between(TrafficPattern pattern, const std::vector<std::vector<int>>& units, double bytes) {
    std::vector<int> all;
    for (const auto& unit : units) all.insert(all.end(), unit.begin(), unit.end());
    const auto total = static_cast<double>(all.size());
    if (std::all_of(all.begin(), all.end(), [&](int member) { return of(member).host == of(all.front()).host; })) {
      if (pattern == TrafficPattern::kRing) return ring(all, bytes, [&](int a, int b) { return pcie(a, b); });
      for (const int a : all) {
        for (const int b : all) {
          if (a != b) flow(pcie(a, b), bytes / (total - 1));
        }
      }
      return;
    }
    std::vector<std::vector<Port>> ports(units.size());
    std::size_t lines = 0;
    for (std::size_t u = 0; u < units.size(); ++u) {
      std::map<int, int> ways;  // of each member: ports that are reached through it
      for (const int member : units[u]) {
        std::vector<Port> own = ports_of(member);
        std::sort(own.begin(), own.end(), [](const Port& a, const Port& b) { return std::pair(a.leaf, a.nic) < std::pair(b.leaf, b.nic); });
        for (const Port& port : own) {
          const auto known = std::find_if(ports[u].begin(), ports[u].end(), [&](const Port& other) { return other.nic == port.nic; });
          if (known == ports[u].end()) {
            ports[u].push_back(port);
            ++ways[member];
          } else if (port.depth > known->depth || (port.depth == known->depth && ways[member] + 1 < ways[known->member])) {
            --ways[known->member];
            ++ways[member];
            *known = port;
          }
        }
      }
      std::sort(ports[u].begin(), ports[u].end(), [](const Port& a, const Port& b) { return std::pair(a.leaf, a.nic) < std::pair(b.leaf, b.nic); });
      lines = std::max(lines, ports[u].size());
    }
    for (std::size_t line = 0; line < lines; ++line) {
      const auto port_of = [&](std::size_t u) { return ports[u][line % ports[u].size()]; };
      const double part = bytes / static_cast<double>(lines);
      std::vector<int> nics;
      for (std::size_t u = 0; u < units.size(); ++u) {
        nics.push_back(port_of(u).nic);
        const auto members = static_cast<double>(units[u].size());
        const double leaving = pattern == TrafficPattern::kAllToAll ? part * members * (total - members) / (total - 1) : part;
        for (Way over : {pcie(port_of(u).member, port_of(u).nic), pcie(port_of(u).nic, port_of(u).member)}) {
          std::erase_if(over, [&](int l) { return passed_.contains(l); });
          flow(over, leaving);
        }
      }
      if (pattern == TrafficPattern::kRing) {
        ring(nics, part, [&](int a, int b) { return network(a, b); });
        continue;
      }
      for (std::size_t u = 0; u < units.size(); ++u) {
        for (std::size_t v = 0; v < units.size(); ++v) {
          if (u != v) flow(network(nics[u], nics[v]), part / (total - 1) * static_cast<double>(units[u].size() * units[v].size()));
        }
      }
    }
  }

  void group(const TrafficPhase& phase, std::vector<int> members) {
    passed_.clear();
    if (phase.pattern == TrafficPattern::kChain) {
      for (std::size_t i = 0; i + 1 < members.size(); ++i) {
        if (one_unit(members[i], members[i + 1])) inside(phase.pattern, {members[i], members[i + 1]}, phase.bytes);
        else between(TrafficPattern::kRing, {{members[i]}, {members[i + 1]}}, phase.bytes);
      }
      return;
    }
    std::sort(members.begin(), members.end());
    std::vector<std::vector<int>> units;
    for (const int member : members) {
      const auto same = std::find_if(units.begin(), units.end(), [&](const auto& unit) { return one_unit(unit[0], member); });
      if (same == units.end()) units.push_back({member});
      else same->push_back(member);
    }
    const double each = phase.pattern == TrafficPattern::kAllToAll ? phase.bytes / static_cast<double>(members.size() - 1) : phase.bytes;
    for (const auto& unit : units) inside(phase.pattern, unit, each);
    if (units.size() > 1) between(phase.pattern, units, phase.bytes);
  }

  static constexpr int kMostSteps = 200000;
  std::set<int> passed_;  // links within units that the group's ring has passed
  const Wiring& wiring_;
  std::map<int, double> bytes_;
  double slowest_ = 0;
  bool unknown_ = false;
  std::map<std::vector<int>, int> known_;
};

}  // namespace wirewise::placement_test
