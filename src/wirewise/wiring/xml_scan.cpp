#include "wirewise/wiring/xml_scan.h"

#include <algorithm>

#include "wirewise/base/text.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostDepth = 64;
constexpr std::size_t kMostElements = 100000;

bool blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

bool name_char(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' || c == ':'; }

std::string_view name_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && name_char(text[end])) ++end;
  return text.substr(at, end - at);
}

class Scan {
 public:
  Scan(std::string_view text, std::string_view file) : text_(text), file_(file), places_(text) {}

  MendedXml mend() {
    std::size_t at = text_.substr(0, 3) == "\xef\xbb\xbf" ? 3 : 0;
    end_ = text_.size();
    while (at < end_) {
      const std::size_t tag = std::min(text_.find('<', at), end_);
      between(at, tag);
      if (tag == end_) break;
      at = element(tag);
    }
    finish();
    return std::move(mended_);
  }

 private:
  struct Open {
    std::string_view name;
    std::size_t at;
  };

  [[noreturn]] void refuse(std::size_t at, const std::string& what, const std::string& remedy = {}) const {
    throw unreadable(file_, places_.line(at), places_.column(at), what, remedy);
  }

  void note(std::size_t at, std::string text) { mended_.notes.push_back({places_.line(at), places_.column(at), std::move(text)}); }

  /// Text between tags means nothing to NCCL; people write "..." where they leave something out.
  void between(std::size_t from, std::size_t to) {
    const auto first = std::find_if_not(text_.begin() + static_cast<std::ptrdiff_t>(from), text_.begin() + static_cast<std::ptrdiff_t>(to), blank);
    const auto at = static_cast<std::size_t>(first - text_.begin());
    if (at == to) return;
    if (!text_noted_) note(at, "text stands between the elements; it was left out.");
    text_noted_ = true;
    mended_.partial = true;
  }

  void cut(std::size_t at, const std::string& within) {
    note(at, "the file ends within " + within + ".");
    mended_.cut = mended_.partial = true;
    end_ = at;
  }

  /// Returns where the scan goes on.
  std::size_t element(std::size_t at) {
    const auto skip_to = [&](std::string_view close, const std::string& what) {
      const std::size_t found = text_.find(close, at + 2);
      if (found != std::string_view::npos) return found + close.size();
      cut(at, what);
      return end_;
    };
    if (text_.substr(at, 4) == "<!--") return skip_to("-->", "a comment");
    if (text_.substr(at, 2) == "<?") return skip_to("?>", "a declaration");
    if (text_.substr(at, 2) == "<!") refuse(at, "document types, entities and character data have no place in this format.", "Remove what begins with <! here.");
    const bool closing = text_.substr(at, 2) == "</";
    const std::string_view name = name_at(text_, at + (closing ? 2 : 1));
    const std::size_t close = tag_end(at);
    if (close == std::string_view::npos) {
      cut(at, "a tag");
      return end_;
    }
    if (name.empty()) refuse(at, "a tag has no name.");
    if (closing) {
      this->close(name, at);
    } else {
      if (++elements_ > kMostElements) refuse(at, "there are more than " + std::to_string(kMostElements) + " elements, more than a machine has.");
      if (text_[close - 1] != '/') open_.push_back({name, at});
      if (open_.size() > kMostDepth) refuse(at, "elements nest deeper than " + std::to_string(kMostDepth) + ".");
    }
    return close + 1;
  }

  /// The '>' of a tag; npos when the file ends before it.
  std::size_t tag_end(std::size_t at) const {
    char quote = 0;
    std::size_t quoted = 0;
    for (std::size_t i = at + 1; i < text_.size(); ++i) {
      const char c = text_[i];
      if (c == '<') refuse(i, "a tag begins within the one of line " + std::to_string(places_.line(at)) + ".", "Close that one with > first.");
      if (quote != 0 && c == '\n') refuse(quoted, "a value has no closing quote in its line.");
      if (quote != 0) {
        if (c == quote) quote = 0;
      } else if (c == '"' || c == '\'') {
        quote = c;
        quoted = i;
      } else if (c == '>') {
        return i;
      }
    }
    return std::string_view::npos;
  }

  void close(std::string_view name, std::size_t at) {
    if (open_.empty()) {
      if (before_.empty()) note(at, "<" + printable(name) + "> was opened before the file begins: this is a fragment.");
      before_.push_back(name);
      mended_.partial = true;
      if (before_.size() > kMostDepth) refuse(at, "elements nest deeper than " + std::to_string(kMostDepth) + ".");
      return;
    }
    if (open_.back().name != name) {
      refuse(at, "</" + printable(name) + "> stands where <" + printable(open_.back().name) + "> of line " + std::to_string(places_.line(open_.back().at)) + " is to be closed.");
    }
    open_.pop_back();
  }

  void finish() {
    std::string& text = mended_.text;
    for (auto name = before_.rbegin(); name != before_.rend(); ++name) text += "<" + std::string(*name) + ">";
    mended_.lead = text.size();
    text += text_.substr(0, end_);
    if (!open_.empty()) {
      mended_.cut = mended_.partial = true;
      note(open_.front().at, "<" + printable(open_.front().name) + "> is never closed" +
                                 (open_.size() > 1 ? ", nor are " + std::to_string(open_.size() - 1) + " elements within it" : std::string()) + ": the end is missing.");
    }
    for (auto open = open_.rbegin(); open != open_.rend(); ++open) text += "</" + std::string(open->name) + ">";
  }

  std::string_view text_, file_;
  TextPlaces places_;
  MendedXml mended_;
  std::vector<Open> open_;
  std::vector<std::string_view> before_;  // names of elements that are closed but never opened
  std::size_t end_ = 0, elements_ = 0;
  bool text_noted_ = false;
};

}  // namespace

TextPlaces::TextPlaces(std::string_view text) : starts_{0} {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') starts_.push_back(i + 1);
  }
}

int TextPlaces::line(std::size_t offset) const {
  return static_cast<int>(std::upper_bound(starts_.begin(), starts_.end(), offset) - starts_.begin());
}

int TextPlaces::column(std::size_t offset) const { return static_cast<int>(offset - starts_[static_cast<std::size_t>(line(offset)) - 1]) + 1; }

MendedXml mend_xml(std::string_view text, std::string_view file) { return Scan(text, file).mend(); }

std::string_view first_element(std::string_view text) noexcept {
  std::size_t at = text.substr(0, 3) == "\xef\xbb\xbf" ? 3 : 0;
  while (at < text.size()) {
    if (blank(text[at])) {
      ++at;
      continue;
    }
    if (text[at] != '<') return {};
    const bool comment = text.substr(at, 4) == "<!--";
    if (comment || text.substr(at, 2) == "<?") {
      const std::size_t close = text.find(comment ? "-->" : "?>", at);
      if (close == std::string_view::npos) return {};
      at = close + (comment ? 3 : 2);
      continue;
    }
    return name_at(text, at + (text.substr(at, 2) == "</" ? 2 : 1));
  }
  return {};
}

}  // namespace wirewise
