#include "wirewise/wiring/read_nccl_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <limits>
#include <optional>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostRows = 100000;
constexpr double kFall = 0.7;            // of the best bus bandwidth so far: below it a curve falls
constexpr Bytes kFallFrom = kMiB;        // smaller messages scatter

std::optional<double> real(std::string_view text) {
  if (text.empty() || text.size() > 40 || text.find_first_not_of("0123456789.eE+-") != std::string_view::npos) return std::nullopt;
  char* end = nullptr;
  const std::string copy(text);
  const double value = std::strtod(copy.c_str(), &end);
  if (*end != '\0' || !std::isfinite(value) || value < 0) return std::nullopt;
  return value;
}

bool is_type(std::string_view word) {
  static constexpr std::array<std::string_view, 16> kTypes{"int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "fp8_e4m3", "fp8_e5m2", "f8e4m3", "f8e5m2", "char", "int"};
  return std::find(kTypes.begin(), kTypes.end(), word) != kTypes.end();
}

/// Labels of srun -l ("0: ") and of mpirun ("[0]", "[1,0]<stdout>:") are blanked, wherever in a line they stand.
void blank_labels(std::string& text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '[') {
      const std::size_t close = text.find(']', at);
      const std::string_view inside = std::string_view(text).substr(at + 1, close == std::string::npos ? 0 : close - at - 1);
      if (close == std::string::npos || inside.empty() || inside.size() > 12 || inside.find_first_not_of("0123456789,") != std::string_view::npos) continue;
      std::size_t end = close + 1;
      if (text.compare(end, 9, "<stdout>:") == 0) end += 9;
      std::fill(text.begin() + static_cast<std::ptrdiff_t>(at), text.begin() + static_cast<std::ptrdiff_t>(end), ' ');
    }
  }
  const std::size_t digits = text.find_first_not_of(" ");
  const std::size_t colon = digits == std::string::npos ? digits : text.find_first_not_of("0123456789", digits);
  if (colon != std::string::npos && colon > digits && text[colon] == ':') std::fill(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(colon) + 1, ' ');
}

