// A text as people's terminals leave it, cut into lines and words that know where they stand.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace wirewise {

struct Word {
  std::string text;
  int column = 0;  // from 1, in bytes of the original line
};

struct TextLine {
  std::string text;         // without its end, terminal escapes and carriage returns
  std::vector<int> column;  // of each byte of `text`, in the original line
  int number = 0;           // from 1
  bool ended = true;        // false: the file stops in the middle of it
};

/// All lines. Escape sequences, byte order marks, zero bytes and carriage returns are dropped; UTF-8's no-break space is a blank.
[[nodiscard]] std::vector<TextLine> text_lines(std::string_view text);

/// The same, one after the other, for texts too large to be held as lines.
void each_line(std::string_view text, const std::function<void(const TextLine&)>& take);

/// The words of a line between blanks and tabs.
[[nodiscard]] std::vector<Word> words_of(const TextLine& line);

/// Text without blanks at either end.
[[nodiscard]] std::string_view trimmed(std::string_view text) noexcept;

}  // namespace wirewise
