// nvidia-smi topo -m and -p2p: a matrix of devices, a row each, with the CPUs near them behind it and legends below. Read as it comes out of
// terminals, issue trackers and chats: tabs or blanks, underlined heads, rows wrapped or missing, cut anywhere. Matrices that follow each other
// are of as many hosts, but -p2p of the GPUs of a -m beside it is of that host.
#include <algorithm>
#include <map>
#include <optional>

#include "wirewise/base/text.h"
#include "wirewise/wiring/host_builder.h"
#include "wirewise/wiring/nvidia_topo_beside.h"
#include "wirewise/wiring/nvidia_topo_gaps.h"
#include "wirewise/wiring/nvidia_topo_lines.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostDevices = 512;
constexpr std::size_t kMostOfAll = 2048;  // devices of all matrices

/// Whether the graph has a device of this name in every host, or may have.
bool is_ours(std::string_view name) {
  for (const std::string_view start : {"host", "numa", "bridge", "switch", "nvswitch"}) {
    if (name.substr(0, start.size()) != start) continue;
    const std::string_view rest = name.substr(start.size());
    if (std::all_of(rest.begin(), rest.end(), [](char c) { return (c >= '0' && c <= '9') || c == '?'; })) return true;
  }
  return false;
}

/// One matrix, into a reading.
class Matrix {
 public:
  /// `at_end`: the text ends with it.
  Matrix(const TopoBlock& block, std::string_view file, bool at_end, Reading& reading)
      : file_(file), reading_(reading), header_(block.lines.front()), columns_(topo_header(header_)), line_(header_.number) {
    check_columns(block.lines.front());
    for (std::size_t i = 1; i < block.lines.size(); ++i) read_line(block.lines[i], at_end && i + 1 == block.lines.size());
  }

  [[nodiscard]] int line() const { return line_; }
  /// Whether all that it says is -p2p's.
  [[nodiscard]] bool is_peer_access() const { return peer_access_ && stated_.empty(); }
  /// Whether all columns of `other` are among its own.
  [[nodiscard]] bool covers(const Matrix& other) const {
    return std::all_of(other.columns_.begin(), other.columns_.end(), [&](const Word& column) { return index_.count(column.text) > 0; });
  }

