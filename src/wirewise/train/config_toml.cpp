// TOML to assignments. The only file of train/ that knows the TOML library.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <toml++/toml.h>

#include "wirewise/base/text.h"
#include "wirewise/train/config_value.h"

namespace wirewise::config {
namespace {

std::string kind_of(toml::node_type type) {
  switch (type) {
    case toml::node_type::table: return "a table";
    case toml::node_type::array: return "an array";
    case toml::node_type::string: return "a string";
    case toml::node_type::integer: return "an integer";
    case toml::node_type::floating_point: return "a float";
    case toml::node_type::boolean: return "a boolean";
    case toml::node_type::none: return "nothing";
    default: return "a date or time";
  }
}

std::string text_of(const toml::node& node) {
  std::ostringstream out;
  node.visit([&](const auto& value) { out << value; });
  return out.str();
}

Value value_of(const toml::node& node) {
  Value value;
  if (const auto* string = node.as_string()) {
    value.data = string->get();
    value.text = quote(string->get());
    return value;
  }
  if (const auto* integer = node.as_integer()) {
    value.data = integer->get();
  } else if (const auto* real = node.as_floating_point()) {
    value.data = real->get();
  } else if (const auto* boolean = node.as_boolean()) {
    value.data = boolean->get();
  } else {
    value.data = Unusable{kind_of(node.type())};
  }
  value.text = text_of(node);
  return value;
}

void collect(const toml::table& table, const std::string& prefix, const std::string& file,
             std::vector<std::pair<toml::source_position, Assignment>>& out) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (prefix.empty() && node.is_table()) {
      collect(*node.as_table(), name + ".", file, out);
      continue;
    }
    const auto position = key.source().begin;
    Assignment assignment{name, value_of(node)};
    assignment.value.where = position.line > 0 ? fmt::format("{}:{}: ", printable(file), position.line) : printable(file) + ": ";
    out.emplace_back(position, std::move(assignment));
  }
}

// `text` as a TOML value; nothing when it is none.
std::optional<Value> parse_value(const std::string& text) {
  if (text.find_first_of("\n\r") != std::string::npos) return std::nullopt;
  try {
    const toml::table table = toml::parse("value = " + text);
    const toml::node* node = table.get("value");
    if (table.size() != 1 || node == nullptr) return std::nullopt;
    return value_of(*node);
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<Assignment> read_toml(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    throw bad_input(fmt::format("configuration file {} {}.", printable(file.string()),
                                std::filesystem::exists(file, error) ? "is not a regular file" : "does not exist"),
                    "Check the path given to --config.");
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw bad_input(fmt::format("configuration file {} can't be read.", printable(file.string())), "Check its permissions.");
  toml::table table;
  try {
    table = toml::parse(stream, file.string());
  } catch (const toml::parse_error& failure) {
    const auto position = failure.source().begin;
    throw bad_input(fmt::format("{}:{}:{}: {}.", printable(file.string()), position.line, position.column, printable(failure.description())),
                    "The file must be valid TOML.");
  }
  std::vector<std::pair<toml::source_position, Assignment>> found;
  collect(table, "", file.string(), found);
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.line, a.first.column) < std::pair(b.first.line, b.first.column);
  });
  std::vector<Assignment> assignments;
  assignments.reserve(found.size());
  for (auto& [position, assignment] : found) assignments.push_back(std::move(assignment));
  return assignments;
}

Assignment read_override(const std::string& text) {
  const auto trim = [](std::string part) {
    const auto first = part.find_first_not_of(" \t");
    if (first == std::string::npos) return std::string();
    return part.substr(first, part.find_last_not_of(" \t") - first + 1);
  };
  const auto equals = text.find('=');
  const std::string key = equals == std::string::npos ? "" : trim(text.substr(0, equals));
  if (key.empty()) throw bad_input(fmt::format("--set {}: no key=value.", shown(text)), "Write it as in --set train.lr=1e-3.");
  const std::string raw = trim(text.substr(equals + 1));
  Value value = parse_value(raw).value_or(Value{raw, quote(raw), "", true});
  if (!std::holds_alternative<std::string>(value.data)) value.text = raw;
  value.where = "--set: ";
  value.from_override = true;
  return {key, std::move(value)};
}

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string shown(const std::string& text) {
  constexpr std::size_t kMost = 80;
  return printable(text.size() <= kMost ? text : text.substr(0, kMost) + "...");
}

Error wrong_value(std::string_view key, const Value& value, std::string_view expected) {
  struct Kind {
    std::string operator()(bool) const { return "a boolean"; }
    std::string operator()(std::int64_t) const { return "an integer"; }
    std::string operator()(double) const { return "a float"; }
    std::string operator()(const std::string&) const { return "a string"; }
    std::string operator()(const Unusable& other) const { return other.kind; }
  };
  return bad_input(fmt::format("{}{} = {} ({}) is refused.", value.where, key, shown(value.text), std::visit(Kind{}, value.data)),
                   fmt::format("{} expects {}.", key, expected));
}

}  // namespace wirewise::config
