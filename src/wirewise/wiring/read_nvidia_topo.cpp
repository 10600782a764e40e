// nvidia-smi topo -m and -p2p: a matrix of devices, a row each, with the CPUs near them behind it and legends below. Read as it comes out of
// terminals, issue trackers and chats: tabs or blanks, underlined heads, rows missing, cut anywhere.
#include <algorithm>
#include <map>
#include <optional>

#include "wirewise/base/text.h"
#include "wirewise/wiring/host_builder.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostDevices = 512;

struct Cell {
  std::optional<Connection> pcie;
  int nvlinks = 0;
  std::string peer_access;  // of -p2p: "OK", "CNS"
  bool self = false;
};

std::optional<Cell> parse_cell(std::string_view text) {
  static const std::map<std::string_view, Connection> connections{{"PIX", Connection::kPix},   {"PXB", Connection::kPxb}, {"PHB", Connection::kPhb},
                                                                  {"NODE", Connection::kNode}, {"SYS", Connection::kSys}, {"SOC", Connection::kSys},
                                                                  {"PSB", Connection::kPix}};
  static constexpr std::string_view kAccess[] = {"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"};
  Cell cell;
  if (text == "X") {
    cell.self = true;
    return cell;
  }
  if (const auto found = connections.find(text); found != connections.end()) {
    cell.pcie = found->second;
    return cell;
  }
  if (text.substr(0, 2) == "NV") {
    const auto count = parse_integer(text.substr(2));
    if (!count || *count < 1 || *count > 1000) return std::nullopt;
    cell.nvlinks = static_cast<int>(*count);
    return cell;
  }
  if (std::find(std::begin(kAccess), std::end(kAccess), text) != std::end(kAccess)) {
    cell.peer_access = text;
    return cell;
  }
  return std::nullopt;
}

