// What the ranks of a training configuration send in a step, for `wirewise place`: from the schedule that trains it, where there is one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "wirewise/plan/placement_traffic.h"

namespace wirewise {

/// A step as the command line describes it.
struct PlacedStep {
  std::string config;                       // of `wirewise train`; empty: none
  std::vector<std::string> overrides;       // "model.preset=llama-3-8b"
  std::string mesh;                         // empty: the configuration's own degrees
  std::map<std::string, double> given;      // bytes a rank sends, by degree, in place of those below
};

/// What the ranks are to be put on: it decides how many there are, and whether those of a host can share parameters.
struct PlacedOn {
  int devices = 0;  // ranks, where the mesh leaves it open
  int hosts = 1;
  bool gpus = true;
};

struct StepTraffic {
  RankTraffic traffic;
  std::map<std::string, std::string> from;  // by phase: "the step's schedule"
};

/// Data-parallel traffic is what the schedule of the step moves, divided among stages and tensor ranks; that of degrees which can't be
/// trained yet (tp, pp, cp, ep, dp_replicate) is a transformer's of the configuration's size. Throws bad input as `wirewise train` would.
[[nodiscard]] StepTraffic step_traffic(const PlacedStep& step, const PlacedOn& on);

}  // namespace wirewise
