// Values are replaced where the parser says they stand. Afterwards the whole is parsed again and compared with what it must be, so that a
// file that is laid out in a way not thought of is refused and not spoilt.
#include "wirewise/wiring/measured_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {
namespace {

constexpr std::string_view kKey = "measured";

using Values = std::vector<std::pair<std::string, std::string>>;  // keys and their values as TOML

std::string real(double value) {
  std::string text = fmt::format("{:.4g}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : is_utf8(text) ? text : printable(text)) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (code < 0x20 || code == 0x7f)
      out += fmt::format("\\u{:04X}", code);
    else
      out += c;
  }
  return out + "\"";
}

Values values_of(const MeasuredClass& one) {
  std::string sizes;
  for (const Bytes size : one.sizes) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  return {{"alpha_us", real(one.alpha * 1e6)},
          {"beta_GBps", real(one.beta / 1e9)},
          {"source", quoted(one.source)},
          {"between", quoted(one.between)},
          {"date", quoted(one.date)},
          {"sizes", "[" + sizes + "]"},
          {"residual_percent", real(one.residual * 100)}};
}

std::string table_of(const MeasuredClass& one, const std::string& line_end) {
  std::string text = "[[measured]]" + line_end + "class = " + quoted(one.name) + line_end;
  for (const auto& [key, value] : values_of(one)) text += key + " = " + value + line_end;
  return text;
}

class Editor {
 public:
  Editor(std::string_view text, std::string_view file, std::span<const MeasuredClass> classes)
      : text_(text), file_(file), classes_(classes) {
    try {
      root_ = toml::parse(text_);
    } catch (const toml::parse_error& failure) {
      const toml::source_position at = failure.source().begin;
      throw unreadable(file, static_cast<int>(at.line), static_cast<int>(at.column), printable(failure.description()) + ".",
                       "The file must be valid TOML.");
    }
    line_end_ = text_.find("\r\n") == std::string::npos ? "\n" : "\r\n";
    lines_.push_back(0);
    for (std::size_t at = text_.find('\n'); at != std::string::npos; at = text_.find('\n', at + 1)) lines_.push_back(at + 1);
  }

  std::string edit() {
    wanted_ = root_;
    if (root_.contains(kKey) && !root_[kKey].is_array_of_tables()) refuse("its measured key is no list of tables");
    if (!root_.contains(kKey)) wanted_.insert(kKey, toml::array());
    for (const MeasuredClass& one : classes_) place(one);
    std::stable_sort(edits_.begin(), edits_.end(), [](const Edit& a, const Edit& b) { return a.begin < b.begin; });
    std::string out;
    std::size_t done = 0;
    for (const Edit& edit : edits_) {
      if (edit.begin < done) refuse("its measured tables can't be told apart");
      out += text_.substr(done, edit.begin - done) + edit.text;
      done = edit.end;
    }
    out += text_.substr(done);
    if (!added_.empty()) {
      if (!out.empty() && out.back() != '\n') out += line_end_;
      out += added_;
    }
    verify(out);
    return out;
  }

 private:
  struct Edit {
    std::size_t begin = 0, end = 0;
    std::string text;
  };

  [[noreturn]] void refuse(const std::string& why) const {
    throw unreadable(file_, 0, 0, why + ", so figures can't be put in without risk to the rest.",
                     "Put these in by hand:\n" + measured_tables(classes_));
  }

  /// Columns count characters, offsets bytes.
  [[nodiscard]] std::size_t offset_of(toml::source_position at) const {
    if (at.line == 0 || at.line > lines_.size()) refuse("a table of it has no place");
    std::size_t offset = lines_[at.line - 1];
    if (offset == 0 && text_.starts_with("\xEF\xBB\xBF")) offset = 3;
    for (toml::source_index column = 1; column < at.column && offset < text_.size(); ++column) {
      ++offset;
      while (offset < text_.size() && (static_cast<unsigned char>(text_[offset]) & 0xC0) == 0x80) ++offset;
    }
    return offset;
  }

  static bool holds_for_all(const toml::table& table, const std::string& name) {
    return table["class"].value<std::string>() == name && !table.contains("hosts") && !table.contains("units");
  }

