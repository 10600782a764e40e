// A TOML file as tables that are read key by key, where every value knows its place: a wrong one is refused with line and column, and a key
// that nobody read is refused with the nearest one that somebody would have.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/base/error.h"

namespace wirewise {

class Settings {
 public:
  /// Throws bad input with the place where the text is no TOML.
  Settings(std::string_view text, std::string_view file);
  ~Settings();
  Settings(Settings&&) noexcept;
  Settings& operator=(Settings&&) noexcept;

  [[nodiscard]] bool has(std::string_view key);
  /// Values, or what stands in for one that is missing. Throws bad input for another type, or a number out of its range.
  [[nodiscard]] std::string text(std::string_view key, std::string fallback = {});
  [[nodiscard]] int integer(std::string_view key, int fallback, int least, int most);
  [[nodiscard]] double number(std::string_view key, double fallback, double least, double most);
  [[nodiscard]] bool truth(std::string_view key, bool fallback);
  /// A list, or one value in place of a list of one.
  [[nodiscard]] std::vector<std::string> texts(std::string_view key);
  [[nodiscard]] std::vector<int> integers(std::string_view key, int least, int most);
  /// A list of lists of `each` whole numbers.
  [[nodiscard]] std::vector<std::vector<int>> tuples(std::string_view key, std::size_t each, int least, int most);
  /// The tables of a list of tables, or the one table; none where the key is missing.
  [[nodiscard]] std::vector<Settings> tables(std::string_view key);

  /// The keys in the order of the file.
  [[nodiscard]] std::vector<std::string> keys() const;
  /// Throws bad input for a key that none of the calls above asked for.
  void finish() const;
  /// Throws bad input for a key that is none of these: before what it leaves unsaid is missed.
  void expect(std::initializer_list<std::string_view> keys);
  /// Bad input at the place of a key, or of the table where it has none.
  [[nodiscard]] Error wrong(std::string_view key, const std::string& what, const std::string& remedy = {}) const;
  [[nodiscard]] int line() const noexcept;

 private:
  struct Value;
  Settings(const Value* table, std::shared_ptr<const Value> root, std::shared_ptr<const std::string> file);
  [[nodiscard]] const Value* find(std::string_view key);

  std::shared_ptr<const Value> root_;  // of all tables of a file
  std::shared_ptr<const std::string> file_;
  const Value* table_ = nullptr;
  std::vector<std::string> asked_;
};

}  // namespace wirewise
