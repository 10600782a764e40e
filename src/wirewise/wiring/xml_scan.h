// Before a text is parsed as XML: what is cut off is closed, what was opened before a fragment begins is opened, and what has no business in
// a description of a machine (document types, entities, bottomless nesting) is refused with its place.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/wiring/reading.h"

namespace wirewise {

/// Lines and columns, both from 1, of the bytes of a text.
class TextPlaces {
 public:
  explicit TextPlaces(std::string_view text);
  [[nodiscard]] int line(std::size_t offset) const;
  [[nodiscard]] int column(std::size_t offset) const;

 private:
  std::vector<std::size_t> starts_;
};

struct MendedXml {
  std::string text;         // well nested
  std::size_t lead = 0;     // bytes of `text` that stand before what the file has: an offset in the file is one in `text` less these
  std::vector<Note> notes;  // what was mended
  bool cut = false;         // the file's end is missing
  bool partial = false;     // its end or its beginning is missing, or text stands between its elements
};

/// Throws bad input with line and column where tags don't nest, a document type or entity is declared, elements nest deeper than 64, or there
/// are more than 100,000 of them.
[[nodiscard]] MendedXml mend_xml(std::string_view text, std::string_view file);

/// The name of a text's first element, opened or closed, behind comments and declarations; empty when it doesn't begin with one.
[[nodiscard]] std::string_view first_element(std::string_view text) noexcept;

}  // namespace wirewise