  void place(const MeasuredClass& one) {
    toml::array& wanted = *wanted_[kKey].as_array();
    const toml::array* tables = root_[kKey].as_array();
    const toml::table* own = nullptr;
    const toml::table* narrower = nullptr;
    std::size_t own_index = 0, narrower_index = 0;
    for (std::size_t i = 0; tables != nullptr && i < tables->size(); ++i) {
      const toml::table& table = *(*tables)[i].as_table();
      if (holds_for_all(table, one.name)) {
        own = &table;  // of several the last one holds
        own_index = i;
      } else if (narrower == nullptr && table["class"].value<std::string>() == one.name) {
        narrower = &table;
        narrower_index = i;
      }
    }
    if (own != nullptr) {
      replace(*own, one);
      set(*wanted[own_index + shifted(own_index)].as_table(), one);
      return;
    }
    toml::table fresh{{"class", one.name}};
    set(fresh, one);
    if (tables != nullptr && !tables->empty() && tables->front().as_table()->is_inline()) refuse("its measured tables stand in one list");
    if (narrower != nullptr) {
      std::size_t line = narrower->source().begin.line - 1;
      while (line > 0 && text_[text_.find_first_not_of(" \t", lines_[line - 1])] == '#') --line;
      edits_.push_back({lines_[line], lines_[line], table_of(one, line_end_) + line_end_});
      wanted.insert(wanted.begin() + static_cast<std::ptrdiff_t>(narrower_index + shifted(narrower_index)), fresh);
      inserted_.push_back(narrower_index);
      return;
    }
    added_ += line_end_ + table_of(one, line_end_);
    wanted.push_back(fresh);
  }

  /// How many tables were put before this one.
  [[nodiscard]] std::size_t shifted(std::size_t index) const {
    return static_cast<std::size_t>(std::count_if(inserted_.begin(), inserted_.end(), [&](std::size_t at) { return at <= index; }));
  }

  static void set(toml::table& table, const MeasuredClass& one) {
    std::string text;
    for (const auto& [key, value] : values_of(one)) text += key + " = " + value + "\n";
    for (auto&& [key, value] : toml::parse(text)) table.insert_or_assign(key.str(), value);
  }

  void replace(const toml::table& table, const MeasuredClass& one) {
    std::string missing;
    std::size_t last = 0;
    for (auto&& [key, value] : table) last = std::max(last, offset_of(value.source().end));
    for (const auto& [key, value] : values_of(one)) {
      const toml::node* old = table.get(key);
      if (old == nullptr) {
        missing += table.is_inline() ? ", " + key + " = " + value : key + " = " + value + line_end_;
        continue;
      }
      const std::size_t begin = offset_of(old->source().begin), end = offset_of(old->source().end);
      if (old->is_array() && text_.substr(begin, end - begin).find('#') != std::string::npos)
        refuse("a comment stands within " + key + " of a measured table");
      edits_.push_back({begin, end, value});
    }
    if (missing.empty()) return;
    if (!table.is_inline()) {  // behind the line of its last value
      const std::size_t next = text_.find('\n', last);
      if (next == std::string::npos) missing = line_end_ + missing;
      last = next == std::string::npos ? text_.size() : next + 1;
    }
    edits_.push_back({last, last, missing});
  }

  void verify(const std::string& out) const {
    try {
      if (toml::parse(out) == wanted_) return;
    } catch (const toml::parse_error&) {
    }
    refuse("it is laid out in a way that isn't understood");
  }

  std::string text_;
  std::string_view file_;
  std::span<const MeasuredClass> classes_;
  toml::table root_, wanted_;
  std::string line_end_;
  std::vector<std::size_t> lines_;  // where each begins
  std::vector<Edit> edits_;
  std::vector<std::size_t> inserted_;
  std::string added_;
};

}  // namespace

std::string measured_tables(std::span<const MeasuredClass> classes) {
  std::string text;
  for (const MeasuredClass& one : classes) text += (text.empty() ? "" : "\n") + table_of(one, "\n");
  return text;
}

std::string with_measured(std::string_view text, std::string_view file, std::span<const MeasuredClass> classes) {
  return Editor(text, file, classes).edit();
}

}  // namespace wirewise
