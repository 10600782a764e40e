// Printed lists of "name: value" lines under heads, as ibstat and ibv_devinfo write them.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "wirewise/wiring/text_lines.h"

namespace wirewise {

struct KeyLine {
  std::string key, value;  // trimmed; value empty where none follows
  int column = 0;          // of the value, or of the line's end
};

/// "  State: Active" in its parts, also behind the wide colon of Chinese (U+FF1A); empty when the line has no colon.
[[nodiscard]] inline std::optional<KeyLine> key_line(const TextLine& line) {
  const std::size_t narrow = line.text.find(':'), wide = line.text.find("\xef\xbc\x9a");
  const std::size_t colon = std::min(narrow, wide), length = narrow < wide ? 1 : 3;
  if (colon == std::string::npos) return std::nullopt;
  KeyLine result;
  result.key = trimmed(std::string_view(line.text).substr(0, colon));
  const std::string_view rest = std::string_view(line.text).substr(colon + length);
  result.value = trimmed(rest);
  const std::size_t start = rest.find_first_not_of(" \t");
  result.column = line.column[start == std::string_view::npos ? colon : colon + length + start];
  return result;
}

}  // namespace wirewise
