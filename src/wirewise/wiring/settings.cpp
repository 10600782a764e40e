#include "wirewise/wiring/settings.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "wirewise/base/nearest.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {

struct Settings::Value {
  using List = std::vector<Value>;
  struct Entry;
  using Table = std::vector<Entry>;
  std::variant<std::monostate, std::string, std::int64_t, double, bool, List, Table> data;
  int line = 0, column = 0;

  [[nodiscard]] std::string what() const;
  static Value of(const toml::node& node);
};

struct Settings::Value::Entry {
  std::string key;
  Value value;
  int line = 0, column = 0;
};

std::string Settings::Value::what() const {
  if (const auto* text = std::get_if<std::string>(&data)) return "\"" + printable(text->substr(0, 60)) + "\"";
  if (const auto* integer = std::get_if<std::int64_t>(&data)) return std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&data)) {
    const std::string digits = fmt::format("{}", *real);
    return digits.find_first_of(".ein") == std::string::npos ? digits + ".0" : digits;  // 2.0 is no whole number in TOML
  }
  if (const auto* truth = std::get_if<bool>(&data)) return *truth ? "true" : "false";
  if (std::holds_alternative<List>(data)) return "a list";
  if (std::holds_alternative<Table>(data)) return "a table";
  return "a date or time";
}

Settings::Value Settings::Value::of(const toml::node& node) {
  Value value;
  value.line = static_cast<int>(node.source().begin.line);
  value.column = static_cast<int>(node.source().begin.column);
  if (const auto* text = node.as_string()) {
    value.data = text->get();
  } else if (const auto* integer = node.as_integer()) {
    value.data = integer->get();
  } else if (const auto* real = node.as_floating_point()) {
    value.data = real->get();
  } else if (const auto* truth = node.as_boolean()) {
    value.data = truth->get();
  } else if (const auto* list = node.as_array()) {
    List all;
    all.reserve(list->size());
    for (const toml::node& one : *list) all.push_back(of(one));
    value.data = std::move(all);
  } else if (const auto* table = node.as_table()) {
    Table all;
    for (const auto& [key, one] : *table) {
      const toml::source_position at = key.source().begin;
      all.push_back({std::string(key.str()), of(one), static_cast<int>(at.line), static_cast<int>(at.column)});
    }
    std::stable_sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) { return std::pair(a.line, a.column) < std::pair(b.line, b.column); });
    value.data = std::move(all);
  }
  return value;
}

Settings::Settings(std::string_view text, std::string_view file) : file_(std::make_shared<const std::string>(file)) {
  try {
    const toml::table table = toml::parse(text);
    root_ = std::make_shared<const Value>(Value::of(table));
  } catch (const toml::parse_error& failure) {
    const toml::source_position at = failure.source().begin;
    throw unreadable(file, static_cast<int>(at.line), static_cast<int>(at.column), printable(failure.description()) + ".", "The file must be valid TOML.");
  }
  table_ = root_.get();
}

Settings::Settings(const Value* table, std::shared_ptr<const Value> root, std::shared_ptr<const std::string> file)
    : root_(std::move(root)), file_(std::move(file)), table_(table) {}

Settings::~Settings() = default;
Settings::Settings(Settings&&) noexcept = default;
Settings& Settings::operator=(Settings&&) noexcept = default;

const Settings::Value* Settings::find(std::string_view key) {
  if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) asked_.emplace_back(key);
  for (const Value::Entry& entry : std::get<Value::Table>(table_->data)) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

bool Settings::has(std::string_view key) { return find(key) != nullptr; }

std::string Settings::text(std::string_view key, std::string fallback) {
  const Value* value = find(key);
  if (value == nullptr) return fallback;
  if (const auto* text = std::get_if<std::string>(&value->data)) return *text;
  throw wrong(key, fmt::format("{} must be a text in quotes, not {}.", key, value->what()));
}

int Settings::integer(std::string_view key, int fallback, int least, int most) {
  const Value* value = find(key);
  if (value == nullptr) return fallback;
  const auto* integer = std::get_if<std::int64_t>(&value->data);
  if (integer != nullptr && *integer >= least && *integer <= most) return static_cast<int>(*integer);
  throw wrong(key, fmt::format("{} must be a whole number from {} to {}, not {}.", key, least, most, value->what()));
}

double Settings::number(std::string_view key, double fallback, double least, double most) {
  const Value* value = find(key);
  if (value == nullptr) return fallback;
  double number = most + 1;
  if (const auto* real = std::get_if<double>(&value->data)) number = *real;
  if (const auto* integer = std::get_if<std::int64_t>(&value->data)) number = static_cast<double>(*integer);
  if (number >= least && number <= most) return number;
  throw wrong(key, fmt::format("{} must be a number from {} to {}, not {}.", key, least, most, value->what()));
}

