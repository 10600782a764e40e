// An InfiniBand fabric as its tools list it: switches, adapters and the cables between their ports; and the graph of it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/wiring/reading.h"

namespace wirewise {

/// Gbit/s a lane by the name of the speed, "HDR": 50.
[[nodiscard]] std::optional<double> ib_lane_rate(std::string_view speed);
/// "HDR" of the 53.125 Gbit/s that are signalled; empty when no speed is near.
[[nodiscard]] std::string_view ib_speed_name(double signalled) noexcept;

struct IbNode {
  bool is_switch = false, described = false;
  std::string label;  // "node01 mlx5_0", "MF0;leaf1:QM8700/U1"
  int line = 0;
};

/// A cable, as one of its ends says; the other end may say it again.
struct IbCable {
  std::string from, to;  // names of nodes
  int port = 0, far_port = 0, line = 0;
  double gbit = 0;       // 0: not stated
  std::string rate;      // "4xHDR"
};

struct IbFabric {
  std::map<std::string, IbNode> nodes;  // by name: "S-" or "H-" and a GUID
  std::vector<std::string> order;       // of their names, as they are named first
  std::vector<IbCable> cables;

  /// The node of this name, a new one where there is none.
  IbNode& node(const std::string& name, std::string_view file, int line);
  /// Throws bad input where there are more cables than any fabric has.
  void add(IbCable cable, std::string_view file);
};

/// Whether a label is an adapter's, "node01 mlx5_0": a host's name and a device's.
[[nodiscard]] bool names_host(std::string_view label) noexcept;

/// Adds hosts, adapters, switches with their levels, and each cable once. Facts: how many cables there are of each rate.
void add_fabric(const IbFabric& fabric, Reading& reading);

}  // namespace wirewise
