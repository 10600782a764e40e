// A topology file of NCCL or RCCL as it was parsed: its elements, their places in the file, and what is said of a place: notes, facts, refusals.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/xml_scan.h"

namespace pugi {
class xml_document;
class xml_node;
}  // namespace pugi

namespace wirewise {

class NcclDocument {
 public:
  /// What was mended for it to parse goes into the reading's notes. Throws bad input where it isn't XML.
  NcclDocument(std::string_view text, std::string_view file, Reading& reading);
  ~NcclDocument();
  NcclDocument(const NcclDocument&) = delete;
  NcclDocument& operator=(const NcclDocument&) = delete;

  [[nodiscard]] pugi::xml_node root() const;
  [[nodiscard]] const std::string& text() const noexcept { return mended_.text; }
  /// Whether the file's end is missing.
  [[nodiscard]] bool cut() const noexcept { return mended_.cut; }
  /// The line in the file of the element whose name stands at an offset of text().
  [[nodiscard]] int line_at(std::ptrdiff_t name) const { return places_.line(in_file(name)); }
  [[nodiscard]] int line_of(pugi::xml_node node) const;
  /// Whether it was put there to open what a fragment closes.
  [[nodiscard]] bool made_up(pugi::xml_node node) const;

  /// Bad input at an element; without one, of the whole file.
  [[noreturn]] void refuse(pugi::xml_node node, const std::string& what, const std::string& remedy = {}) const;
  void note(pugi::xml_node node, std::string text, bool partial = false);
  void unknown(pugi::xml_node node);
  void fact(const std::string& subject, std::string name, std::string value, pugi::xml_node node);

 private:
  /// Of the '<' before a name.
  [[nodiscard]] std::size_t in_file(std::ptrdiff_t name) const;
  [[nodiscard]] int column_of(pugi::xml_node node) const;

  std::string_view file_;
  Reading& reading_;
  TextPlaces places_;
  MendedXml mended_;
  std::unique_ptr<pugi::xml_document> document_;
};

/// A number of an attribute from `least` to `most`; `otherwise` where there is none such.
[[nodiscard]] int attribute_number(pugi::xml_node node, const char* name, int otherwise, int least, int most);

}  // namespace wirewise
