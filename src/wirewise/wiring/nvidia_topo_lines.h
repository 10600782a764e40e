// The lines of nvidia-smi topo -m: heads, cells, and rows that a terminal wrapped, put together again.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/wiring/relation.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {

struct TopoCell {
  std::optional<Connection> pcie;
  int nvlinks = 0;
  std::string peer_access;  // of -p2p: "OK", "CNS"
  bool self = false;
};
[[nodiscard]] std::optional<TopoCell> parse_topo_cell(std::string_view text);

/// Whether a column is a GPU's: "GPU12".
[[nodiscard]] bool is_topo_gpu(std::string_view name) noexcept;
/// Whether a word lists CPUs: "0-31,64-95".
[[nodiscard]] bool is_cpu_list(std::string_view text) noexcept;

/// The names of a header line, without "CPU Affinity" and what follows it; none when the line is no header.
[[nodiscard]] std::vector<Word> topo_header(const TextLine& line);

/// Whether the cell of a row under "CPU Affinity" is empty, so that what comes next stands under "NUMA Affinity": two tabs in its place, or
/// words that stand under their heads but for it. `columns`: how many devices the header has.
[[nodiscard]] bool leaves_out_cpus(const TextLine& header, const TextLine& row, std::size_t columns);

/// A matrix: its header, and the lines from there to the next matrix or the end.
struct TopoBlock {
  std::vector<TextLine> lines;  // the header first; of lines that were put together the number is the first one's
};
[[nodiscard]] std::vector<TopoBlock> topo_blocks(const std::vector<TextLine>& lines);

}  // namespace wirewise
