// What a step's communication costs on a placement: the one model that all of placement decides by.
//
// Phases follow each other. In a phase each group loads the pipes that it needs with the bytes that pass each way, and a pipe takes the sum
// of all groups' bytes over its capacity: groups that share a NIC or an uplink share its time. A phase takes as long as its slowest pipe.
//   ring      crosses each pipe with members on both sides once each way (hosts and leaves stay together); over as many ports as its host with
//             the most has, each with an equal part, through the member that is nearest to the port (those equally near share
//             its ports). Within a host: NVSwitches, else all
//             disjoint rings of direct NVLinks, else PCIe, over which the way to a port needs no link that the ring passes already.
//   all-to-all  s of n members below a pipe send s (n-s) of their n-1 parts over it.
//   chain     each pair's way carries its bytes each way.
// Latencies play no part: what places ranks is large messages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wirewise/wiring/placement.h"
#include "wirewise/wiring/placement_model.h"

namespace wirewise {

struct PlacementCost {
  Seconds seconds = 0;  // infinite where no links lead
  Seconds wire = 0;     // pipes' busy times added up: decides between placements that take equally long
};
/// Whether `a` is better, by more than rounding.
[[nodiscard]] bool better(const PlacementCost& a, const PlacementCost& b) noexcept;

/// Prices placements of one traffic on one model. Not for several threads at once.
class PlacementPricer {
 public:
  /// Both must outlive it. Throws bad input for groups that don't fit the ranks.
  PlacementPricer(const PlacementModel& model, const RankTraffic& traffic);

  /// slot_of[r]: index among the model's slots; -1: rank r isn't placed yet, and its groups cost nothing.
  [[nodiscard]] PlacementCost cost(std::span<const int> slot_of);
  [[nodiscard]] CommunicationTime time(std::span<const int> slot_of);
  /// How many ranks are looked at for one price.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct Worst {
    Seconds seconds = 0;
    Seconds wire = 0;
    int pipe = -1, link = -1;  // either: a pipe, or a direct NVLink
  };
  Worst phase(const TrafficPhase& phase, std::span<const int> slot_of);
  void group(const TrafficPhase& phase, std::span<const int> slots);
  void inside(TrafficPattern pattern, std::span<const int> members, double bytes);
  void between(TrafficPattern pattern, double bytes);
  void way(int a, int b, double bytes, bool once);
  void pair(int a, int b, double bytes, bool once);
  void load(int pipe, double bytes);
  void alone(int link, Seconds seconds, double share);
  void climb(int node, double weight);
  /// Loads the pipes that the climbs of `total` weight counted, and forgets the counts. `once`: the group's ring has passed them then.
  /// False: they don't meet.
  bool settle(TrafficPattern pattern, double total, double bytes, bool once = false);

  const PlacementModel& model_;
  const RankTraffic& traffic_;
  std::size_t size_ = 0;
  Worst worst_;
  std::vector<double> loads_, weights_;
  std::vector<int> loaded_, weighed_, roots_;
  std::vector<std::uint64_t> passed_;  // of each pipe: the last group whose ring within a host passed it
  std::uint64_t number_ = 0;           // of the group
  std::vector<int> slots_, sorted_;
  std::vector<std::pair<std::size_t, std::size_t>> units_;  // ranges of sorted_
  struct Way {
    const Port* port = nullptr;
    int slot = -1;  // through which it is reached
  };
  std::vector<std::vector<Way>> ports_;
  std::vector<int> ways_;  // of each slot: ports that are reached through it
};

}  // namespace wirewise