/// A word that a row may hold.
struct Cell {
  std::string text;
  int line = 0, column = 0;
};

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : file_(file), lines_(text_lines(text)) { table_.reading.format = Format::kNcclTests; }

  NcclTestsTable read() {
    for (TextLine& line : lines_) {
      if (trimmed(line.text).substr(0, 1) == "|") {
        read_markdown(line);
        continue;
      }
      if (line.text.find("# ") == std::string::npos) blank_labels(line.text);
      else if (std::string copy = line.text; copy.find('#') != std::string::npos) read_comment(copy.substr(copy.find('#')), line.number);
      if (const std::size_t hash = line.text.find('#'); hash != std::string::npos) {
        std::fill_n(line.text.begin(), hash + 1, ' ');
        if (!is_row(line)) continue;  // else one that somebody commented out
      } else if (is_remark(line.text)) {  // of a post that lost its #
        read_comment(line.text, line.number);
        continue;
      }
      for (const Word& word : words_of(line)) cells_.push_back({word.text, line.number, word.column});
    }
    read_rows();
    finish();
    return std::move(table_);
  }

 private:
  void note(int line, int column, std::string text, bool partial = false) {
    table_.reading.notes.push_back({line, column, std::move(text)});
    table_.reading.partial = table_.reading.partial || partial;
  }

  void fact(std::string subject, std::string name, std::string value, int line) { table_.reading.facts.push_back({std::move(subject), std::move(name), std::move(value), line}); }

  static bool is_row(const TextLine& line) {
    const std::vector<Word> words = words_of(line);
    return words.size() > 5 && parse_integer(words[0].text) && parse_integer(words[1].text) && is_type(words[2].text);
  }

  static bool is_remark(const std::string& text) {
    const auto has = [&](std::string_view part) { return text.find(part) != std::string::npos; };
    return (has("Rank ") && has(" device ") && has(" on ")) || has("Out of bounds values :") || has("Avg bus bandwidth") || has("nGpus ") || has(" algbw ");
  }

  void read_comment(const std::string& text, int line) {
    seen_ = true;
    const auto after = [&](std::string_view head) {
      const std::size_t at = text.find(head);
      return at == std::string::npos ? std::string() : std::string(trimmed(std::string_view(text).substr(at + head.size())));
    };
    std::string average = after("Avg bus bandwidth");
    if (!average.empty() && average[0] == ':') {
      average = trimmed(std::string_view(average).substr(1));
      fact("table", "average bus bandwidth", average + " GB/s", line);
      concluded_ = true;
      if (real(average) == 0.0) note(line, 0, "the average bus bandwidth is 0: a single rank moves nothing.");
    }
    for (std::string_view head : {"Collective test concluded:", "Collective test starting:"}) {
      std::string name = after(head);
      if (name.empty()) continue;
      if (name.size() > 5 && name.compare(name.size() - 5, 5, "_perf") == 0) name.resize(name.size() - 5);
      op_ = name.substr(0, 64);
    }
    if (const std::string wrong = after("Out of bounds values :"); !wrong.empty() && wrong.substr(0, 2) != "0 ") note(line, 0, "results were wrong: " + wrong + ".");
    if (const std::size_t rank = text.find(" Rank "); rank != std::string::npos && text.find(" device ") != std::string::npos) {
      const std::size_t digit = text.find_first_not_of(' ', rank + 6);
      const auto number = digit == std::string::npos ? std::nullopt : parse_integer(std::string_view(text).substr(digit, text.find_first_not_of("0123456789", digit) - digit));
      if (number && *number >= 0 && *number < 1 << 24) listed_.push_back({static_cast<int>(*number), line});
    }
    if (text.find("nGpus ") != std::string::npos) fact("table", "settings", std::string(trimmed(std::string_view(text).substr(text[0] == '#' ? 1 : 0))), line);
    old_head_ = old_head_ || (text.find(" algbw ") != std::string::npos && text.find("bytes") != std::string::npos && text.find(" res") != std::string::npos);
  }

  /// A row begins with bytes, count and a type; its figures follow, on whichever line.
  void read_rows() {
    std::size_t at = 0;
    std::size_t skipped = 0;
    while (at < cells_.size()) {
      if (!row_starts(at)) {
        skipped = skipped == 0 ? at + 1 : skipped;
        ++at;
        continue;
      }
      if (skipped != 0 && real(cells_[skipped - 1].text)) note(cells_[skipped - 1].line, cells_[skipped - 1].column, "these figures have no size: their row's begin is missing.", true);
      skipped = 0;
      at = read_row(at);
    }
  }

  bool row_starts(std::size_t at) const { return at + 2 < cells_.size() && parse_integer(cells_[at].text).value_or(-1) >= 0 && parse_integer(cells_[at + 1].text).value_or(-1) >= 0 && is_type(cells_[at + 2].text); }

  std::size_t read_row(std::size_t at) {
    if (table_.rows.size() >= kMostRows) throw unreadable(file_, cells_[at].line, cells_[at].column, "there are more than 100000 rows.");
    Measurement row;
    row.bytes = static_cast<Bytes>(*parse_integer(cells_[at].text));
    row.line = cells_[at].line;
    const Cell& begin = cells_[at];
    at += 3;
    if (at < cells_.size() && !real(cells_[at].text)) ++at;  // the reduction, or "none"
    if (at < cells_.size() && has_root(at)) ++at;
    for (const bool in_place : {false, true}) {
      row.in_place = in_place;
      std::array<double, 3> figures{};
      std::size_t read = 0;
      while (read < figures.size() && at < cells_.size() && !row_starts(at)) {
        const auto figure = real(cells_[at].text);
        if (!figure && cells_[at].text != "N/A") break;
        figures[read++] = figure.value_or(0);
        ++at;
      }
      if (read == 0 && in_place) return at;  // a table of one half
      if (read < figures.size()) {
        note(begin.line, begin.column, fmt::format("the row of {} bytes is cut off.", row.bytes), true);
        return at;
      }
      row.time_us = figures[0];
      row.algbw = figures[1] * 1e9;
      row.busbw = figures[2] * 1e9;
      row.wrong = -1;
      if (at < cells_.size() && !row_starts(at)) {  // "#wrong", or older "error": a small real number
        const std::string& wrong = cells_[at].text;
        if (const auto count = parse_integer(wrong)) row.wrong = std::max(0LL, *count), ++at;
        else if (wrong == "N/A") ++at;
        else if (const auto error = real(wrong)) row.wrong = *error < 1e-2 ? 0 : 1, ++at;
      }
      if (row.wrong > 0) note(begin.line, begin.column, fmt::format("{} bytes: wrong results ({}).", row.bytes, in_place ? "in place" : "out of place"));
      table_.rows.push_back(row);
    }
    std::string tail;
    while (at < cells_.size() && cells_[at].line == cells_[at - 1].line && !row_starts(at)) tail += (tail.empty() ? "" : " ") + cells_[at++].text;
    if (!tail.empty()) fact(fmt::format("{} B", row.bytes), "algorithm, protocol, channels", tail, row.line);
    return at;
  }

  /// Newer tables have the root between reduction and time: then 8 or more figures follow up to the next row, else 6 or 8.
  bool has_root(std::size_t at) const {
    const auto number = parse_integer(cells_[at].text);
    if (!number) return false;
    if (*number < 0) return true;
    std::size_t figures = 0;
    for (std::size_t i = at; i < cells_.size() && i < at + 12 && !row_starts(i) && (real(cells_[i].text) || cells_[i].text == "N/A"); ++i) ++figures;
    return figures == 9 || figures == 5 || figures == 7;
  }

  /// "| 32KiB | 1.44GBps | 0.82GBps |" under "| payload | busbw | algbw |".
  void read_markdown(const TextLine& line) {
    std::vector<std::string> cells;
    for (const std::string& cell : split(trimmed(line.text), '|')) cells.emplace_back(trimmed(cell));
    if (cells.size() < 3) return;
    cells.erase(cells.begin());
    if (!cells.empty() && cells.back().empty()) cells.pop_back();
    if (!cells.empty() && cells[0].find_first_not_of(":- ") == std::string::npos) return;
    std::optional<Bytes> bytes;
    if (!cells.empty() && !cells[0].empty() && cells[0][0] >= '0' && cells[0][0] <= '9' && cells[0].size() < 24) {
      try {
        bytes = parse_size(cells[0]);
      } catch (const Error&) {
      }
    }
    if (!bytes) {
      heads_ = cells;
      sizes_ = !cells.empty() && cells[0] == "payload";
      seen_ = seen_ || sizes_;
      if (!sizes_ && cells.size() >= 2) {  // a summary: "| A100, NVLink 3 | 234.89GBps | …"
        if (const auto speed = gigabytes(cells[1])) fact(cells[0], "busbw", fmt::format("{:g} GB/s", *speed), line.number);
      }
      return;
    }
    if (!sizes_) return;
    if (table_.rows.size() + cells.size() > kMostRows) throw unreadable(file_, line.number, 1, "there are more than 100000 rows.");
    Measurement row;
    row.op = "all_reduce";
    row.bytes = *bytes;
    row.line = line.number;
    const bool one = heads_.size() == 3 && heads_[1] == "busbw" && heads_[2] == "algbw";
    if (one && cells.size() == 3) {
      const auto bus = gigabytes(cells[1]), algorithm = gigabytes(cells[2]);
      if (!bus || !algorithm) throw unreadable(file_, line.number, 1, "the row of " + printable(cells[0]) + " has no bandwidth.", "Write figures like 1.44GBps.");
      row.busbw = *bus * 1e9;
      row.algbw = *algorithm * 1e9;
      table_.rows.push_back(row);
      return;
    }
    for (std::size_t i = 1; i < cells.size() && i < heads_.size(); ++i) {
      const auto bus = gigabytes(cells[i]);
      if (!bus) continue;  // "120.0x"
      row.label = heads_[i];
      row.busbw = *bus * 1e9;
      table_.rows.push_back(row);
    }
    if (cells.size() < heads_.size()) note(line.number, 0, "the row of " + cells[0] + " is cut off.", true);
  }

  static std::optional<double> gigabytes(const std::string& text) {
    if (text.size() < 5 || text.compare(text.size() - 4, 4, "GBps") != 0) return std::nullopt;
    return real(text.substr(0, text.size() - 4));
  }

  void finish() {
    if (table_.rows.empty() && !seen_) throw unreadable(file_, 0, 0, "there is no row of a table.", "Give what all_reduce_perf prints.");
    if (table_.rows.empty()) note(0, 0, "the table has no rows.", !concluded_);
    for (Measurement& row : table_.rows) {
      if (row.op.empty()) row.op = op_;
    }
    count_ranks();
    if (in_milliseconds()) {
      for (Measurement& row : table_.rows) row.time_us *= 1e3;
      note(0, 0, "the times are in milliseconds, as the tests of NCCL 1 and of early NCCL 2 print them.");
    }
    for (const Measurement& row : table_.rows) {
      std::string value = fmt::format("{:g} GB/s busbw", row.busbw / 1e9);
      if (row.algbw > 0) value += fmt::format(", {:g} GB/s algbw", row.algbw / 1e9);
      if (row.time_us > 0) value += fmt::format(", {:g} us", row.time_us);
      fact(fmt::format("{} B", row.bytes), row.label.empty() ? (row.in_place ? "in place" : "out of place") : row.label, std::move(value), row.line);
    }
    find_falls();
  }

  /// How many ranks each table has: one more than the last of the list above it. Lists may be cut off above, and stand there twice where each
  /// process believes to be alone.
  void count_ranks() {
    int stated = 0;
    std::size_t at = 0;
    const auto next_list = [&](int before) {  // of the lines in front of a row, or of the end
      std::map<int, int> seen;
      const int first = at < listed_.size() ? listed_[at].line : 0;
      for (; at < listed_.size() && listed_[at].line < before; ++at) ++seen[listed_[at].rank];
      if (seen.empty()) return 0;
      const int ranks = seen.rbegin()->first + 1;
      if (static_cast<int>(seen.size()) < ranks) note(first, 0, fmt::format("the list of ranks isn't whole: rank {} is in it, so there are {} or more.", ranks - 1, ranks), true);
      if (const int runs = seen.begin()->second; runs > 1) {
        table_.reading.notes.push_back({first, 0, fmt::format("rank {} stands there {} times: these are {} runs of {}, which knew nothing of each other.", seen.begin()->first, runs, runs, ranks == 1 ? "1 rank" : std::to_string(ranks) + " ranks"),
                                        "Build nccl-tests with MPI=1, and start it with the mpirun that it was built with."});
      }
      return ranks;
    };
    int ranks = 0;
    for (Measurement& row : table_.rows) {
      if (const int list = next_list(row.line); list > 0) ranks = list;
      if (row.ranks == 0) row.ranks = ranks;
      stated = std::max(stated, ranks);
    }
    stated = stated == 0 ? next_list(std::numeric_limits<int>::max()) : stated;
    if (stated > 0) fact("table", "ranks", std::to_string(stated), 0);
  }

  /// Early tests print milliseconds: what a time says then is a thousandth of what its bandwidth does.
  [[nodiscard]] bool in_milliseconds() const {
    std::size_t clear = 0, small = 0;
    for (const Measurement& row : table_.rows) {
      if (row.time_us <= 0 || row.algbw < 0.1e9) continue;
      ++clear;
      const double of_bandwidth = static_cast<double>(row.bytes) / row.algbw * 1e6;
      small += of_bandwidth > 200 * row.time_us && of_bandwidth < 5000 * row.time_us ? 1 : 0;
    }
    return clear > 0 ? small * 2 > clear : old_head_;
  }

  /// A curve that falls as messages grow says that something changes at that size; a fit over it would hide that.
  void find_falls() {
    std::map<std::pair<std::string, bool>, Measurement> best;
    std::map<std::pair<std::string, bool>, bool> told;
    Bytes before = 0;
    for (const Measurement& row : table_.rows) {
      if (row.bytes < before) best.clear(), told.clear();  // another table
      before = row.bytes;
      const std::pair key{row.label, row.in_place};
      const auto [peak, fresh] = best.try_emplace(key, row);
      if (fresh || row.busbw >= peak->second.busbw) {
        peak->second = row;
      } else if (row.bytes >= kFallFrom && row.busbw < kFall * peak->second.busbw && !told[key]) {
        told[key] = true;
        note(row.line, 0, fmt::format("the curve{}{} falls: {:g} GB/s at {}, but {:g} GB/s at {}. Something changes between: another algorithm, protocol or path.",
                                      row.label.empty() ? "" : " of " + row.label, row.in_place ? " in place" : "", peak->second.busbw / 1e9, format_bytes(peak->second.bytes), row.busbw / 1e9,
                                      format_bytes(row.bytes)));
      }
    }
  }

  std::string_view file_;
  std::vector<TextLine> lines_;
  NcclTestsTable table_;
  std::vector<Cell> cells_;
  std::vector<std::string> heads_;  // of the table in Markdown
  bool sizes_ = false, seen_ = false, concluded_ = false;
  bool old_head_ = false;  // "bytes N type op time algbw busbw res"
  std::string op_;
  struct Listed {
    int rank, line;
  };
  std::vector<Listed> listed_;  // "Rank 3 Pid …", in the order of lines
};

}  // namespace

bool looks_like_nccl_tests(const std::vector<TextLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const TextLine& line) {
    std::string text = line.text.substr(0, 400);
    for (std::string_view head : {"Collective test starting:", "Collective test concluded:", "Out of bounds values :", "algbw   busbw", "algbw  busbw", "Avg bus bandwidth"}) {
      if (text.find(head) != std::string::npos) return true;
    }
    if (trimmed(text).substr(0, 9) == "| payload") return true;
    blank_labels(text);
    TextLine copy = line;
    copy.text = text;
    const auto words = words_of(copy);
    return words.size() > 5 && parse_integer(words[0].text) && parse_integer(words[1].text) && is_type(words[2].text);
  });
}

NcclTestsTable read_nccl_tests_table(std::string_view text, std::string_view file) { return Reader(text, file).read(); }

Reading read_nccl_tests(std::string_view text, std::string_view file) { return read_nccl_tests_table(text, file).reading; }

}  // namespace wirewise