  /// Adds its facts, those of `host` of several.
  void add_facts(const std::string& host) {
    for (Fact& fact : facts_) {
      if (!host.empty()) fact.subject = host + " " + fact.subject;
      reading_.facts.push_back(std::move(fact));
    }
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
      if (is_ours(word.text)) throw unreadable(file_, line.number, word.column, printable(word.text) + " names no GPU or NIC.");
      Device device;
      device.name = word.text;
      device.kind = is_topo_gpu(word.text) ? DeviceKind::kGpu : DeviceKind::kNic;
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
      if (last && !line.ended && device_of_legend(words)) note(line.number, words.front().column, "the last line is cut off: the name of " + columns_[*device_of_legend(words)].text + " isn't whole.", true);
      else read_legend(words);
      return;
    }
    if (device == index_.end()) {
      if (last && !line.ended) {
        note(line.number, words.front().column, "the last line is cut off.", true);
      } else if (is_topo_gpu(words.front().text) || (words.size() > 1 && parse_topo_cell(words[1].text))) {
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
    last_row_ = row;
    if (words.size() <= columns_.size()) refuse_gaps(line, words, row);
    std::size_t column = 0;
    for (; column < columns_.size() && column + 1 < words.size(); ++column) {
      const Word& word = words[column + 1];
      const auto cell = parse_topo_cell(word.text);
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
    if (words.size() > column + 1) read_affinity(line, words, column + 1, row);
  }

  /// A row with too few cells, two tabs between some: a cell is empty, and those behind it would be taken for their neighbours'.
  void refuse_gaps(const TextLine& line, const std::vector<Word>& words, std::size_t row) const {
    std::size_t from = 0;
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      const std::size_t start = line.text.find(words[i].text, from);
      from = start + words[i].text.size();
      const std::size_t next = line.text.find(words[i + 1].text, from);
      const std::size_t first = line.text.find('\t', from);
      const std::size_t second = first < next ? line.text.find('\t', first + 1) : next;
      if (second >= next) continue;
      throw unreadable(file_, line.number, line.column[second], "the cell of " + printable(columns_[row].text) + " under " + printable(columns_[i].text) + " is empty.",
                       "Fill it in, or paste what nvidia-smi printed.");
    }
  }

  void take(const TextLine& line, const Word& word, std::size_t row, std::size_t column, const TopoCell& cell) {
    if (cell.self != (row == column)) {
      throw unreadable(file_, line.number, word.column, row == column ? columns_[row].text + " has " + printable(word.text) + " to itself, where X belongs."
                                                                      : "X stands between " + columns_[row].text + " and " + columns_[column].text + ".");
    }
    if (cell.self) return;
    if (!cell.peer_access.empty()) {
      facts_.push_back({columns_[row].text + "-" + columns_[column].text, "peer access", cell.peer_access, line.number});
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
  void read_affinity(const TextLine& line, const std::vector<Word>& words, std::size_t at, std::size_t row) {
    Device& device = pairs_.devices[row];
    if (leaves_out_cpus(header_, line, columns_.size())) {
      --at;  // the CPUs' word isn't there
    } else if (is_cpu_list(words[at].text)) {
      device.cpus = words[at].text;
      cpus_at_end_ = at + 1 == words.size();
    } else if (words[at].text != "N/A") {
      note(line.number, words[at].column, printable(words[at].text) + " is no list of CPUs; it was left out.");
    }
    if (at + 1 >= words.size()) return;
    const auto numa = parse_integer(words[at + 1].text);
    if (numa && *numa >= 0 && *numa < 4096) device.numa = static_cast<int>(*numa);
    else if (is_cpu_list(words[at + 1].text)) read_nodes(line, words, at + 1, row);
  }

  /// "0,3-9": the node of the CPUs, then those of GPUs' memory, which have no CPUs and come behind them in number (Grace).
  void read_nodes(const TextLine& line, const std::vector<Word>& words, std::size_t at, std::size_t row) {
    const std::string& nodes = words[at].text;
    const bool memory = at + 1 < words.size() && parse_integer(words[at + 1].text).has_value();  // GPU NUMA ID
    if (const auto first = parse_integer(std::string_view(nodes).substr(0, nodes.find(','))); memory && first && *first < 4096) {
      pairs_.devices[row].numa = static_cast<int>(*first);
      facts_.push_back({columns_[row].text, "NUMA node of its memory", words[at + 1].text, line.number});
    }
    facts_.push_back({columns_[row].text, "NUMA affinity", nodes, line.number});
  }

  /// Which device a line like "NIC0: mlx5_0" names.
  [[nodiscard]] std::optional<std::size_t> device_of_legend(const std::vector<Word>& words) const {
    if (words.size() < 2 || words.front().text.back() != ':') return std::nullopt;
    const auto device = index_.find(words.front().text.substr(0, words.front().text.size() - 1));
    return device == index_.end() ? std::nullopt : std::optional(device->second);
  }
  void read_legend(const std::vector<Word>& words) {
    const auto device = device_of_legend(words);
    if (!device) return;
    std::string name = words[1].text;
    const bool taken = std::any_of(pairs_.devices.begin(), pairs_.devices.end(), [&](const Device& other) { return other.name == name; });
    if (!taken && !is_ours(name)) pairs_.devices[*device].name = std::move(name);
  }

 public:
  /// What -L or -q beside it say of its GPUs, where they are as many. False: they aren't.
  bool take_models(const std::vector<Device>& models) {
    std::vector<Device*> gpus;
    for (Device& device : pairs_.devices) {
      if (device.kind == DeviceKind::kGpu) gpus.push_back(&device);
    }
    if (gpus.size() != models.size()) return false;
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      gpus[i]->model = models[i].model;
      gpus[i]->memory = models[i].memory;
    }
    return true;
  }

  /// The same of all that -q says, where its GPUs are as many and in the order of their addresses, as both commands number them.
  bool take_report(const Reading& report) {
    std::vector<Device> gpus;
    for (const int gpu : devices_of(report.wiring, DeviceKind::kGpu)) gpus.push_back(report.wiring.devices[static_cast<std::size_t>(gpu)]);
    if (!take_models(gpus)) return false;
    std::size_t next = 0;
    for (Device& device : pairs_.devices) {
      if (device.kind == DeviceKind::kGpu) device.pci = gpus[next++].pci;
    }
    return true;
  }

  /// Adds what it says as a host of this name.
  void finish(const std::string& host) {
    std::vector<std::string> missing;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (row_line_[i] == 0) missing.push_back(columns_[i].text);
    }
    if (!missing.empty()) {
      note(0, 0, "rows are missing: " + join(missing, ", ") + ".", true);
      drop_cut_cpus();
    }
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
    pairs_.loose = loose_devices(pairs_);
    if (const auto lost = lost_nvlinks(pairs_)) {
      for (const std::size_t i : lost->gpus) {
        reading_.notes.push_back({row_line_[i] == 0 ? line_ : row_line_[i], 0,
                                  columns_[i].text + " has no NVLink, but the other " + std::to_string(lost->others) + " reach each other by " + std::to_string(lost->links) + " each.",
                                  "If it is of their kind: look at nvidia-smi nvlink -s, and for Xid 74 in dmesg; reset the GPUs and restart the fabric manager."});
      }
    }
    const std::vector<Device> named = pairs_.devices;
    const int index = hosts_of(reading_.wiring);
    add_host(reading_.wiring, host, std::move(pairs_));
    // The graph must say what the file said.
    const Relations relations(reading_.wiring);
    std::size_t unknown = 0;
    for (const auto& [pair, stated] : stated_) {
      const int a = find_device(reading_.wiring, named[pair.first].name, index);
      const int b = find_device(reading_.wiring, named[pair.second].name, index);
      const Relation found = relations.between(a, b);
      const Relation meant{stated.cell.pcie.value_or(found.pcie), stated.cell.nvlinks};
      if (name_of(found) == name_of(meant)) continue;
      if (found.pcie == Connection::kUnknown && stated.cell.nvlinks == found.nvlinks) {
        ++unknown;
        continue;
      }
      note(stated.line, stated.column, "the matrix contradicts itself: " + columns_[pair.first].text + " to " + columns_[pair.second].text + " is " + name_of(meant) +
                                           " by itself, but " + name_of(found) + " by what it says of others.");
    }
    if (unknown > 0) note(line_, 0, std::to_string(unknown) + " pairs are said to be SYS, but where their devices hang isn't known for want of rows: they stand as ?.", true);
  }

 private:
  /// The last line before the cut may end within its list of CPUs: "0-23,4" of "0-23,48-71".
  void drop_cut_cpus() {
    if (!last_row_ || !cpus_at_end_) return;
    std::string& cpus = pairs_.devices[*last_row_].cpus;
    const auto same = std::count_if(pairs_.devices.begin(), pairs_.devices.end(), [&](const Device& device) { return device.cpus == cpus; });
    if (same > 1) return;
    note(row_line_[*last_row_], 0, "the rows end with the CPUs of " + columns_[*last_row_].text + ", which no other row has: " + cpus + " may be cut off; it was left out.", true);
    cpus.clear();
  }

  struct Stated {
    TopoCell cell;
    int line, column;
  };

  std::string_view file_;
  Reading& reading_;
  std::vector<Fact> facts_;
  TextLine header_;
  std::vector<Word> columns_;
  int line_;  // of the header
  std::map<std::string, std::size_t> index_;
  HostPairs pairs_;
  std::vector<int> row_line_;  // 0: none yet
  std::map<std::pair<std::size_t, std::size_t>, Stated> stated_;
  std::optional<std::size_t> last_row_;
  bool cpus_at_end_ = false;  // the last row ends with its list of CPUs
  bool in_legend_ = false;
  bool peer_access_ = false;
};

}  // namespace