bool Settings::truth(std::string_view key, bool fallback) {
  const Value* value = find(key);
  if (value == nullptr) return fallback;
  if (const auto* truth = std::get_if<bool>(&value->data)) return *truth;
  throw wrong(key, fmt::format("{} must be true or false, not {}.", key, value->what()));
}

std::vector<std::string> Settings::texts(std::string_view key) {
  const Value* value = find(key);
  if (value == nullptr) return {};
  if (const auto* one = std::get_if<std::string>(&value->data)) return {*one};
  std::vector<std::string> all;
  const auto* list = std::get_if<Value::List>(&value->data);
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const auto* text = std::get_if<std::string>(&(*list)[i].data);
    if (text == nullptr) throw wrong(key, fmt::format("{} must hold texts in quotes, not {}.", key, (*list)[i].what()));
    all.push_back(*text);
  }
  if (list == nullptr) throw wrong(key, fmt::format("{} must be a text or a list of texts, not {}.", key, value->what()));
  return all;
}

std::vector<int> Settings::integers(std::string_view key, int least, int most) {
  const Value* value = find(key);
  if (value == nullptr) return {};
  const auto take = [&](const Value& one) {
    const auto* integer = std::get_if<std::int64_t>(&one.data);
    if (integer != nullptr && *integer >= least && *integer <= most) return static_cast<int>(*integer);
    throw wrong(key, fmt::format("{} must hold whole numbers from {} to {}, not {}.", key, least, most, one.what()));
  };
  const auto* list = std::get_if<Value::List>(&value->data);
  if (list == nullptr) return {take(*value)};
  std::vector<int> all;
  for (const Value& one : *list) all.push_back(take(one));
  return all;
}

std::vector<std::vector<int>> Settings::tuples(std::string_view key, std::size_t each, int least, int most) {
  const Value* value = find(key);
  if (value == nullptr) return {};
  const Error unfit = wrong(key, fmt::format("{} must be a list of lists of {} whole numbers from {} to {}.", key, each, least, most));
  const auto* list = std::get_if<Value::List>(&value->data);
  if (list == nullptr) throw unfit;
  std::vector<std::vector<int>> all;
  for (const Value& one : *list) {
    const auto* inner = std::get_if<Value::List>(&one.data);
    if (inner == nullptr || inner->size() != each) throw unfit;
    auto& numbers = all.emplace_back();
    for (const Value& number : *inner) {
      const auto* integer = std::get_if<std::int64_t>(&number.data);
      if (integer == nullptr || *integer < least || *integer > most) throw unfit;
      numbers.push_back(static_cast<int>(*integer));
    }
  }
  return all;
}

std::vector<Settings> Settings::tables(std::string_view key) {
  const Value* value = find(key);
  std::vector<Settings> all;
  if (value == nullptr) return all;
  if (std::holds_alternative<Value::Table>(value->data)) {
    all.push_back(Settings(value, root_, file_));
    return all;
  }
  const auto* list = std::get_if<Value::List>(&value->data);
  if (list == nullptr) throw wrong(key, fmt::format("{} must be a table, as in [{}], not {}.", key, key, value->what()));
  for (const Value& one : *list) {
    if (!std::holds_alternative<Value::Table>(one.data)) throw wrong(key, fmt::format("{} must hold tables, not {}.", key, one.what()));
    all.push_back(Settings(&one, root_, file_));
  }
  return all;
}

std::vector<std::string> Settings::keys() const {
  std::vector<std::string> all;
  for (const Value::Entry& entry : std::get<Value::Table>(table_->data)) all.push_back(entry.key);
  return all;
}

void Settings::finish() const {
  for (const Value::Entry& entry : std::get<Value::Table>(table_->data)) {
    if (std::find(asked_.begin(), asked_.end(), entry.key) != asked_.end()) continue;
    throw unreadable(*file_, entry.line, entry.column, "there is no key " + printable(entry.key) + " here.", suggest(entry.key, asked_));
  }
}

void Settings::expect(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) (void)find(key);
  finish();
}

Error Settings::wrong(std::string_view key, const std::string& what, const std::string& remedy) const {
  for (const Value::Entry& entry : std::get<Value::Table>(table_->data)) {
    if (entry.key == key) return unreadable(*file_, entry.line, entry.column, what, remedy);
  }
  return unreadable(*file_, table_->line, table_->column, what, remedy);
}

int Settings::line() const noexcept { return table_->line; }

}  // namespace wirewise
