#include "wirewise/wiring/pasted.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "wirewise/base/text.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

constexpr std::size_t kFewest = 3;  // lines that share a label
constexpr std::string_view kElements[] = {"<system ", "<cpu ", "<pci ", "<gpu ", "<nvlink ", "<graphs ", "<graph "};

bool digit(char c) { return c >= '0' && c <= '9'; }

void blank_out(std::string& text, std::size_t begin, std::size_t end) {
  for (std::size_t at = begin; at < end; ++at) {
    if (text[at] != '\t' && text[at] != '\r') text[at] = ' ';
  }
}

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  std::string made;
  std::size_t from = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, from)) {
    made.append(text, from, at - from).append(with);
    from = at + what.size();
  }
  text = made.append(text, from);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t from = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', from)) {
    lines.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  lines.push_back(text.substr(from));
  return lines;
}

bool empty_line(const std::string& line) { return line.find_first_not_of(" \t\r") == std::string::npos; }

/// "> > " at the start.
void unquote(std::string& line) {
  std::size_t at = 0, end = 0;
  while (at < line.size() && (line[at] == ' ' || line[at] == '>')) {
    if (line[at++] == '>') end = at;
  }
  if (end > 0) blank_out(line, 0, end);
}

void unquote_diff(std::vector<std::string>& lines) {
  std::size_t added = 0, others = 0;
  bool hunk = false;  // "@@ -1,12 +1,12 @@"
  for (const std::string& line : lines) {
    if (empty_line(line)) continue;
    ++(line[0] == '+' ? added : others);
    hunk = hunk || (line.starts_with("@@ -") && line.find(" @@") != std::string::npos);
  }
  if (!hunk && (added < kFewest || added < others)) return;
  for (std::string& line : lines) {
    if (line[0] == '+') line[0] = ' ';
    else if (line.starts_with("-") || line.starts_with("@@") || line.starts_with("diff ")) blank_out(line, 0, line.size());
  }
}

/// "| GPU0 | X | NV4 |", and "|---|---|" below the head.
void unbar(std::string& line) {
  const std::string_view bare = trimmed(std::string_view(line).substr(0, line.find_last_not_of('\r') + 1));
  if (bare.size() < 3 || bare.front() != '|' || bare.back() != '|') return;
  if (bare.find_first_not_of("|-:+ ") == std::string_view::npos) return blank_out(line, 0, line.size());
  std::replace(line.begin(), line.end(), '|', ' ');
}

/// How long "2026-01-31T12:00:00.123Z " is at the start of a line, blanks before and behind it with it; 0: there is none.
std::size_t time_length(std::string_view line) {
  std::size_t at = std::min(line.find_first_not_of(" ["), line.size());
  static constexpr std::string_view kForm = "dddd-dd-dd?dd:dd:dd";
  if (line.size() < at + kForm.size()) return 0;
  for (const char form : kForm) {
    const char c = line[at++];
    if (form == 'd' ? !digit(c) : form == '?' ? c != 'T' && c != ' ' && c != '_' : c != form) return 0;
  }
  while (at < line.size() && (digit(line[at]) || std::string_view(".,:+-Z]").find(line[at]) != std::string_view::npos)) ++at;
  return at < line.size() && line[at] != ' ' && line[at] != '\t' ? 0 : std::min(line.size(), at + 1);
}

/// Blanks what all lines begin with, where it is a time or the same label.
void unlabel(std::vector<std::string>& lines) {
  std::size_t filled = 0, timed = 0;
  std::map<std::string, std::size_t> labels;
  for (const std::string& line : lines) {
    if (empty_line(line)) continue;
    ++filled;
    timed += time_length(line) > 0 ? 1 : 0;
    if (const auto label = line_label(line); label && label->end < line.size()) ++labels[line.substr(label->begin, label->end - label->begin)];
  }
  const auto nearly_all = [&](std::size_t count) { return count >= kFewest && count * 5 >= filled * 4; };
  const auto common = std::max_element(labels.begin(), labels.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool labelled = common != labels.end() && nearly_all(common->second);
  for (std::string& line : lines) {
    const std::size_t time = time_length(line);
    const bool label = labelled && line.compare(time, common->first.size(), common->first) == 0;
    if (label) blank_out(line, 0, time + common->first.size());
    else if (nearly_all(timed)) blank_out(line, 0, time);
  }
}

/// A line of HTML's own: "<details>", "</pre>", "<summary>…</summary>".
bool is_markup(std::string_view line) {
  line = trimmed(line);
  if (line.empty() || line.front() != '<' || line.back() != '>') return false;
  for (const std::string_view tag : {"details", "summary", "pre", "code", "br", "p"}) {
    for (const std::string& start : {"<" + std::string(tag) + ">", "</" + std::string(tag) + ">"}) {
      if (line.starts_with(start)) return true;
    }
  }
  return false;
}

/// Whether the last fence is cut off, and most lines stand behind it; else the first is missing.
bool more_inside(const std::vector<std::string>& lines) {
  bool inside = false;
  std::size_t within = 0, without = 0;
  for (const std::string& line : lines) {
    if (is_fence(line)) inside = !inside;
    else if (!empty_line(line)) ++(inside ? within : without);
  }
  return within >= kFewest && within > without;
}

/// Prose and shell commands round a topology file of NCCL.
void uncover_xml(std::vector<std::string>& lines) {
  const auto is_element = [](const std::string& line) {
    const std::string_view bare = trimmed(line);
    return std::any_of(std::begin(kElements), std::end(kElements), [&](std::string_view name) { return bare.starts_with(name); });
  };
  const auto first = std::find_if(lines.begin(), lines.end(), is_element);
  if (first == lines.end()) return;
  if (std::any_of(lines.begin(), first, [](const std::string& line) { return line.find("<nvidia_smi_log") != std::string::npos; })) return;
  for (auto line = lines.begin(); line != first; ++line) blank_out(*line, 0, line->size());
  bool over = false;
  for (auto line = first; line != lines.end(); ++line) {
    if (over) blank_out(*line, 0, line->size());
    over = over || line->find("</system>") != std::string::npos || line->find("</graphs>") != std::string::npos;
  }
}

/// A matrix whose head stands behind the command that printed it.
void uncover_head(std::string& line) {
  const std::size_t command = line.find("topo -"), head = line.find("GPU0");
  if (command != std::string::npos && head != std::string::npos && command < head) blank_out(line, 0, head);
}

}  // namespace

