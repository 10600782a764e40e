// What else stands in a file with a matrix of nvidia-smi topo: the command that printed it, names of its GPUs, the report of nvidia-smi -q.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {

/// The line with the command that prints PCIe alone; 0: there is none.
[[nodiscard]] int pcie_only(const std::vector<TextLine>& lines);

/// GPUs as nvidia-smi -L and -q name them, or the reports on an environment that frameworks ask for ("GPU 0: NVIDIA …", "GPU 0,1,2,3: NVIDIA …"),
/// pasted beside a matrix, in their order.
[[nodiscard]] std::vector<Device> models_beside(const std::vector<TextLine>& lines);

/// What nvidia-smi -q in the same file says, where it can be read.
[[nodiscard]] std::optional<Reading> report_beside(std::string_view text, std::string_view file, const std::vector<TextLine>& lines);

/// The PCIe links of a report's GPUs, which the matrix's GPUs are in their order, and its facts and notes.
void add_report(const Reading& report, Reading& reading);

}  // namespace wirewise