Reading read_nvidia_topo(std::string_view text, std::string_view file) {
  const std::vector<TextLine> lines = text_lines(text);
  const std::vector<TopoBlock> blocks = topo_blocks(lines);
  if (blocks.empty()) {
    int row = 0;  // the first
    for (const TextLine& line : lines) {
      const auto words = words_of(line);
      if (row == 0 && words.size() > 1 && is_topo_gpu(words[0].text) && parse_topo_cell(words[1].text)) row = line.number;
    }
    throw unreadable(file, row, row == 0 ? 0 : 1, "there is no line of column heads (GPU0 GPU1 …) with rows below it.", "Give the whole of what nvidia-smi topo -m prints.");
  }
  Reading reading;
  reading.format = Format::kNvidiaTopo;
  std::vector<Matrix> matrices;
  std::size_t devices = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    devices += topo_header(blocks[i].lines.front()).size();
    if (devices > kMostOfAll) throw unreadable(file, blocks[i].lines.front().number, 0, "there are more than " + std::to_string(kMostOfAll) + " devices.");
    matrices.emplace_back(blocks[i], file, i + 1 == blocks.size(), reading);
  }
  // The matrix of the host that each is of: its own, or of a -p2p the -m beside it.
  std::vector<std::size_t> of;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    of.push_back(i);
    if (!matrices[i].is_peer_access()) continue;
    const auto fits = [&](std::size_t other) { return !matrices[other].is_peer_access() && matrices[other].covers(matrices[i]); };
    if (i > 0 && fits(of[i - 1])) of[i] = of[i - 1];
    else if (i > 0 && of[i - 1] != i && matrices[of[i - 1]].covers(matrices[i])) of[i] = of[i - 1];
    else if (i + 1 < matrices.size() && fits(i + 1)) of[i] = i + 1;
  }
  std::map<std::size_t, std::string> host_of;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    if (of[i] == i) host_of[i] = "host" + std::to_string(host_of.size());
  }
  std::optional<Reading> report = report_beside(text, file, lines);
  if (report && (host_of.size() > 1 || !matrices[host_of.begin()->first].take_report(*report))) report.reset();
  if (const std::vector<Device> models = models_beside(lines); !report && !models.empty() && (host_of.size() > 1 || !matrices[host_of.begin()->first].take_models(models))) {
    reading.notes.push_back({0, 0, "the names of " + std::to_string(models.size()) + " GPUs beside the matrix were left out: they aren't as many as its GPUs, or it isn't one matrix."});
  }
  for (auto& [matrix, host] : host_of) {
    if (matrix != host_of.begin()->first) reading.notes.push_back({matrices[matrix].line(), 0, "another matrix begins: it is taken for another host, " + host + "."});
    matrices[matrix].finish(host);
  }
  if (report) add_report(*report, reading);
  for (std::size_t i = 0; i < matrices.size(); ++i) matrices[i].add_facts(host_of.size() > 1 ? host_of[of[i]] : "");
  if (const int command = pcie_only(lines); command > 0 && std::none_of(reading.wiring.links.begin(), reading.wiring.links.end(), [](const Link& link) { return link.kind == LinkKind::kNvlink; })) {
    for (const auto& [matrix, host] : host_of) reading.facts.push_back({host, "NVLinks", "not in the file", command});
    reading.notes.push_back({command, 0, "nvidia-smi topo -mp leaves NVLinks out: whether the GPUs have any isn't said. nvidia-smi topo -m says it."});
  }
  return reading;
}

}  // namespace wirewise
