#include "wirewise/wiring/nccl_document.h"

#include <algorithm>
#include <pugixml.hpp>
#include <utility>

#include "wirewise/base/text.h"

namespace wirewise {
NcclDocument::NcclDocument(std::string_view text, std::string_view file, Reading& reading)
    : file_(file), reading_(reading), places_(text), mended_(mend_xml(text, file)), document_(std::make_unique<pugi::xml_document>()) {
  reading_.notes = mended_.notes;
  reading_.partial = mended_.partial;
  const pugi::xml_parse_result result = document_->load_buffer(mended_.text.data(), mended_.text.size(), pugi::parse_default, pugi::encoding_utf8);
  if (result) return;
  const auto offset = static_cast<std::size_t>(std::max<std::ptrdiff_t>(result.offset, 0));
  const std::size_t at = offset >= mended_.lead ? offset - mended_.lead : 0;
  const std::string what = result.description();
  throw unreadable(file_, places_.line(at), places_.column(at), lower_case(what.substr(0, 1)) + what.substr(std::min<std::size_t>(what.size(), 1)) + ".");
}

NcclDocument::~NcclDocument() = default;

pugi::xml_node NcclDocument::root() const { return *document_; }

std::size_t NcclDocument::in_file(std::ptrdiff_t name) const {
  const auto at = static_cast<std::size_t>(std::max<std::ptrdiff_t>(name, 1)) - 1;
  return at >= mended_.lead ? at - mended_.lead : 0;
}

int NcclDocument::line_of(pugi::xml_node node) const { return line_at(node.offset_debug()); }

int NcclDocument::column_of(pugi::xml_node node) const { return places_.column(in_file(node.offset_debug())); }

bool NcclDocument::made_up(pugi::xml_node node) const {
  return node.offset_debug() >= 0 && static_cast<std::size_t>(node.offset_debug()) < mended_.lead;
}

void NcclDocument::refuse(pugi::xml_node node, const std::string& what, const std::string& remedy) const {
  throw unreadable(file_, node ? line_of(node) : 0, node ? column_of(node) : 0, what, remedy);
}

void NcclDocument::note(pugi::xml_node node, std::string text, bool partial) {
  reading_.notes.push_back({node ? line_of(node) : 0, node ? column_of(node) : 0, std::move(text)});
  reading_.partial = reading_.partial || partial;
}

void NcclDocument::unknown(pugi::xml_node node) {
  if (node.type() != pugi::node_element) return;  // text, which is noted
  note(node, "<" + printable(node.name()) + "> isn't known here; it was left out.");
}

void NcclDocument::fact(const std::string& subject, std::string name, std::string value, pugi::xml_node node) {
  reading_.facts.push_back({subject, std::move(name), std::move(value), line_of(node)});
}

int attribute_number(pugi::xml_node node, const char* name, int otherwise, int least, int most) {
  const auto number = parse_integer(node.attribute(name).value());
  return number && *number >= least && *number <= most ? static_cast<int>(*number) : otherwise;
}

}  // namespace wirewise
