// Measured figures of link classes as a cluster.toml keeps them, and how they come into a file that a person wrote.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/base/units.h"

namespace wirewise {

/// One [[measured]] table.
struct MeasuredClass {
  std::string name;   // a class of wirewise topo links, or "shared memory"
  Seconds alpha = 0;  // of one link
  BytesPerSecond beta = 0;
  double residual = 0;  // relative
  std::string source;   // the command
  std::string between;  // ranks and hosts
  std::string date;     // "2026-01-31"
  std::vector<Bytes> sizes;
};

/// The tables as text, one after the other.
[[nodiscard]] std::string measured_tables(std::span<const MeasuredClass> classes);

/// `text` with these figures: a table of a class that holds for all hosts and units gets new values, others are added, before tables that
/// narrow the class to some hosts, else at the end. All else stays as it is, byte for byte, comments too. Throws bad input, with the
/// tables to put in by hand, where that can't be done without loss; and where `text` is no TOML.
[[nodiscard]] std::string with_measured(std::string_view text, std::string_view file, std::span<const MeasuredClass> classes);

}  // namespace wirewise