bool starts_with_number(std::string_view text, std::string_view word) {
  return text.size() > word.size() && text.substr(0, word.size()) == word &&
         std::all_of(text.begin() + static_cast<std::ptrdiff_t>(word.size()), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_gpu(std::string_view name) { return starts_with_number(name, "GPU"); }

/// The names of a header line, without "CPU Affinity" and what follows it; none when the line is no header.
std::vector<Word> header_of(const TextLine& line) {
  std::vector<Word> words = words_of(line);
  if (words.empty() || !is_gpu(words.front().text)) return {};
  if (words.size() > 1 && parse_cell(words[1].text)) return {};  // a row
  const auto end = std::find_if(words.begin(), words.end(), [](const Word& word) { return word.text == "CPU" || word.text == "NUMA" || word.text == "Affinity"; });
  words.erase(end, words.end());
  return words;
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : file_(file), lines_(text_lines(text)) { reading_.format = Format::kNvidiaTopo; }

  Reading read() {
    const auto head = std::find_if(lines_.begin(), lines_.end(), [](const TextLine& line) { return !header_of(line).empty(); });
    if (head == lines_.end()) {
      throw unreadable(file_, 0, 0, "there is no line of column heads (GPU0 GPU1 …).", "Give the whole of what nvidia-smi topo -m prints.");
    }
    columns_ = header_of(*head);
    check_columns(*head);
    for (auto line = head + 1; line != lines_.end(); ++line) read_line(*line, line + 1 == lines_.end());
    finish();
    return std::move(reading_);
  }

 private:
  void note(int line, int column, std::string text, bool partial = false) {
    reading_.notes.push_back({line, column, std::move(text)});
    reading_.partial = reading_.partial || partial;
  }

  void check_columns(const TextLine& line) {
    if (columns_.size() > kMostDevices) throw unreadable(file_, line.number, 0, "there are " + std::to_string(columns_.size()) + " columns.");
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const Word& word = columns_[i];
      if (!index_.try_emplace(word.text, i).second) throw unreadable(file_, line.number, word.column, printable(word.text) + " heads two columns.");
      Device device;
      device.name = word.text;
      device.kind = is_gpu(word.text) ? DeviceKind::kGpu : DeviceKind::kNic;
      pairs_.devices.push_back(std::move(device));
    }
    pairs_.pcie.resize(columns_.size() * columns_.size());
    pairs_.nvlinks.resize(columns_.size() * columns_.size());
    row_line_.resize(columns_.size());
  }

  void read_line(const TextLine& line, bool last) {
    const std::vector<Word> words = words_of(line);
    if (words.empty()) return;
    if (words.front().text == "Legend:" || words.front().text == "NIC") {
      in_legend_ = in_legend_ || words.front().text == "Legend:" || words.back().text == "Legend:";
      if (words.front().text == "NIC" && words.size() == 1) note(line.number, 1, "a row is cut off after its name.", true);
      return;
    }
    const auto device = index_.find(words.front().text);
    if (in_legend_ || words.front().text.back() == ':') {
      read_legend(words);
      return;
    }
    if (device == index_.end()) {
      if (last && !line.ended) {
        note(line.number, words.front().column, "the last line is cut off.", true);
      } else if (is_gpu(words.front().text) || (words.size() > 1 && parse_cell(words[1].text))) {
        throw unreadable(file_, line.number, words.front().column, "the row of " + printable(words.front().text) + " has no column.");
      }
      return;  // prose round the matrix
    }
    read_row(line, words, device->second, last);
  }

  void read_row(const TextLine& line, const std::vector<Word>& words, std::size_t row, bool last) {
    if (row_line_[row] != 0) {
      throw unreadable(file_, line.number, words.front().column, "a second row of " + columns_[row].text + "; the first is line " + std::to_string(row_line_[row]) + ".");
    }
    row_line_[row] = line.number;
    std::size_t column = 0;
    for (; column < columns_.size() && column + 1 < words.size(); ++column) {
      const Word& word = words[column + 1];
      const auto cell = parse_cell(word.text);
      if (!cell) {
        const bool at_end = column + 2 == words.size();
        if (at_end && last) break;  // cut in the middle of a word
        throw unreadable(file_, line.number, word.column, printable(word.text) + " is no connection, in the row of " + columns_[row].text + " under " + columns_[column].text + ".",
                         "Known are X, NV1 to NV18, PIX, PXB, PHB, NODE and SYS.");
      }
      take(line, word, row, column, *cell);
    }
    if (column < columns_.size()) {
      note(line.number, 0, "the row of " + columns_[row].text + " ends before the column of " + columns_[column].text + ".", true);
      return;
    }
    if (words.size() > column + 1) read_affinity(words, column + 1, row);
  }

  void take(const TextLine& line, const Word& word, std::size_t row, std::size_t column, const Cell& cell) {
    if (cell.self != (row == column)) {
      throw unreadable(file_, line.number, word.column, row == column ? columns_[row].text + " has " + printable(word.text) + " to itself, where X belongs."
                                                                      : "X stands between " + columns_[row].text + " and " + columns_[column].text + ".");
    }
    if (cell.self) return;
    if (!cell.peer_access.empty()) {
      reading_.facts.push_back({columns_[row].text + "-" + columns_[column].text, "peer access", cell.peer_access, line.number});
      peer_access_ = true;
      return;
    }
    const Stated stated{cell, line.number, word.column};
    const auto [other, first] = stated_.try_emplace({std::min(row, column), std::max(row, column)}, stated);
    if (!first && (other->second.cell.pcie != cell.pcie || other->second.cell.nvlinks != cell.nvlinks)) {
      note(line.number, word.column, columns_[row].text + " to " + columns_[column].text + " is " + printable(word.text) + " here, and something else in line " +
                                         std::to_string(other->second.line) + ".");
    }
    for (const auto& [a, b] : {std::pair{row, column}, std::pair{column, row}}) {
      auto& known = pairs_.connection(a, b);
      if (cell.pcie && (!known || *cell.pcie < *known)) known = cell.pcie;
      pairs_.links(a, b) = std::max(pairs_.links(a, b), cell.nvlinks);
    }
  }

  /// CPU Affinity, NUMA Affinity, GPU NUMA ID; a cell of several ranges has no blanks.
  void read_affinity(const std::vector<Word>& words, std::size_t at, std::size_t row) {
    Device& device = pairs_.devices[row];
    if (words[at].text != "N/A") device.cpus = words[at].text;
    if (at + 1 >= words.size()) return;
    const auto numa = parse_integer(words[at + 1].text);
    if (numa && *numa >= 0 && *numa < 4096) device.numa = static_cast<int>(*numa);
  }

  /// "NIC0: mlx5_0".
  void read_legend(const std::vector<Word>& words) {
    if (words.size() < 2 || words.front().text.back() != ':') return;
    const auto device = index_.find(words.front().text.substr(0, words.front().text.size() - 1));
    if (device == index_.end()) return;
    std::string name = words[1].text;
    const bool taken = std::any_of(pairs_.devices.begin(), pairs_.devices.end(), [&](const Device& other) { return other.name == name; });
    if (!taken) pairs_.devices[device->second].name = std::move(name);
  }

  void finish() {
    std::vector<std::string> missing;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (row_line_[i] == 0) missing.push_back(columns_[i].text);
    }
    if (!missing.empty()) note(0, 0, "rows are missing: " + join(missing, ", ") + ".", true);
    // A device that nothing is said of but how far it is from others has no place among those that share its fate.
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      bool near = false, complete = true;
      for (std::size_t j = 0; j < columns_.size(); ++j) {
        if (i == j) continue;
        const auto& known = pairs_.connection(i, j);
        near = near || (known && *known <= Connection::kNode);
        complete = complete && (known || pairs_.links(i, j) > 0);
      }
      const bool alone_by_right = complete && !peer_access_;
      pairs_.devices[i].placed = near || pairs_.devices[i].numa >= 0 || alone_by_right;
    }
    const std::vector<Device> named = pairs_.devices;
    add_host(reading_.wiring, "host0", std::move(pairs_));
    // The graph must say what the file said.
    const Relations relations(reading_.wiring);
    for (const auto& [pair, stated] : stated_) {
      const int a = find_device(reading_.wiring, named[pair.first].name);
      const int b = find_device(reading_.wiring, named[pair.second].name);
      const Relation found = relations.between(a, b);
      const Relation meant{stated.cell.pcie.value_or(found.pcie), stated.cell.nvlinks};
      if (name_of(found) == name_of(meant)) continue;
      note(stated.line, stated.column, "the matrix contradicts itself: " + columns_[pair.first].text + " to " + columns_[pair.second].text + " is " + name_of(meant) +
                                           " by itself, but " + name_of(found) + " by what it says of others.");
    }
  }

  struct Stated {
    Cell cell;
    int line, column;
  };

  std::string_view file_;
  std::vector<TextLine> lines_;
  Reading reading_;
  std::vector<Word> columns_;
  std::map<std::string, std::size_t> index_;
  HostPairs pairs_;
  std::vector<int> row_line_;  // 0: none yet
  std::map<std::pair<std::size_t, std::size_t>, Stated> stated_;
  bool in_legend_ = false;
  bool peer_access_ = false;
};

}  // namespace

Reading read_nvidia_topo(std::string_view text, std::string_view file) { return Reader(text, file).read(); }

}  // namespace wirewise
