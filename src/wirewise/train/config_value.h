// A configuration value with where it came from, so that every error can say which line or option was wrong. Private to train/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "wirewise/base/error.h"

namespace wirewise::config {

/// What TOML can't give a key (arrays, tables, dates) is kept as its kind only.
struct Unusable {
  std::string kind;  // "an array"
};

struct Value {
  std::variant<bool, std::int64_t, double, std::string, Unusable> data;
  std::string text;            // as written, for errors
  std::string where;           // "run.toml:12: " or "--set: "
  bool from_override = false;
};

/// One `key = value`; the key is dotted: "train.lr".
struct Assignment {
  std::string key;
  Value value;
};

/// All assignments of a TOML file, in the order of their lines. Throws bad input with file, line and column where it isn't TOML.
[[nodiscard]] std::vector<Assignment> read_toml(const std::filesystem::path& file);

/// Reads "train.lr=1e-3". Throws bad input when there is no '=' or no key.
[[nodiscard]] Assignment read_override(const std::string& text);

/// A TOML basic string: quoted and escaped.
[[nodiscard]] std::string quote(std::string_view text);

/// Text from a file or an option as an error shows it: one line, at most 80 characters, nothing that steers a terminal.
[[nodiscard]] std::string shown(const std::string& text);

/// "train.steps = "ten" is a string; expected an integer of at least 1."
[[nodiscard]] Error wrong_value(std::string_view key, const Value& value, std::string_view expected);

}  // namespace wirewise::config
