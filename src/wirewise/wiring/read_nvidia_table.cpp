// nvidia-smi without options: a table whose rows of two or three lines each are one host's GPUs.
#include <algorithm>
#include <optional>

#include "wirewise/base/text.h"
#include "wirewise/wiring/listed_gpus.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

/// The texts between a line's bars, trimmed; none when it isn't a line of a table.
std::vector<std::string> cells_of(const TextLine& line) {
  const std::string_view text = trimmed(line.text);
  if (text.size() < 2 || text.front() != '|') return {};
  std::vector<std::string> cells;
  for (const std::string& cell : split(text.substr(1, text.size() - (text.back() == '|' ? 2 : 1)), '|')) cells.emplace_back(trimmed(cell));
  return cells;
}

std::vector<std::string> words_in(const std::string& cell) {
  std::vector<std::string> words;
  for (const std::string& word : split(cell, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

struct Row {
  int index = 0;
  std::string model, pci, persistence, ecc;
};

/// "|   0  NVIDIA A100-SXM4-80GB      On  | 00000000:07:00.0 Off |                    0 |".
std::optional<Row> row_of(const TextLine& line) {
  const auto cells = cells_of(line);
  if (cells.size() < 2) return std::nullopt;
  auto first = words_in(cells[0]);
  const auto second = words_in(cells[1]);
  if (first.size() < 2 || second.empty()) return std::nullopt;
  const auto index = parse_integer(first[0]);
  Row row;
  row.pci = listed_pci(second[0]);
  if (!index || *index < 0 || *index > 100000 || row.pci.empty() || std::count(row.pci.begin(), row.pci.end(), ':') != 2) return std::nullopt;
  row.index = static_cast<int>(*index);
  first.erase(first.begin());
  for (const char* state : {"On", "Off", "N/A", "WDDM", "TCC", "MCDM"}) {
    if (first.size() < 2 || first.back() != state) continue;
    row.persistence = state;
    first.pop_back();
    break;
  }
  row.model = join(first, " ");
  if (cells.size() > 2) row.ecc = cells[2];
  return row;
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : file_(file), lines_(text_lines(text)) { reading_.format = Format::kNvidiaTable; }

  Reading read() {
    add_listed_host(reading_.wiring);
    for (const TextLine& line : lines_) {
      if (const auto row = row_of(line)) begin(line, *row);
      else if (const auto cells = cells_of(line); cells.empty()) at_ = trimmed(line.text).empty() ? -1 : at_;
      else read_line(line, cells);
    }
    if (seen_.empty()) throw unreadable(file_, 0, 0, "the table has no GPU.", "Give the whole of what nvidia-smi prints, or of nvidia-smi topo -m.");
    if (cut_name_) reading_.notes.push_back({0, 0, "names that end with ... are cut off by nvidia-smi; nvidia-smi -L prints them whole."});
    reading_.notes.push_back({0, 0, "the table says nothing of wires: how the GPUs are joined isn't known. nvidia-smi topo -m says it."});
    return std::move(reading_);
  }

 private:
  Device& device() { return reading_.wiring.devices[static_cast<std::size_t>(at_)]; }
  void fact(const TextLine& line, const char* name, const std::string& value) {
    if (!not_stated(value)) reading_.facts.push_back({device().name, name, value, line.number});
  }

  void begin(const TextLine& line, const Row& row) {
    if (std::find(seen_.begin(), seen_.end(), row.index) != seen_.end()) throw unreadable(file_, line.number, 1, "GPU " + std::to_string(row.index) + " stands there twice.", "Give the output of one host.");
    if (seen_.size() == kMostListedGpus) throw unreadable(file_, line.number, 1, "there are more than " + std::to_string(kMostListedGpus) + " GPUs.");
    seen_.push_back(row.index);
    at_ = add_listed_gpu(reading_.wiring, row.index, row.model);
    device().pci = row.pci;
    cut_name_ = cut_name_ || row.model.ends_with("...");
    fact(line, "persistence mode", row.persistence);
    fact(line, "ECC errors, uncorrected", row.ecc);
  }

  /// The lines below: "| N/A   31C    P0    62W / 400W |      4MiB / 81920MiB |      0%      Default |", then MIG's.
  void read_line(const TextLine& line, const std::vector<std::string>& cells) {
    if (at_ == -1) {
      read_head(line);
      return;
    }
    if (cells.size() != 3) {
      if (cells.size() < 3) at_ = -1;  // the processes
      return;
    }
    const auto first = words_in(cells[0]), memory = words_in(cells[1]), last = words_in(cells[2]);
    for (const std::string& word : first) {
      if (rests(word)) fact(line, "performance state", word);
    }
    if (memory.size() == 3 && memory[1] == "/" && memory[2].ends_with("MiB")) {
      const auto total = parse_integer(std::string_view(memory[2]).substr(0, memory[2].size() - 3));
      if (total && *total > 0 && *total < 1LL << 32) device().memory = static_cast<Bytes>(*total) * kMiB;
      fact(line, "memory used", memory[0]);
      if (!last.empty()) fact(line, "utilization", last[0]);
    } else if (first.empty() && last.size() == 1 && (last[0] == "Enabled" || last[0] == "Disabled")) {
      fact(line, "MIG", last[0]);
      if (last[0] == "Enabled") reading_.notes.push_back({line.number, 0, device().name + " is divided by MIG: a process gets a slice's memory and units, not the card's."});
    }
  }

  /// "NVIDIA-SMI 535.104.05    Driver Version: 535.104.05   CUDA Version: 12.2".
  void read_head(const TextLine& line) {
    for (const auto& [key, name] : {std::pair{"Driver Version: ", "driver"}, std::pair{"CUDA Version: ", "CUDA"}}) {
      const std::size_t at = line.text.find(key);
      if (at == std::string::npos) continue;
      const std::size_t from = at + std::string_view(key).size(), to = std::min(line.text.find_first_of(" |", from), line.text.size());
      reading_.facts.push_back({"host0", name, line.text.substr(from, to - from), line.number});
    }
  }

  std::string_view file_;
  std::vector<TextLine> lines_;
  Reading reading_;
  std::vector<int> seen_;
  int at_ = -1;
  bool cut_name_ = false;
};

}  // namespace

bool looks_like_nvidia_table(const std::vector<TextLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const TextLine& line) { return line.text.find("| NVIDIA-SMI ") != std::string::npos || row_of(line).has_value(); });
}

Reading read_nvidia_table(std::string_view text, std::string_view file) { return Reader(text, file).read(); }

}  // namespace wirewise
