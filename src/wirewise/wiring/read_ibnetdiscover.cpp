// ibnetdiscover: an InfiniBand fabric, a paragraph a switch or adapter with its ports, what each leads to, and the link's width and speed.
#include <algorithm>
#include <map>
#include <optional>

#include "wirewise/base/text.h"
#include "wirewise/wiring/ib_fabric.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

/// The text between the first two quotes from `at` on, and where it stands.
struct Quoted {
  std::string text;
  std::size_t begin = 0, end = 0;  // of the quotes
};
std::optional<Quoted> quoted(const std::string& line, std::size_t at) {
  const std::size_t open = line.find('"', at);
  const std::size_t close = open == std::string::npos ? open : line.find('"', open + 1);
  if (close == std::string::npos) return std::nullopt;
  return Quoted{line.substr(open + 1, close - open - 1), open, close};
}

/// "[17]" at `at`.
std::optional<int> bracketed(const std::string& line, std::size_t at) {
  const std::size_t close = line.find(']', at);
  if (at >= line.size() || line[at] != '[' || close == std::string::npos || close - at > 6) return std::nullopt;
  const auto number = parse_integer(std::string_view(line).substr(at + 1, close - at - 1));
  if (!number || *number < 0 || *number > 1023) return std::nullopt;
  return static_cast<int>(*number);
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : file_(file), lines_(text_lines(text)) { reading_.format = Format::kIbnetdiscover; }

  Reading read() {
    for (const TextLine& line : lines_) read_line(line);
    if (fabric_.nodes.empty()) throw unreadable(file_, 0, 0, "there is no switch and no adapter.", "Give the whole of what ibnetdiscover prints.");
    std::size_t missing = 0;
    for (const auto& [id, one] : fabric_.nodes) missing += one.described ? 0 : 1;
    if (missing > 0) note(0, 0, std::to_string(missing) + " switches and adapters are named at the end of a link, but not described: the output is cut off.", true);
    add_fabric(fabric_, reading_);
    return std::move(reading_);
  }

 private:
  void note(int line, int column, std::string text, bool partial = false) {
    reading_.notes.push_back({line, column, std::move(text)});
    reading_.partial = reading_.partial || partial;
  }

  /// A switch's or adapter's name: "S-" or "H-" (or "R-", a router) and a GUID.
  static bool is_id(const std::string& id) { return id.size() > 2 && id.size() < 40 && (id[0] == 'S' || id[0] == 'H' || id[0] == 'R') && id[1] == '-'; }

  [[nodiscard]] bool cut(const TextLine& line) const { return &line == &lines_.back() && !line.ended; }

  void read_line(const TextLine& line) {
    const std::string& text = line.text;
    const auto words = words_of(line);
    if (words.empty()) return;
    if (words[0].text == "Switch" || words[0].text == "Ca" || words[0].text == "Rt") return read_head(line, words);
    if (words[0].text[0] != '[') {
      if (words[0].text == "Non-Chassis" || words[0].text == "Chassis" || words[0].text == "ibwarn:" || words[0].text == "src/query_smp.c") return;  // heads of -g, and complaints
      if (words[0].text[0] != '#' && text.find('=') == std::string::npos && !cut(line)) throw unreadable(file_, line.number, words[0].column, printable(words[0].text.substr(0, 60)) + " belongs to no switch, adapter or port.");
      return;
    }
    if (current_.empty()) throw unreadable(file_, line.number, words[0].column, "a port stands before any switch or adapter.");
    read_port(line);
  }

  void read_head(const TextLine& line, const std::vector<Word>& words) {
    const auto id = quoted(line.text, 0);
    if (!id || !is_id(id->text)) {
      if (cut(line)) return note(line.number, 0, "the last line is cut off.", true);
      throw unreadable(file_, line.number, words[0].column, words[0].text + " has no name like \"S-0002c90200000001\".");
    }
    IbNode& one = fabric_.node(id->text, file_, line.number);
    if (one.described) throw unreadable(file_, line.number, line.column[id->begin], printable(id->text) + " is described twice.");
    one.described = true;
    one.is_switch = words[0].text == "Switch" || words[0].text == "Rt";
    one.line = line.number;
    if (const std::size_t comment = line.text.find('#', id->end); comment != std::string::npos) {
      if (const auto label = quoted(line.text, comment)) one.label = label->text;
    }
    current_ = id->text;
  }

  /// [1]  "H-…"[1](…)  # "node01 mlx5_0" lid 3 4xHDR
  void read_port(const TextLine& line) {
    const std::string& text = line.text;
    const std::size_t open = text.find('[');
    const auto port = bracketed(text, open);
    const auto to = quoted(text, open);
    const auto far_port = to ? bracketed(text, to->end + 1) : std::nullopt;
    const std::size_t comment = to ? text.find('#', to->end) : std::string::npos;
    if (!port || !to || !is_id(to->text) || !far_port || comment == std::string::npos) {
      if (cut(line)) return note(line.number, 0, "the last line is cut off.", true);
      throw unreadable(file_, line.number, line.column[open], "this is no port: " + printable(std::string(trimmed(text)).substr(0, 60)), "Ports look like [1] \"H-0002c90300000001\"[1] # \"node01 mlx5_0\" lid 3 4xHDR.");
    }
    IbNode& other = fabric_.node(to->text, file_, line.number);
    const auto label = quoted(text, comment);
    if (other.label.empty() && label) other.label = label->text;
    if (++ports_[{current_, *port}] > 1) throw unreadable(file_, line.number, line.column[open], "port " + std::to_string(*port) + " stands there twice.");
    IbCable cable{current_, to->text, *port, *far_port, line.number, 0, ""};
    const auto words = words_of(line);
    for (std::size_t i = words.size(); i-- > 0 && cable.rate.empty();) {
      const std::string& word = words[i].text;
      const std::size_t cross = word.find('x');
      const auto lanes = parse_integer(std::string_view(word).substr(0, cross == std::string::npos ? 0 : cross));
      const auto rate = cross == std::string::npos ? std::nullopt : ib_lane_rate(std::string_view(word).substr(cross + 1));
      if (!lanes || !rate || *lanes < 1 || *lanes > 12) continue;
      cable.rate = word;
      cable.gbit = static_cast<double>(*lanes) * *rate;
    }
    if (cable.rate.empty()) note(line.number, 0, "the link's width and speed are missing; 4xHDR is assumed.", cut(line));
    fabric_.add(std::move(cable), file_);
  }

  std::string_view file_;
  std::vector<TextLine> lines_;
  Reading reading_;
  IbFabric fabric_;
  std::map<std::pair<std::string, int>, int> ports_;
  std::string current_;
};

}  // namespace

bool looks_like_ibnetdiscover(const std::vector<TextLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const TextLine& line) {
    const auto words = words_of(line);
    return words.size() >= 3 && (words[0].text == "Switch" || words[0].text == "Ca") && parse_integer(words[1].text) && words[2].text.size() > 3 && words[2].text[0] == '"' && words[2].text[2] == '-';
  });
}

Reading read_ibnetdiscover(std::string_view text, std::string_view file) { return Reader(text, file).read(); }

}  // namespace wirewise
