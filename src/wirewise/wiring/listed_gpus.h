// A host of which only its GPUs are known, as nvidia-smi lists them: where each hangs isn't said, how fast its PCIe link is sometimes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "wirewise/wiring/reading.h"

namespace wirewise {

inline constexpr std::size_t kMostListedGpus = 1024;

/// Adds the host, "host0", to an empty graph.
void add_listed_host(Wiring& wiring);
/// Adds GPU`index` to it, at an assumed PCIe link. Returns its device.
int add_listed_gpu(Wiring& wiring, int index, const std::string& model);

/// A GPU's PCIe link; 0: not stated.
struct PcieSeen {
  int generation = 0, most_generation = 0, lanes = 0, most_lanes = 0;
};
/// Makes a GPU's link what is stated of it. One that runs below what it could is noted as wrong, but its generation not of a GPU that idles, as it
/// slows its link itself. `idle`: empty where it isn't stated.
void set_listed_pcie(Reading& reading, int gpu, const PcieSeen& seen, std::optional<bool> idle, int line);

/// "N/A" and its kind.
[[nodiscard]] bool not_stated(std::string_view value) noexcept;
/// "00000000:1B:00.0" as Linux writes it, "0000:1b:00.0"; empty when it is no address.
[[nodiscard]] std::string listed_pci(std::string_view text);
/// Whether a performance state, "P8", is one of rest; empty when it is none.
[[nodiscard]] std::optional<bool> rests(std::string_view performance_state) noexcept;
/// Whether a utilisation, "35 %" or "35", is above 0.
[[nodiscard]] bool at_work(std::string_view utilization) noexcept;

}  // namespace wirewise
