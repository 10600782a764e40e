#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

bool blank(char c) { return c == ' ' || c == '\t' || c == '\v' || c == '\f'; }

/// How many bytes from `at` on are a terminal's escape sequence; 0: none.
std::size_t escape_length(std::string_view text, std::size_t at) {
  if (text[at] != '\x1b') return 0;
  if (at + 1 >= text.size()) return 1;
  if (text[at + 1] == '[') {  // parameters up to a final byte
    std::size_t end = at + 2;
    while (end < text.size() && text[end] >= 0x20 && text[end] < 0x40) ++end;
    return end < text.size() && text[end] >= 0x40 && text[end] <= 0x7e ? end + 1 - at : end - at;
  }
  return 2;
}

}  // namespace

std::vector<TextLine> text_lines(std::string_view text) {
  std::vector<TextLine> lines;
  each_line(text, [&](const TextLine& line) { lines.push_back(line); });  // a copy takes no more room than it needs
  return lines;
}

void each_line(std::string_view text, const std::function<void(const TextLine&)>& take) {
  std::size_t at = text.substr(0, 3) == "\xef\xbb\xbf" ? 3 : 0;
  std::size_t start = at;
  TextLine line;
  const auto finish = [&](bool ended) {
    ++line.number;
    line.ended = ended;
    take(line);
    line.text.clear();
    line.column.clear();
  };
  while (at < text.size()) {
    if (text[at] == '\n') {
      finish(true);
      start = ++at;
    } else if (const std::size_t escape = escape_length(text, at); escape > 0) {
      at += escape;
    } else if (text[at] == '\r' || text[at] == '\0') {
      ++at;
    } else {
      const bool wide_blank = text.substr(at, 2) == "\xc2\xa0";
      line.text += wide_blank ? ' ' : text[at];
      line.column.push_back(static_cast<int>(at - start) + 1);
      at += wide_blank ? 2 : 1;
    }
  }
  if (at > start) finish(false);
}

std::vector<Word> words_of(const TextLine& line) {
  std::vector<Word> words;
  for (std::size_t at = 0; at < line.text.size();) {
    if (blank(line.text[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < line.text.size() && !blank(line.text[end])) ++end;
    words.push_back({line.text.substr(at, end - at), line.column[at]});
    at = end;
  }
  return words;
}

std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace wirewise
