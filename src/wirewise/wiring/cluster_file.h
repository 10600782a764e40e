// cluster.toml: kinds of hosts times their counts, and the network between them. docs/cluster_file.md has all its keys. Host templates and whole
// clusters under data/ are within the program and go by their names.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/wiring/reading.h"

namespace wirewise {

/// A description that the program carries within itself.
struct ShippedMachine {
  std::string name;   // "dgx-a100"
  std::string about;  // one line
};
/// All of them, kinds of hosts first, by name.
[[nodiscard]] std::vector<ShippedMachine> shipped_machines();
/// The graph of the one with this name; empty where there is none.
[[nodiscard]] std::optional<Reading> read_shipped(std::string_view name);

}  // namespace wirewise
