#include "wirewise/wiring/nvidia_topo_lines.h"

#include <algorithm>
#include <map>
#include <set>

#include "wirewise/base/text.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostWrapped = 64;  // lines that one line was cut into

bool digits(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_legend(const TextLine& line) { return trimmed(line.text).substr(0, 7) == "Legend:"; }

bool ends_columns(const Word& word) { return word.text == "CPU" || word.text == "NUMA" || word.text == "Affinity"; }

/// What stands in a matrix by itself: two pieces that make one such word were one.
bool whole_word(std::string_view text) {
  constexpr std::string_view kHeads[] = {"CPU", "Affinity", "NUMA", "GPU", "ID", "N/A"};
  const bool nic = (text.substr(0, 3) == "NIC" && digits(text.substr(3))) || ((text.substr(0, 5) == "mlx5_" || text.substr(0, 5) == "mlx4_") && digits(text.substr(5)));
  return parse_topo_cell(text) || is_topo_gpu(text) || nic || is_cpu_list(text) || std::find(std::begin(kHeads), std::end(kHeads), text) != std::end(kHeads);
}

std::size_t width(const TextLine& line) {
  std::size_t columns = 0;
  for (char c : line.text) columns = c == '\t' ? (columns / 8 + 1) * 8 : columns + 1;
  return columns;
}

/// Where each word begins as a terminal shows the line.
std::vector<std::size_t> starts_of(const TextLine& line) {
  std::vector<std::size_t> starts;
  std::size_t column = 0;
  bool inside = false;
  for (const char c : line.text) {
    const bool blank = c == ' ' || c == '\t' || c == '\v' || c == '\f';
    if (!blank && !inside) starts.push_back(column);
    inside = !blank;
    column = c == '\t' ? (column / 8 + 1) * 8 : column + 1;
  }
  return starts;
}

/// The place of a word in the line's text.
std::size_t offset_of(const TextLine& line, std::size_t word) {
  std::size_t at = 0;
  for (std::size_t i = 0;; ++i) {
    at = line.text.find_first_not_of(" \t\v\f", at);
    if (i == word || at == std::string::npos) return at;
    at = line.text.find_first_of(" \t\v\f", at);
  }
}

void append(TextLine& line, const TextLine& rest, bool full) {
  const std::vector<Word> before = words_of(line), after = words_of(rest);
  const bool touch = full && !before.empty() && !after.empty() && line.text.back() != ' ' && line.text.back() != '\t' && rest.text.front() != ' ' && rest.text.front() != '\t';
  if (!touch || !whole_word(before.back().text + after.front().text)) {
    line.text += ' ';
    line.column.push_back(line.column.empty() ? 1 : line.column.back() + 1);
  }
  line.text += rest.text;
  line.column.insert(line.column.end(), rest.column.begin(), rest.column.end());
  line.ended = rest.ended;
}

/// The line of the first row of the matrix that a header begins; the header's own when there is none.
std::size_t first_row(const std::vector<TextLine>& lines, std::size_t head, const std::string& name) {
  for (std::size_t at = head + 1; at < lines.size() && at <= head + kMostWrapped; ++at) {
    const std::vector<Word> words = words_of(lines[at]);
    if (words.empty() || words.front().text != name) continue;
    return words.size() == 1 || parse_topo_cell(words[1].text) ? at : head;
  }
  return head;
}

bool is_header(const std::vector<TextLine>& lines, std::size_t at) {
  const std::vector<Word> columns = topo_header(lines[at]);
  if (columns.empty()) return false;
  if (first_row(lines, at, columns.front().text) > at) return true;
  const std::vector<Word> words = words_of(lines[at]);
  return std::all_of(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(columns.size()), [](const Word& word) { return is_topo_gpu(word.text); });
}

/// Puts together a header that goes on in the lines below it, and then the rows: a row begins with a column's name. A blank line ends the matrix
/// where no row follows it.
void unwrap(std::vector<TextLine>& lines) {
  const std::size_t row = first_row(lines, 0, topo_header(lines.front()).front().text);
  for (std::size_t at = 1; at < row; ++at) {
    if (words_of(lines[at]).empty()) return;
  }
  if (row < 2) return;
  std::size_t widest = 0;
  for (const TextLine& line : lines) widest = std::max(widest, width(line));  // legends too: they show how wide the terminal was
  std::vector<TextLine> whole{lines.front()};
  const auto go_on = [&](std::size_t at) { append(whole.back(), lines[at], width(lines[at - 1]) == widest); };
  for (std::size_t at = 1; at < row; ++at) go_on(at);
  std::set<std::string> names;
  for (const Word& word : topo_header(whole.front())) names.insert(word.text);
  std::size_t at = row;
  bool blank = false;
  for (; at < lines.size() && !is_legend(lines[at]); ++at) {
    const std::vector<Word> words = words_of(lines[at]);
    const bool starts = !words.empty() && names.count(words.front().text) > 0;
    if (starts) whole.push_back(lines[at]);
    else if (!words.empty() && blank) break;
    else if (!words.empty()) go_on(at);
    blank = words.empty();
  }
  whole.insert(whole.end(), lines.begin() + static_cast<std::ptrdiff_t>(at), lines.end());
  lines = std::move(whole);
}

}  // namespace