std::optional<LineLabel> line_label(std::string_view line) {
  const std::size_t begin = time_length(line), at = std::min(line.find_first_not_of(' ', begin), line.size());
  const std::size_t end = std::min(line.find_first_of(" \t\r\"'=(", at), line.size());
  const std::string_view word = line.substr(at, end - at);
  if (const std::size_t tag = word.rfind(">:"); tag != std::string_view::npos && word[0] == '[') {
    const std::size_t comma = word.find(','), close = word.find(']');
    const bool rank = comma < close && close != std::string_view::npos;
    return LineLabel{begin, at + tag + 2, std::string(rank ? word.substr(comma + 1, close - comma - 1) : word.substr(1, std::min(close, word.size()) - 1))};
  }
  if (word.size() > 1 && word.back() == ':') return LineLabel{begin, end, std::string(word.substr(0, word.size() - 1))};
  if (word.size() > 2 && word.front() == '[' && word.back() == ']') return LineLabel{begin, end, std::string(word.substr(1, word.size() - 2))};
  return std::nullopt;
}

// "$ cmd", "root@host:~# cmd", "[user@host dir]$ cmd", "PS C:\> cmd", "(base) user@host:~$ cmd".
bool is_command(std::string_view line) {
  line = trimmed(line);
  if (line.starts_with("$ ") || line == "$") return true;
  if (line.starts_with("PS ") && line.find("> ") != std::string_view::npos) return true;
  const std::size_t at = line.find('@');
  if (at == std::string_view::npos || at > 80) return false;
  const std::size_t sign = line.find_first_of("$#%", at);
  if (sign == std::string_view::npos || sign > 160 || (sign + 1 < line.size() && line[sign + 1] != ' ')) return false;
  const std::string_view head = line.substr(0, sign);
  return head.find_first_of("\"'<>=;") == std::string_view::npos;
}

bool is_fence(std::string_view line) {
  line = trimmed(line);
  return line.starts_with("```") || line.starts_with("~~~");
}

void read_entities(std::string& text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kEntities{
      {{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#34;", "\""}, {"&#39;", "'"}, {"&#x27;", "'"}, {"&nbsp;", " "}, {"&amp;", "&"}}};
  // A file of XML has entities by right.
  if (text.find("&lt;") == std::string::npos && text.find("&gt;") == std::string::npos && text.find("&nbsp;") == std::string::npos) return;
  // Ampersands last: "&amp;lt;" is the text "&lt;".
  for (const auto& [entity, character] : kEntities) replace_all(text, entity, character);
}

std::string utf8_of(std::string_view text) {
  const bool little = text.starts_with("\xff\xfe"), big = text.starts_with("\xfe\xff");
  if (!little && !big) return std::string(text);
  std::string made;
  for (std::size_t at = 2; at + 1 < text.size(); at += 2) {
    const auto low = static_cast<std::uint8_t>(text[little ? at : at + 1]), high = static_cast<std::uint8_t>(text[little ? at + 1 : at]);
    const unsigned unit = low | static_cast<unsigned>(high) << 8U;
    if (unit < 0x80) made += static_cast<char>(unit);
    else if (unit < 0x800) made += {static_cast<char>(0xc0U | unit >> 6U), static_cast<char>(0x80U | (unit & 0x3fU))};
    else if (unit >= 0xd800 && unit < 0xe000) made += '?';  // half of a pair: no name of a device has one
    else made += {static_cast<char>(0xe0U | unit >> 12U), static_cast<char>(0x80U | (unit >> 6U & 0x3fU)), static_cast<char>(0x80U | (unit & 0x3fU))};
  }
  return made;
}

std::string unpasted(std::string_view text) {
  std::string whole(text);
  read_entities(whole);
  std::vector<std::string> lines = lines_of(whole);
  for (std::string& line : lines) unquote(line);
  unlabel(lines);
  unquote_diff(lines);
  const auto fences = std::count_if(lines.begin(), lines.end(), [](const std::string& line) { return is_fence(line); });
  const bool fenced = fences % 2 == 0 ? fences > 0 : more_inside(lines);
  bool inside = false;
  for (std::string& line : lines) {
    const bool fence = is_fence(line);
    inside = fence ? !inside : inside;
    if (fence || (fenced && !inside) || is_markup(line)) blank_out(line, 0, line.size());
  }
  unquote_diff(lines);  // one within a fence
  for (std::string& line : lines) {
    unbar(line);
    uncover_head(line);
    if (is_command(line)) blank_out(line, 0, line.size());
  }
  uncover_xml(lines);
  return join(lines, "\n");
}

bool is_gap(std::string_view line) {
  line = trimmed(line);
  for (const std::string_view around : {"[", "<", "("}) {
    if (line.size() > 2 && line.substr(0, 1) == around) line = line.substr(1, line.size() - 2);
  }
  if (line.empty()) return false;
  while (line.starts_with("\xe2\x80\xa6")) line.remove_prefix(3);
  return line.empty() || (line.size() >= 3 && line.find_first_not_of('.') == std::string_view::npos);
}

}  // namespace wirewise