std::optional<TopoCell> parse_topo_cell(std::string_view text) {
  static const std::map<std::string_view, Connection> connections{{"PIX", Connection::kPix},   {"PXB", Connection::kPxb}, {"PHB", Connection::kPhb},
                                                                  {"NODE", Connection::kNode}, {"SYS", Connection::kSys}, {"SOC", Connection::kSys},
                                                                  {"PSB", Connection::kPix}};
  static constexpr std::string_view kAccess[] = {"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"};
  TopoCell cell;
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

bool is_topo_gpu(std::string_view name) noexcept { return name.substr(0, 3) == "GPU" && digits(name.substr(std::min<std::size_t>(3, name.size()))); }

bool is_cpu_list(std::string_view text) noexcept {
  bool digit = false;  // the last one
  for (char c : text) {
    if (c >= '0' && c <= '9') {
      digit = true;
    } else if ((c != '-' && c != ',') || !digit) {
      return false;
    } else {
      digit = false;
    }
  }
  return digit;
}

std::vector<Word> topo_header(const TextLine& line) {
  std::vector<Word> words = words_of(line);
  if (words.empty() || !is_topo_gpu(words.front().text)) return {};
  if (words.size() > 1 && parse_topo_cell(words[1].text)) return {};  // a row
  words.erase(std::find_if(words.begin(), words.end(), ends_columns), words.end());
  return words;
}

bool leaves_out_cpus(const TextLine& header, const TextLine& row, std::size_t columns) {
  const std::vector<Word> heads = words_of(header), words = words_of(row);
  // "CPU Affinity", "NUMA Affinity", "GPU NUMA ID": as many words behind the cells as heads leave nothing out.
  std::size_t titles = 0;
  for (std::size_t i = columns; i < heads.size(); ++i) titles += heads[i].text == "Affinity" || heads[i].text == "ID" ? 1 : 0;
  if (titles < 2 || words.size() <= columns + 1 || words.size() - columns - 1 >= titles) return false;
  if (heads[columns].text != "CPU" || !digits(words[columns + 1].text)) return false;
  const std::vector<std::size_t> starts = starts_of(header), at = starts_of(row);
  const std::size_t end = offset_of(row, columns) + words[columns].text.size(), next = offset_of(row, columns + 1);
  if (const std::string_view between = std::string_view(row.text).substr(end, next - end); between.find('\t') != std::string_view::npos) return between.find('\t') != between.rfind('\t');
  for (std::size_t i = 0; i < columns; ++i) {  // cells stand under their heads, X in the middle
    if (at[i + 1] < starts[i] || at[i + 1] > starts[i] + 1) return false;
  }
  return at[columns + 1] > starts[columns] + 1;
}

std::vector<TopoBlock> topo_blocks(const std::vector<TextLine>& lines) {
  std::vector<TopoBlock> blocks;
  for (std::size_t at = 0; at < lines.size(); ++at) {
    if (is_header(lines, at)) {
      const std::size_t row = first_row(lines, at, topo_header(lines[at]).front().text);
      blocks.emplace_back();
      // What a wrapped header goes on in is no header of its own.
      for (; at + 1 < row; ++at) blocks.back().lines.push_back(lines[at]);
    }
    if (!blocks.empty()) blocks.back().lines.push_back(lines[at]);
  }
  for (TopoBlock& block : blocks) unwrap(block.lines);
  return blocks;
}

}  // namespace wirewise
